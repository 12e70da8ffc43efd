// exp for a vector of floats: right at the ends (0 for -infinity, subnormals, infinity above 88.73) and NaN
// for NaN.
#pragma once

#include "kernels/cpu/isa/lanes.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {

/// e^x with an error below 1.2 units in the last place. Results below 2^-126 are 0: subnormal numbers in a
/// softmax would cost a hundred cycles each and change nothing. x = n ln 2 + r, |r| <= ln(2)/2: n by
/// adding 1.5 * 2^23, ln 2 in two parts (Cody and Waite, "Software Manual for the Elementary Functions",
/// 1980, chapter 6). e^r = 1 + r + r^2 q(r); q interpolates (e^r - 1 - r) / r^2 at the Chebyshev nodes of
/// degree 4 (relative error of e^r: 1e-8). 2^n is multiplied in two factors, as 2^128 is no float.
PENSTOCK_INLINE Floats exponential(const Floats& value) {
  const Ints vanishes = value < splat(-87.3365f);  // comparisons that let NaN through
  Floats x = vanishes ? Floats{} : value;
  x = x > splat(89.0f) ? splat(89.0f) : x;
  const Floats shifter = splat(12582912.0f);
  const Floats shifted = multiply_add(x, splat(1.44269504f), shifter);
  const Floats n = shifted - shifter;
  Floats r = multiply_add(n, splat(-0.693359375f), x);
  r = multiply_add(n, splat(2.12194440e-4f), r);
  Floats q = splat(1.3926250831e-3f);
  q = multiply_add(q, r, splat(8.3632328837e-3f));
  q = multiply_add(q, r, splat(4.1666554213e-2f));
  q = multiply_add(q, r, splat(1.6666576666e-1f));
  q = multiply_add(q, r, splat(0.5f));
  const Floats e = multiply_add(q * r, r, r) + splat(1.0f);
  // The low bits of `shifted` are n; for NaN they are anything, and e is NaN.
  const Ints exponent = __builtin_bit_cast(Ints, shifted) - __builtin_bit_cast(Ints, shifter);
  const Ints half = exponent >> 1;
  const Ints rest = exponent - half;
  const Words bias = Words{} + 127u;
  const Words first = (__builtin_bit_cast(Words, half) + bias) << 23;
  const Words second = (__builtin_bit_cast(Words, rest) + bias) << 23;
  const Floats result = e * __builtin_bit_cast(Floats, first) * __builtin_bit_cast(Floats, second);
  return vanishes ? Floats{} : result;
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
