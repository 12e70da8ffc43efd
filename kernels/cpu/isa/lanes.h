// A register full of floats. The bodies in this folder are written once on the compiler's vector types and
// compiled for each instruction set: 16 lanes with AVX-512, 8 with AVX2, 4 with SSE2 or NEON. The tail of a
// row goes through the same arithmetic in a padded vector, so that an element's bits do not depend on where
// in a row it stands.
//
// Nothing here may be shared between the copies: all of it lies in the namespace of the instruction set.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

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
using Shorts = std::uint16_t __attribute__((vector_size(PENSTOCK_VECTOR / 2)));  // as many as floats
using Doubles = double __attribute__((vector_size(PENSTOCK_VECTOR)));            // half as many

/// The value in every lane. (x - 0 is x, for every x.)
PENSTOCK_INLINE Floats splat(float value) { return value - Floats{}; }
PENSTOCK_INLINE Ints splat_int(std::int32_t value) { return value - Ints{}; }
/// first, first + 1, ...
PENSTOCK_INLINE Ints iota(std::int32_t first) {
  Ints v;
  for (int i = 0; i < lanes; ++i) v[i] = i;
  return v + first;
}

/// A stored number as the float that it is computed with, and back, rounded to the nearest, ties to even.
/// (The conversions of core/dtype.h are not for this folder: their one copy may be of a newer instruction
/// set.)
PENSTOCK_INLINE float widened(float value) { return value; }
PENSTOCK_INLINE float widened(bf16 value) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(value.bits) << 16);
}
template <class T>
PENSTOCK_INLINE T narrowed(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    const auto u = __builtin_bit_cast(std::uint32_t, value);
    T result;
    result.bits = static_cast<std::uint16_t>(value != value ? (u >> 16) | 0x40u
                                                            : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    return result;
  }
}

PENSTOCK_INLINE Floats load(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
PENSTOCK_INLINE Floats load(const bf16* p) {
  Shorts v;
  std::memcpy(&v, p, sizeof v);
  return __builtin_bit_cast(Floats, __builtin_convertvector(v, Words) << 16);
}
PENSTOCK_INLINE void store(float* p, const Floats& v) { std::memcpy(p, &v, sizeof v); }
PENSTOCK_INLINE void store(bf16* p, const Floats& v) {
  const Words u = __builtin_bit_cast(Words, v);
  const Words rounded = v != v ? (u | 0x400000u) : u + 0x7fffu + ((u >> 16) & 1u);
  const Shorts high = __builtin_convertvector(rounded >> 16, Shorts);
  std::memcpy(static_cast<void*>(p), &high, sizeof high);
}

/// `count` numbers, at most a vector; `fill` in the lanes after them.
template <class T>
PENSTOCK_INLINE Floats load(const T* p, Index count, float fill = 0.0f) {
  if (count == lanes) return load(p);
  Floats v = splat(fill);
  for (Index i = 0; i < count; ++i) v[i] = widened(p[i]);
  return v;
}
template <class T>
PENSTOCK_INLINE void store(T* p, const Floats& v, Index count) {
  if (count == lanes) return store(p, v);
  for (Index i = 0; i < count; ++i) p[i] = narrowed<T>(v[i]);
}

/// n zeros.
template <class T>
PENSTOCK_INLINE void zero(T* p, Index n) {
  std::memset(static_cast<void*>(p), 0, static_cast<std::size_t>(n) * sizeof(T));
}

/// The same numbers as doubles, in two halves; 0 in the lanes after `count`.
struct DoublePair {
  Doubles low, high;
};
template <class T>
PENSTOCK_INLINE DoublePair load_double(const T* p, Index count) {
  const Floats v = load(p, count);
  HalfFloats half[2];
  std::memcpy(&half, &v, sizeof half);
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

/// Calls body(offset, count) for 0..n-1 a vector at a time, the last one shorter.
template <class Body>
PENSTOCK_INLINE void for_lanes(Index n, Body&& body) {
  Index i = 0;
  for (; i + lanes <= n; i += lanes) body(i, lanes);
  if (i < n) body(i, n - i);
}
/// The data of a kernel's argument, which must be of this element type.
template <class T>
PENSTOCK_INLINE const T* values(const In& in) {
  if (in.data && in.dtype != dtype_of<T>) [[unlikely]]
    throw_wrong_dtype(dtype_of<T>, in.dtype);
  return static_cast<const T*>(in.data);
}
template <class T>
PENSTOCK_INLINE T* values(const Out& out) {
  if (out.data && out.dtype != dtype_of<T>) [[unlikely]]
    throw_wrong_dtype(dtype_of<T>, out.dtype);
  return static_cast<T*>(out.data);
}

/// Calls body<T>() with the type that activations and weights are stored as: fp32 or bf16. Both are computed
/// with in fp32.
template <class Body>
PENSTOCK_INLINE void for_storage(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body.template operator()<float>();
    case DType::bf16:
      return body.template operator()<bf16>();
    default:
      throw_wrong_dtype(DType::f32, dtype);
  }
}

/// Elements of a piece of work that one task of the pool gets.
inline constexpr Index piece = 32768;

/// Rows that one task gets: about a piece, by the length of a row alone.
PENSTOCK_INLINE Index rows_per_task(Index cols) { return cols >= piece ? 1 : piece / (cols > 0 ? cols : 1); }

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
