// A register full of floats. The bodies in this folder are written once on the compiler's vector types and
// compiled for each instruction set: 16 lanes with AVX-512, 8 with AVX2, 4 with SSE2 or NEON. The tail of a
// row goes through the same arithmetic in a padded vector, so that an element's bits do not depend on where
// in a row it stands.
//
// Nothing here may be shared between the copies: all of it lies in the namespace of the instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/checks.h"
#include "kernels/kernel.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are returned by inlined functions only

#define PENSTOCK_INLINE inline __attribute__((always_inline))

namespace penstock::kernels::cpu::PENSTOCK_ISA {

// Bytes of a vector register.
#if defined(__AVX512F__)
#define PENSTOCK_VECTOR 64
#elif defined(__AVX__)
#define PENSTOCK_VECTOR 32
#else
#define PENSTOCK_VECTOR 16
#endif

inline constexpr Index lanes = PENSTOCK_VECTOR / 4;

using Floats = float __attribute__((vector_size(PENSTOCK_VECTOR)));
using Ints = std::int32_t __attribute__((vector_size(PENSTOCK_VECTOR)));
using Words = std::uint32_t __attribute__((vector_size(PENSTOCK_VECTOR)));
using HalfFloats = float __attribute__((vector_size(PENSTOCK_VECTOR / 2)));
using Doubles = double __attribute__((vector_size(PENSTOCK_VECTOR)));  // half as many

/// The value in every lane. (x - 0 is x, for every x.)
PENSTOCK_INLINE Floats splat(float value) { return value - Floats{}; }
PENSTOCK_INLINE Ints splat_int(std::int32_t value) { return value - Ints{}; }
/// first, first + 1, ...
PENSTOCK_INLINE Ints iota(std::int32_t first) {
  Ints v;
  for (int i = 0; i < lanes; ++i) v[i] = i;
  return v + first;
}

PENSTOCK_INLINE Floats load(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
PENSTOCK_INLINE void store(float* p, const Floats& v) { std::memcpy(p, &v, sizeof v); }

/// `count` floats, at most a vector; `fill` in the lanes after them.
PENSTOCK_INLINE Floats load(const float* p, Index count, float fill = 0.0f) {
  if (count == lanes) return load(p);
  Floats v = splat(fill);
  for (Index i = 0; i < count; ++i) v[i] = p[i];
  return v;
}
PENSTOCK_INLINE void store(float* p, const Floats& v, Index count) {
  if (count == lanes) return store(p, v);
  for (Index i = 0; i < count; ++i) p[i] = v[i];
}

/// The same floats as doubles, in two halves; 0 in the lanes after `count`.
struct DoublePair {
  Doubles low, high;
};
PENSTOCK_INLINE DoublePair load_double(const float* p, Index count) {
  HalfFloats half[2] = {};
  if (count == lanes)
    std::memcpy(&half, p, sizeof half);
  else
    for (Index i = 0; i < count; ++i) half[i / (lanes / 2)][i % (lanes / 2)] = p[i];
  return {__builtin_convertvector(half[0], Doubles), __builtin_convertvector(half[1], Doubles)};
}

/// a * b + c, rounded once where the processor has it. It is asked for by name: whether a compiler fuses an
/// expression of its own accord may differ between a loop's body and its tail.
PENSTOCK_INLINE Floats multiply_add(const Floats& a, const Floats& b, const Floats& c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

PENSTOCK_INLINE Floats select(const Ints& mask, const Floats& yes, const Floats& no) {
  return mask ? yes : no;
}
/// The larger; NaN in `b` stays, and one in `a` gives `b`.
PENSTOCK_INLINE Floats larger(const Floats& a, const Floats& b) { return a > b ? a : b; }

/// Sum over the lanes, always in the same tree.
template <class Vector>
PENSTOCK_INLINE auto sum(const Vector& vector) {
  Vector v = vector;
  for (auto width = static_cast<int>(sizeof(v) / sizeof(v[0])) / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) v[i] += v[i + width];
  return v[0];
}
/// Largest lane. What it gives for lanes that are NaN is not defined.
PENSTOCK_INLINE float maximum(const Floats& vector) {
  Floats v = vector;
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) v[i] = v[i] > v[i + width] ? v[i] : v[i + width];
  return v[0];
}

/// Calls body(offset, count) for 0..n-1 in pieces of 16, the last one shorter. `full` tells a constant 16 to
/// the compiler.
template <class Body>
PENSTOCK_INLINE void for_lanes(Index n, Body&& body) {
  Index i = 0;
  for (; i + lanes <= n; i += lanes) body(i, lanes);
  if (i < n) body(i, n - i);
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
