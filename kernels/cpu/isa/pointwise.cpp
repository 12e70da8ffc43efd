// Functions of one operand and their slopes, see kernels/strided.h.
#include "kernels/cpu/isa/strided_loop.h"
#include "kernels/cpu/isa/vector_math.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

/// Lane by lane through the C library.
template <class Function>
PENSTOCK_INLINE Floats each_lane(const Floats& x, Index count, Function&& f) {
  Floats y{};
  for (Index i = 0; i < count; ++i) y[i] = f(x[i]);
  return y;
}

PENSTOCK_INLINE Floats minus_magnitude(const Floats& x) { return x < Floats{} ? x : -x; }

/// sigmoid(x) and 1 - sigmoid(x), each without cancellation: with e = exp(-|x|) they are 1 / (1 + e) and e /
/// (1 + e).
struct Sigmoid {
  Floats value, complement;
};
PENSTOCK_INLINE Sigmoid sigmoid_pair(const Floats& x) {
  const Floats one = splat(1.0f), e = exponential(minus_magnitude(x));
  const Floats large = one / (one + e), small = e / (one + e);
  const Ints negative = x < Floats{};
  return {negative ? small : large, negative ? large : small};
}

PENSTOCK_INLINE Floats power(const Floats& x, Index count, float exponent) {
  if (exponent == 1.0f) return x;
  if (exponent == 2.0f) return x * x;
  return each_lane(x, count, [=](float v) { return __builtin_powf(v, exponent); });
}

}  // namespace

void unary(Stream& stream, UnaryOp op, UnaryConstants constants, const StridedShape& shape, In x, Out y) {
  for_storage(x.dtype, [&]<class T>() {
    const T* px = values<T>(x);
    T* py = values<T>(y);
    const float alpha = constants.alpha, beta = constants.beta;
    switch (op) {
      case UnaryOp::affine:
        if (beta == 0.0f)
          map(stream, shape, px, py, [=](const Floats& v, Index) { return splat(alpha) * v; });
        else
          map(stream, shape, px, py,
              [=](const Floats& v, Index) { return multiply_add(splat(alpha), v, splat(beta)); });
        return;
      case UnaryOp::exponential:
        map(stream, shape, px, py, [](const Floats& v, Index) { return exponential(v); });
        return;
      case UnaryOp::logarithm:
        map(stream, shape, px, py, [](const Floats& v, Index count) {
          return each_lane(v, count, [](float s) { return __builtin_logf(s); });
        });
        return;
      case UnaryOp::hyperbolic_tangent:
        map(stream, shape, px, py, [](const Floats& v, Index count) {
          return each_lane(v, count, [](float s) { return __builtin_tanhf(s); });
        });
        return;
      case UnaryOp::square_root:
        map(stream, shape, px, py, [](const Floats& v, Index count) {
          return each_lane(v, count, [](float s) { return __builtin_sqrtf(s); });
        });
        return;
      case UnaryOp::power:
        map(stream, shape, px, py, [=](const Floats& v, Index count) { return power(v, count, alpha); });
        return;
      case UnaryOp::relu:
        map(stream, shape, px, py, [](const Floats& v, Index) { return v <= Floats{} ? Floats{} : v; });
        return;
      case UnaryOp::sigmoid:
        map(stream, shape, px, py, [](const Floats& v, Index) { return sigmoid_pair(v).value; });
        return;
      case UnaryOp::silu:
        map(stream, shape, px, py, [](const Floats& v, Index) { return v * sigmoid_pair(v).value; });
        return;
    }
  });
}

void unary_backward(Stream& stream, UnaryOp op, UnaryConstants constants, const StridedShape& shape, In saved,
                    In dy, Out dx) {
  for_storage(saved.dtype, [&]<class T>() {
    const T* s = values<T>(saved);
    const T* g = values<T>(dy);
    T* d = values<T>(dx);
    const float alpha = constants.alpha;
    switch (op) {
      case UnaryOp::affine:
        map(stream, shape, s, g, d,
            [=](const Floats&, const Floats& grad, Index) { return splat(alpha) * grad; });
        return;
      case UnaryOp::exponential:
        map(stream, shape, s, g, d, [](const Floats& y, const Floats& grad, Index) { return y * grad; });
        return;
      case UnaryOp::logarithm:
        map(stream, shape, s, g, d, [](const Floats& x, const Floats& grad, Index) { return grad / x; });
        return;
      case UnaryOp::hyperbolic_tangent:  // 4 s (1 - s) with s = sigmoid(2x): 1 - tanh^2 would cancel
        map(stream, shape, s, g, d, [](const Floats& x, const Floats& grad, Index) {
          const Sigmoid half = sigmoid_pair(splat(2.0f) * x);
          return splat(4.0f) * half.value * half.complement * grad;
        });
        return;
      case UnaryOp::square_root:
        map(stream, shape, s, g, d,
            [](const Floats& y, const Floats& grad, Index) { return splat(0.5f) * grad / y; });
        return;
      case UnaryOp::power:
        map(stream, shape, s, g, d, [=](const Floats& x, const Floats& grad, Index count) {
          if (alpha == 0.0f) return Floats{};
          if (alpha == 1.0f) return grad;
          return splat(alpha) * power(x, count, alpha - 1.0f) * grad;
        });
        return;
      case UnaryOp::relu:
        map(stream, shape, s, g, d,
            [](const Floats& x, const Floats& grad, Index) { return x <= Floats{} ? Floats{} : grad; });
        return;
      case UnaryOp::sigmoid:
        map(stream, shape, s, g, d, [](const Floats& x, const Floats& grad, Index) {
          const Sigmoid p = sigmoid_pair(x);
          return p.value * p.complement * grad;
        });
        return;
      case UnaryOp::silu:  // s + x s (1 - s)
        map(stream, shape, s, g, d, [](const Floats& x, const Floats& grad, Index) {
          const Sigmoid p = sigmoid_pair(x);
          return p.value * multiply_add(x, p.complement, splat(1.0f)) * grad;
        });
        return;
    }
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
