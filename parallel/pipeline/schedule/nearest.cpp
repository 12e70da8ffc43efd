// Levenshtein distance and the nearest name by it.
#include "parallel/pipeline/schedule/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace penstock {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest_name(std::string_view word, std::span<const std::string_view> known) {
  // A beginning (`--bat`) is nearer than anything else.
  const auto distance = [&](std::string_view name) {
    const bool begins = !word.empty() && name.starts_with(word);
    return std::pair(!begins, edit_distance(word, name));
  };
  const auto best = std::min_element(known.begin(), known.end(), [&](std::string_view a, std::string_view b) {
    return distance(a) < distance(b);
  });
  return best == known.end() ? std::string_view() : *best;
}

}  // namespace penstock
