// Values of flags: text to number, with ranges, and messages that name flag, value and what is allowed.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/checked.h"

namespace penstock {

/// What a number may be. The ends belong to it unless they are open.
template <class T>
struct Range {
  T low = std::numeric_limits<T>::lowest();
  T high = std::numeric_limits<T>::max();
  bool low_open = false;
  bool high_open = false;

  bool contains(T value) const {
    return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
  }
};

using IntegerRange = Range<Index>;
using NumberRange = Range<double>;

template <class T>
Range<T> at_least(T low) {
  return {low};
}
template <class T>
Range<T> more_than(T low) {
  return {.low = low, .low_open = true};
}
template <class T>
Range<T> between(T low, T high) {
  return {low, high};
}
/// low <= value < high
template <class T>
Range<T> from_below(T low, T high) {
  return {.low = low, .high = high, .high_open = true};
}

/// "1 or more", "0 to 1", "0 or more and less than 1", ...
std::string to_text(const IntegerRange& range);
std::string to_text(const NumberRange& range);

/// For messages: the text, between quotes where it is empty or has blanks.
std::string shown_value(std::string_view text);

/// An integer in decimal digits. `flag` names the flag in messages. Throws ValueError; for `64k` or `2Gi` it
/// says what that is in digits.
Index parse_integer(std::string_view flag, std::string_view text, const IntegerRange& range = {});

/// A finite decimal number (`0.1`, `3e-4`). Throws ValueError.
double parse_number(std::string_view flag, std::string_view text, const NumberRange& range = {});

/// "true" or "false". Throws ValueError.
bool parse_truth(std::string_view flag, std::string_view text);

/// The items between commas, blanks round them dropped; an empty item is kept (and refused by what reads it).
std::vector<std::string> split_commas(std::string_view text);

}  // namespace penstock
