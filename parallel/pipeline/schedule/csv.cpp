// Reading and writing of plans as files.
#include "parallel/pipeline/schedule/csv.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"

namespace penstock {
namespace {

constexpr Index most_empty_cells = Index{1} << 22;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Lines of a text without their ends (LF, CR LF); empty ones at the end are dropped.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  while (!lines.empty() && trim(lines.back()).empty()) lines.pop_back();
  return lines;
}

/// The rows as text, a bubble as the empty string.
std::vector<std::vector<std::string>> row_cells(const Plan& plan) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& row : plan.rows) {
    auto& texts = rows.emplace_back();
    for (const Cell& cell : row) texts.push_back(cell ? to_text(*cell) : std::string());
  }
  return rows;
}

}  // namespace

Plan parse_csv(std::string_view text, const std::string& source) {
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) text.remove_prefix(kByteOrderMark.size());
  std::vector<std::vector<Cell>> rows;
  Index actions = 0;
  for (std::string_view line : lines_of(text)) {
    auto& row = rows.emplace_back();
    while (!trim(line).empty() || !row.empty()) {
      const std::size_t end = std::min(line.find(','), line.size());
      const std::string_view cell = trim(line.substr(0, end));
      if (cell.empty()) {
        row.emplace_back();
      } else {
        try {
          row.emplace_back(parse_action(cell));
        } catch (ValueError& error) {
          error.add_context(fmt::format("{}, row {}, cell {}", source, rows.size(), row.size() + 1));
          throw;
        }
        ++actions;
      }
      if (end == line.size()) break;
      line.remove_prefix(end + 1);
    }
  }
  require<ValueError>(actions > 0,
                      "{}, row 1, cell 1: there is no action in it; a schedule has one row a rank", source);
  Plan plan = plan_from_rows(source, std::move(rows));
  // Whatever looks at a plan has tables of stages by micro-batches: a number out of all proportion must not
  // ask for more of them than there is memory.
  Index cells = 0;
  const bool overflows = __builtin_mul_overflow(plan.stages, plan.micro_batches, &cells);
  require<ValueError>(!overflows && cells <= most_empty_cells + actions,
                      "{}: its highest numbers make a plan of {} stages and {} micro-batches, but it has {} "
                      "actions",
                      source, plan.stages, plan.micro_batches, actions);
  return plan;
}

Plan read_csv(const std::string& path) { return parse_csv(MappedFile(path).text(), path); }

std::string to_csv(const Plan& plan) {
  std::string text;
  for (const auto& row : row_cells(plan)) {
    for (std::size_t k = 0; k < row.size(); ++k) {
      if (k > 0) text += ',';
      text += row[k];
    }
    text += '\n';
  }
  return text;
}

std::string to_json(const Plan& plan) {
  require<ValueError>(!plan.placement.empty(),
                      "{}: the rows give no placement of the stages, which the JSON form needs",
                      plan.schedule);
  nlohmann::ordered_json document;
  document["schedule"] = plan.schedule;
  document["pp"] = plan.pp;
  document["micro_batches"] = plan.micro_batches;
  document["stages"] = plan.stages;
  document["placement"] = plan.placement;
  document["replica"] = plan.replica;
  document["actions"] = row_cells(plan);
  if (plan.versions)
    document["versions"] = {{"forward", plan.versions->forward}, {"backward", plan.versions->backward}};
  return document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace penstock
