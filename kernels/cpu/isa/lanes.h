// Sixteen floats at a time. The bodies in this folder are written once on the compiler's vector types and
// compiled for each instruction set: one AVX-512 register, two of AVX2, four of SSE. The tail of a row goes
// through the same arithmetic in a padded vector, so that an element's bits do not depend on where in a row
// it stands.
//
// Nothing here may be shared between the copies: all of it lies in the namespace of the instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/checks.h"
#include "kernels/kernel.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are returned by inlined functions only

#define PENSTOCK_INLINE inline __attribute__((always_inline))

namespace penstock::kernels::cpu::PENSTOCK_ISA {

inline constexpr Index lanes = 16;

using Floats = float __attribute__((vector_size(64)));
using Ints = std::int32_t __attribute__((vector_size(64)));
using HalfFloats = float __attribute__((vector_size(32)));
using Doubles = double __attribute__((vector_size(64)));  // half as many

PENSTOCK_INLINE Floats splat(float value) {
  return Floats{value, value, value, value, value, value, value, value,
                value, value, value, value, value, value, value, value};
}
PENSTOCK_INLINE Ints splat_int(std::int32_t value) {
  return Ints{value, value, value, value, value, value, value, value,
              value, value, value, value, value, value, value, value};
}
PENSTOCK_INLINE Ints iota(std::int32_t first) {
  return splat_int(first) + Ints{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
}

PENSTOCK_INLINE Floats load(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
PENSTOCK_INLINE Ints load_int(const std::int32_t* p) {
  Ints v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
PENSTOCK_INLINE void store(float* p, const Floats& v) { std::memcpy(p, &v, sizeof v); }

/// The first `count` of 16 floats, `fill` after them.
PENSTOCK_INLINE Floats load_part(const float* p, Index count, float fill) {
  Floats v = splat(fill);
  for (Index i = 0; i < count; ++i) v[i] = p[i];
  return v;
}
PENSTOCK_INLINE void store_part(float* p, const Floats& v, Index count) {
  for (Index i = 0; i < count; ++i) p[i] = v[i];
}

PENSTOCK_INLINE Floats select(const Ints& mask, const Floats& yes, const Floats& no) {
  return mask ? yes : no;
}
/// The larger; NaN in `b` stays, so that a fold acc = larger(acc, x) keeps what is not a number.
PENSTOCK_INLINE Floats larger(const Floats& a, const Floats& b) { return a > b ? a : b; }

PENSTOCK_INLINE Doubles low_half(const Floats& v) {
  HalfFloats half;
  std::memcpy(&half, &v, sizeof half);
  return __builtin_convertvector(half, Doubles);
}
PENSTOCK_INLINE Doubles high_half(const Floats& v) {
  HalfFloats half;
  std::memcpy(&half, reinterpret_cast<const char*>(&v) + sizeof half, sizeof half);
  return __builtin_convertvector(half, Doubles);
}

/// Sum over the lanes, always in the same tree.
PENSTOCK_INLINE float sum(const Floats& vector) {
  Floats v = vector;
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) v[i] += v[i + width];
  return v[0];
}
PENSTOCK_INLINE double sum(const Doubles& vector) {
  Doubles v = vector;
  for (int width = 4; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) v[i] += v[i + width];
  return v[0];
}
PENSTOCK_INLINE float maximum(const Floats& v) {
  float result = v[0];
  for (int i = 1; i < 16; ++i) result = result > v[i] || result != result ? result : v[i];
  return result;
}

/// Calls body(offset, count) for 0..n-1 in pieces of 16, the last one shorter. `full` tells a constant 16 to
/// the compiler.
template <class Body>
PENSTOCK_INLINE void for_lanes(Index n, Body&& body) {
  Index i = 0;
  for (; i + lanes <= n; i += lanes) body(i, lanes);
  if (i < n) body(i, n - i);
}
PENSTOCK_INLINE Floats load(const float* p, Index count, float fill = 0.0f) {
  return count == lanes ? load(p) : load_part(p, count, fill);
}
PENSTOCK_INLINE void store(float* p, const Floats& v, Index count) {
  if (count == lanes)
    store(p, v);
  else
    store_part(p, v, count);
}

PENSTOCK_INLINE const float* floats(const In& in) {
  if (in.dtype != DType::f32) [[unlikely]]
    throw_wrong_dtype(DType::f32, in.dtype);
  return static_cast<const float*>(in.data);
}
PENSTOCK_INLINE float* floats(const Out& out) {
  if (out.dtype != DType::f32) [[unlikely]]
    throw_wrong_dtype(DType::f32, out.dtype);
  return static_cast<float*>(out.data);
}
PENSTOCK_INLINE double* doubles(const Out& out) {
  if (out.dtype != DType::f64) [[unlikely]]
    throw_wrong_dtype(DType::f64, out.dtype);
  return static_cast<double*>(out.data);
}
PENSTOCK_INLINE const std::int32_t* int32s(const In& in) {
  if (in.dtype != DType::i32) [[unlikely]]
    throw_wrong_dtype(DType::i32, in.dtype);
  return static_cast<const std::int32_t*>(in.data);
}
PENSTOCK_INLINE const std::int64_t* int64s(const In& in) {
  if (in.dtype != DType::i64) [[unlikely]]
    throw_wrong_dtype(DType::i64, in.dtype);
  return static_cast<const std::int64_t*>(in.data);
}

/// Elements of a piece of work that one task of the pool gets.
inline constexpr Index piece = 32768;

/// Rows that one task gets: about a piece, by the length of a row alone.
PENSTOCK_INLINE Index rows_per_task(Index cols) { return cols >= piece ? 1 : piece / (cols > 0 ? cols : 1); }

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
