// Text to numbers.
#include "apps/common/value.h"

#include <charconv>
#include <cmath>

#include "core/error.h"

namespace penstock {
namespace {

template <class T>
std::string range_text(const Range<T>& range) {
  const bool has_low = range.low != std::numeric_limits<T>::lowest();
  const bool has_high = range.high != std::numeric_limits<T>::max();
  const std::string low =
      range.low_open ? fmt::format("more than {}", range.low) : fmt::format("{} or more", range.low);
  const std::string high =
      range.high_open ? fmt::format("less than {}", range.high) : fmt::format("{} or less", range.high);
  if (has_low && has_high && !range.low_open && !range.high_open)
    return fmt::format("{} to {}", range.low, range.high);
  if (has_low && has_high) return low + " and " + high;
  if (has_low) return low;
  if (has_high) return high;
  return std::is_integral_v<T> ? "an integer" : "a finite number";
}

struct Suffix {
  std::string_view text;
  Index factor;
};

constexpr Suffix kSuffixes[] = {
    {"k", 1000},
    {"K", 1000},
    {"M", 1'000'000},
    {"G", 1'000'000'000},
    {"T", 1'000'000'000'000},
    {"Ki", Index{1} << 10},
    {"Mi", Index{1} << 20},
    {"Gi", Index{1} << 30},
    {"Ti", Index{1} << 40},
};

/// For a size that is written as people write them (`64k`): "; in digits it is 64000". Else nothing.
std::string digits_hint(Index value, std::string_view suffix) {
  for (const Suffix& known : kSuffixes)
    if (known.text == suffix && !__builtin_mul_overflow(value, known.factor, &value))
      return fmt::format("; in digits it is {}", value);
  return {};
}

}  // namespace

std::string to_text(const IntegerRange& range) { return range_text(range); }
std::string to_text(const NumberRange& range) { return range_text(range); }

std::string shown_value(std::string_view text) {
  const bool plain = !text.empty() && text.find_first_of(" \t\r\n") == std::string_view::npos;
  return plain ? std::string(text) : fmt::format("'{}'", text);
}

Index parse_integer(std::string_view flag, std::string_view text, const IntegerRange& range) {
  Index value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view rest = text.substr(static_cast<std::size_t>(end - text.data()));
  if (error == std::errc::result_out_of_range && rest.empty())
    throw ValueError("--{} {}: is beyond 64 bits; allowed is {}", flag, text, to_text(range));
  require<ValueError>(error == std::errc() && rest.empty(), "--{} {}: it is no integer{}; allowed is {}",
                      flag, shown_value(text), error == std::errc() ? digits_hint(value, rest) : "",
                      to_text(range));
  require<ValueError>(range.contains(value), "--{} {}: allowed is {}", flag, text, to_text(range));
  return value;
}

double parse_number(std::string_view flag, std::string_view text, const NumberRange& range) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require<ValueError>(error == std::errc() && end == text.data() + text.size() && std::isfinite(value),
                      "--{} {}: it is no finite number; allowed is {}", flag, shown_value(text),
                      to_text(range));
  require<ValueError>(range.contains(value), "--{} {}: allowed is {}", flag, text, to_text(range));
  return value;
}

bool parse_truth(std::string_view flag, std::string_view text) {
  require<ValueError>(text == "true" || text == "false", "--{} {}: allowed are true and false", flag,
                      shown_value(text));
  return text == "true";
}

std::vector<std::string> split_commas(std::string_view text) {
  std::vector<std::string> items;
  for (;;) {
    const std::size_t end = std::min(text.find(','), text.size());
    std::string_view item = text.substr(0, end);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    items.emplace_back(item);
    if (end == text.size()) return items;
    text.remove_prefix(end + 1);
  }
}

}  // namespace penstock
