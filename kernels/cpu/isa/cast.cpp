// Conversion between element types, see kernels/cast.h.
#include "kernels/cast.h"

#include "kernels/cpu/isa/lanes.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

/// A stored value as the type that it is computed with: bf16 and fp16 as float, others as they are.
template <class T>
PENSTOCK_INLINE auto computed_with(T value) {
  if constexpr (std::is_same_v<T, bf16>)
    return widened(value);
  else if constexpr (std::is_same_v<T, f16>)
    return static_cast<float>(value);
  else
    return value;
}

/// The integers of To as a range of doubles: lowest <= v < beyond.
template <class To>
struct Range {
  static constexpr double lowest =
      std::is_signed_v<To> ? -static_cast<double>(To{1} << (8 * sizeof(To) - 2)) * 2 : 0;
  static constexpr double beyond =
      std::is_signed_v<To> ? static_cast<double>(To{1} << (8 * sizeof(To) - 2)) * 2 : 256.0;
};

template <class To, class From>
PENSTOCK_INLINE To integer_of(From value, Index place) {
  static_assert(std::is_same_v<To, std::uint8_t> || std::is_signed_v<To>);
  bool fits = true;
  if constexpr (std::is_floating_point_v<From>) {
    const auto v = static_cast<double>(value);
    fits = v >= Range<To>::lowest && v < Range<To>::beyond && __builtin_trunc(v) == v;
  } else {
    const auto v = static_cast<std::int64_t>(value);
    if constexpr (sizeof(To) < sizeof(From) || !std::is_signed_v<To>)
      fits = static_cast<std::int64_t>(static_cast<To>(v)) == v;
  }
  if (!fits) throw_inexact_cast(place, static_cast<double>(value), dtype_of<To>);
  return static_cast<To>(value);
}

template <class From, class To>
void cast_as(Stream& stream, Index n, const void* x, void* y) {
  const From* from = static_cast<const From*>(x);
  To* to = static_cast<To*>(y);
  stream.pool().parallel_ranges(n, piece, [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const auto value = computed_with(from[i]);
      if constexpr (std::is_integral_v<To>)
        to[i] = integer_of<To>(value, i);
      else if constexpr (std::is_same_v<To, bf16>)
        to[i] = narrowed<bf16>(static_cast<float>(value));
      else
        to[i] = static_cast<To>(static_cast<float>(value));
    }
  });
}

template <class From>
void cast_from(Stream& stream, Index n, const void* x, Out y) {
  switch (y.dtype) {
    case DType::f32:
      return cast_as<From, float>(stream, n, x, y.data);
    case DType::bf16:
      return cast_as<From, bf16>(stream, n, x, y.data);
    case DType::f16:
      return cast_as<From, f16>(stream, n, x, y.data);
    case DType::i32:
      return cast_as<From, std::int32_t>(stream, n, x, y.data);
    case DType::i64:
      return cast_as<From, std::int64_t>(stream, n, x, y.data);
    case DType::u8:
      return cast_as<From, std::uint8_t>(stream, n, x, y.data);
    case DType::f64:
      throw_no_such_dtype("cast", y.dtype);
  }
}

}  // namespace

void cast(Stream& stream, Index n, In x, Out y) {
  switch (x.dtype) {
    case DType::f32:
      return cast_from<float>(stream, n, x.data, y);
    case DType::bf16:
      return cast_from<bf16>(stream, n, x.data, y);
    case DType::f16:
      return cast_from<f16>(stream, n, x.data, y);
    case DType::i32:
      return cast_from<std::int32_t>(stream, n, x.data, y);
    case DType::i64:
      return cast_from<std::int64_t>(stream, n, x.data, y);
    case DType::u8:
      return cast_from<std::uint8_t>(stream, n, x.data, y);
    case DType::f64:  // a loss
      if (y.dtype != DType::f32) throw_no_such_dtype("cast", x.dtype);
      return cast_as<double, float>(stream, n, x.data, y.data);
  }
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
