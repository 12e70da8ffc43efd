// Conversions and divisions that throw instead of losing something.
#pragma once

#include <concepts>
#include <cstdint>
#include <utility>

#include "core/error.h"

namespace penstock {

using Index = std::int64_t;

/// `value` as To; throws ValueError where To cannot hold it.
template <std::integral To, std::integral From>
constexpr To narrow(From value) {
  if (!std::in_range<To>(value)) throw ValueError("{} does not fit into {} bits", value, 8 * sizeof(To));
  return static_cast<To>(value);
}

/// a / b; throws ValueError unless it goes without remainder. `what` names the division in the message.
inline Index div_exact(Index a, Index b, const char* what) {
  require<ValueError>(b != 0 && a % b == 0, "{}: {} is not a multiple of {}", what, a, b);
  return a / b;
}

/// a / b rounded up, for a >= 0, b > 0.
constexpr Index div_up(Index a, Index b) { return (a + b - 1) / b; }

/// a * b for sizes; throws ValueError on overflow.
inline Index checked_product(Index a, Index b) {
  Index result = 0;
  if (__builtin_mul_overflow(a, b, &result)) throw ValueError("{} x {} overflows 64 bits", a, b);
  return result;
}

}  // namespace penstock
