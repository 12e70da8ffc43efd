// The nearest known name to a mistyped one.
#pragma once

#include <span>
#include <string_view>

namespace penstock {

/// The name in `known` with the smallest edit distance (Levenshtein) to `word`, the first of equals; empty
/// where `known` is.
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> known);

}  // namespace penstock
