// TOML through toml++, flattened to the texts that a command line would give.
#include "apps/common/config.h"

#include <toml++/toml.h>
#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/file.h"

namespace penstock {
namespace {

/// The text of a scalar; throws for tables, arrays and dates.
std::string scalar_text(const toml::node& node, const std::string& where, const std::string& key) {
  if (const auto* text = node.as_string()) {
    require<ValueError>(text->get().find('\0') == std::string::npos, "{}: {}: a text with a NUL character",
                        where, key);
    return text->get();
  }
  if (const auto* integer = node.as_integer()) return std::to_string(integer->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  throw ValueError("{}: {} is neither text, number, true or false, nor an array of them", where, key);
}

}  // namespace

std::vector<ConfigEntry> read_config(const std::string& path) {
  const MappedFile file(
      path);  // which a pipe is not: it would be read by one rank and be empty for the others
  toml::table table;
  try {
    table = toml::parse(file.text(), path);
  } catch (const toml::parse_error& error) {
    throw ValueError("{}, line {}: {}", path, error.source().begin.line, error.description());
  }
  std::vector<ConfigEntry> entries;
  std::set<std::string> names;
  for (const auto& [key, node] : table) {
    ConfigEntry& entry = entries.emplace_back();
    entry.flag = std::string(key.str());
    entry.where = fmt::format("{}, line {}", path, node.source().begin.line);
    std::replace(entry.flag.begin(), entry.flag.end(), '_', '-');
    require<ValueError>(names.insert(entry.flag).second, "{}: {} stands there twice", entry.where, key.str());
    if (const auto* array = node.as_array()) {
      entry.is_array = true;
      for (const toml::node& item : *array)
        entry.values.push_back(scalar_text(item, entry.where, entry.flag));
    } else {
      entry.is_truth = node.is_boolean();
      entry.values.push_back(scalar_text(node, entry.where, entry.flag));
    }
  }
  return entries;
}

}  // namespace penstock
