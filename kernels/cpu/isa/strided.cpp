// Elementwise kernels of two and three operands, see kernels/strided.h.
#include "kernels/cpu/isa/strided_loop.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

const std::uint8_t* bytes_of(const In& in) {
  if (in.dtype != DType::u8) throw_wrong_dtype(DType::u8, in.dtype);
  return static_cast<const std::uint8_t*>(in.data);
}

std::uint8_t* bytes_of(const Out& out) {
  if (out.dtype != DType::u8) throw_wrong_dtype(DType::u8, out.dtype);
  return static_cast<std::uint8_t*>(out.data);
}

/// What is compared: a number itself, a stored one widened.
template <class T>
PENSTOCK_INLINE auto number(T value) {
  if constexpr (std::is_same_v<T, bf16>)
    return widened(value);
  else
    return value;
}

template <class T, class Predicate>
void compare_all(Stream& stream, const StridedShape& s, const void* a, const void* b, std::uint8_t* y,
                 Predicate&& holds) {
  const T* pa = static_cast<const T*>(a);
  const T* pb = static_cast<const T*>(b);
  const Index step_a = s.strides[0][s.rank - 1], step_b = s.strides[1][s.rank - 1];
  for_runs<2>(
      stream, s, [&](Index to, Index run, const Index* offset) __attribute__((always_inline)) {
        const T* from_a = pa + offset[0];
        const T* from_b = pb + offset[1];
        if (step_a == 1 && step_b == 1)
          for (Index i = 0; i < run; ++i) y[to + i] = holds(number(from_a[i]), number(from_b[i]));
        else
          for (Index i = 0; i < run; ++i)
            y[to + i] = holds(number(from_a[i * step_a]), number(from_b[i * step_b]));
      });
}

template <class T>
void compare_as(Stream& stream, Comparison op, const StridedShape& s, const void* a, const void* b,
                std::uint8_t* y) {
  switch (op) {
    case Comparison::equal:
      return compare_all<T>(stream, s, a, b, y, [](auto p, auto q) { return p == q; });
    case Comparison::not_equal:
      return compare_all<T>(stream, s, a, b, y, [](auto p, auto q) { return p != q; });
    case Comparison::less:
      return compare_all<T>(stream, s, a, b, y, [](auto p, auto q) { return p < q; });
    case Comparison::less_equal:
      return compare_all<T>(stream, s, a, b, y, [](auto p, auto q) { return p <= q; });
    case Comparison::greater:
      return compare_all<T>(stream, s, a, b, y, [](auto p, auto q) { return p > q; });
    case Comparison::greater_equal:
      return compare_all<T>(stream, s, a, b, y, [](auto p, auto q) { return p >= q; });
  }
}

}  // namespace

void binary(Stream& stream, BinaryOp op, const StridedShape& shape, In a, In b, Out y) {
  for_storage(a.dtype, [&]<class T>() {
    const T* pa = values<T>(a);
    const T* pb = values<T>(b);
    T* py = values<T>(y);
    switch (op) {
      case BinaryOp::sum:
        map(stream, shape, pa, pb, py, [](const Floats& p, const Floats& q, Index) { return p + q; });
        return;
      case BinaryOp::difference:
        map(stream, shape, pa, pb, py, [](const Floats& p, const Floats& q, Index) { return p - q; });
        return;
      case BinaryOp::product:
        map(stream, shape, pa, pb, py, [](const Floats& p, const Floats& q, Index) { return p * q; });
        return;
      case BinaryOp::quotient:
        map(stream, shape, pa, pb, py, [](const Floats& p, const Floats& q, Index) { return p / q; });
        return;
    }
  });
}

void divide_backward(Stream& stream, const StridedShape& shape, In dy, In a, In b, Out db) {
  for_storage(dy.dtype, [&]<class T>() {
    const T* pdy = values<T>(dy);
    const T* pa = values<T>(a);
    const T* pb = values<T>(b);
    T* pdb = values<T>(db);
    const int last = shape.rank - 1;
    const Index step_dy = shape.strides[0][last], step_a = shape.strides[1][last],
                step_b = shape.strides[2][last];
    for_runs<3>(
        stream, shape, [&](Index to, Index run, const Index* offset) __attribute__((always_inline)) {
          for_lanes(
              run, [&](Index i, Index count) __attribute__((always_inline)) {
                const Floats grad = load_strided(pdy + offset[0] + i * step_dy, step_dy, count);
                const Floats top = load_strided(pa + offset[1] + i * step_a, step_a, count);
                const Floats bottom = load_strided(pb + offset[2] + i * step_b, step_b, count);
                store(pdb + to + i, -(grad / bottom) * (top / bottom), count);
              });
        });
  });
}

void compare(Stream& stream, Comparison op, const StridedShape& shape, In a, In b, Out y) {
  if (a.dtype != b.dtype) throw_wrong_dtype(a.dtype, b.dtype);
  std::uint8_t* py = bytes_of(y);
  switch (a.dtype) {
    case DType::f32:
      return compare_as<float>(stream, op, shape, a.data, b.data, py);
    case DType::bf16:
      return compare_as<bf16>(stream, op, shape, a.data, b.data, py);
    case DType::i32:
      return compare_as<std::int32_t>(stream, op, shape, a.data, b.data, py);
    case DType::i64:
      return compare_as<std::int64_t>(stream, op, shape, a.data, b.data, py);
    case DType::u8:
      return compare_as<std::uint8_t>(stream, op, shape, a.data, b.data, py);
    default:
      throw_no_such_dtype("compare", a.dtype);
  }
}

void select(Stream& stream, const StridedShape& shape, In condition, In a, In b, Out y) {
  const std::uint8_t* pcondition = bytes_of(condition);
  for_storage(y.dtype, [&]<class T>() {
    const T* pa = values<T>(a);
    const T* pb = values<T>(b);
    T* py = values<T>(y);
    const int last = shape.rank - 1;
    const Index step = shape.strides[0][last], step_a = shape.strides[1][last],
                step_b = shape.strides[2][last];
    for_runs<3>(
        stream, shape, [&](Index to, Index run, const Index* offset) __attribute__((always_inline)) {
          for_lanes(
              run, [&](Index i, Index count) __attribute__((always_inline)) {
                const Ints chosen = load_strided(pcondition + offset[0] + i * step, step, count) != Floats{};
                const Floats yes = pa ? load_strided(pa + offset[1] + i * step_a, step_a, count) : Floats{};
                const Floats no = pb ? load_strided(pb + offset[2] + i * step_b, step_b, count) : Floats{};
                store(py + to + i, chosen ? yes : no, count);
              });
        });
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
