// GELU, see kernels/gelu.h.
#include "kernels/gelu.h"

#include "kernels/cpu/isa/vector_math.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

/// A form gives its share s(x), with gelu(x) = x s(x), and the slope of gelu.
///
/// x/2 (1 + tanh u) = x / (1 + e^-2u) with u = sqrt(2/pi) (x + 0.044715 x^3): nothing cancels for negative x.
/// Beyond +-12 the sigmoid is exactly 0 or 1 in fp32; clamping there keeps x^3 finite.
struct TanhForm {
  static constexpr float limit = 12.0f;
  static constexpr float two_root_two_over_pi = 1.5957691216057308f;
  static constexpr float cubic = 0.044715f;

  static PENSTOCK_INLINE Floats share(const Floats& x) {
    const Floats slope =
        multiply_add(splat(-two_root_two_over_pi * cubic), x * x, splat(-two_root_two_over_pi));
    const Floats minus_two_u = x * slope;
    return splat(1.0f) / (splat(1.0f) + exponential(minus_two_u));
  }
  /// s + x s (1 - s) 2u'
  static PENSTOCK_INLINE Floats slope(const Floats& x) {
    const Floats s = share(x);
    const Floats two_u_slope =
        splat(two_root_two_over_pi) + splat(3.0f * two_root_two_over_pi * cubic) * x * x;
    return s + x * s * (splat(1.0f) - s) * two_u_slope;
  }
};

/// The share is the normal distribution function, Phi(x). Its tail Phi(-|x|) = e^-t^2 erfcx(t) / 2 with
/// t = |x| / sqrt(2) keeps its relative precision; the other side is 1 minus that. With w = 1 / (1 + 0.3 t),
/// erfcx(t) = w q(w), q of degree 8 through the Chebyshev nodes of 0 <= t <= 9.5 (relative error 2.4e-8).
/// Beyond 13.4 Phi is exactly 0 or 1 in fp32.
struct ErfForm {
  static constexpr float limit = 13.4f;

  struct Tail {
    Floats gauss, tail;  // e^(-x^2/2), Phi(-|x|)
  };
  static PENSTOCK_INLINE Tail tail_of(const Floats& x) {
    const Floats a = x < Floats{} ? -x : x;
    const Floats w = splat(1.0f) / multiply_add(a, splat(0.212132034f), splat(1.0f));
    Floats q = splat(-0.130492815547f);
    q = multiply_add(q, w, splat(0.490571598079f));
    q = multiply_add(q, w, splat(-0.523314656308f));
    q = multiply_add(q, w, splat(0.561246202175f));
    q = multiply_add(q, w, splat(-0.104712141097f));
    q = multiply_add(q, w, splat(0.219567114848f));
    q = multiply_add(q, w, splat(0.147045419084f));
    q = multiply_add(q, w, splat(0.170914156259f));
    q = multiply_add(q, w, splat(0.169175102608f));
    const Floats gauss = exponential(splat(-0.5f) * a * a);
    return {gauss, splat(0.5f) * gauss * (w * q)};
  }
  static PENSTOCK_INLINE Floats side(const Floats& x, const Floats& tail) {
    return x < Floats{} ? tail : splat(1.0f) - tail;
  }

  static PENSTOCK_INLINE Floats share(const Floats& x) { return side(x, tail_of(x).tail); }
  /// Phi(x) + x e^(-x^2/2) / sqrt(2 pi)
  static PENSTOCK_INLINE Floats slope(const Floats& x) {
    const Tail t = tail_of(x);
    return multiply_add(x * t.gauss, splat(0.3989422804f), side(x, t.tail));
  }
};

/// Into +-limit; NaN stays.
PENSTOCK_INLINE Floats clamped(const Floats& x, float limit) {
  const Floats y = x < splat(-limit) ? splat(-limit) : x;
  return y > splat(limit) ? splat(limit) : y;
}

/// Calls body(element, column, count) for vectors of the elements of (rows, cols), rows cut into tasks;
/// without a bias the matrix is one long row.
template <class Body>
PENSTOCK_INLINE void for_matrix(Stream& stream, Index rows, Index cols, bool bias, Body body) {
  if (!bias) {
    stream.pool().parallel_ranges(rows * cols, piece, [=](Index begin, Index end) {
      for_lanes(
          end - begin, [&](Index i, Index count)
                           __attribute__((always_inline)) { body(begin + i, Index{0}, count); });
    });
    return;
  }
  stream.pool().parallel_ranges(rows, rows_per_task(cols), [=](Index begin, Index end) {
    for (Index row = begin; row < end; ++row)
      for_lanes(
          cols, [&](Index i, Index count) __attribute__((always_inline)) { body(row * cols + i, i, count); });
  });
}

template <class Form, class T>
void forward(Stream& stream, Index rows, Index cols, const T* x, const T* bias, T* y) {
  for_matrix(
      stream, rows, cols, bias, [=](Index i, Index column, Index count) __attribute__((always_inline)) {
        Floats v = load(x + i, count);
        if (bias) v += load(bias + column, count);
        store(y + i, v * Form::share(clamped(v, Form::limit)), count);
      });
}

template <class Form, class T>
void backward(Stream& stream, Index rows, Index cols, const T* x, const T* bias, const T* dy, T* dx) {
  for_matrix(
      stream, rows, cols, bias, [=](Index i, Index column, Index count) __attribute__((always_inline)) {
        Floats v = load(x + i, count);
        if (bias) v += load(bias + column, count);
        store(dx + i, load(dy + i, count) * Form::slope(clamped(v, Form::limit)), count);
      });
}

template <class Form, class T>
void backward_bias(Stream& stream, Index rows, Index cols, const T* x, const T* bias, const T* dy,
                   bool accumulate, float* dbias) {
  constexpr Index strip = 4 * lanes < 64 ? 64 : 4 * lanes;  // columns of a task
  stream.pool().parallel_ranges(cols, strip, [=](Index begin, Index end) {
    double sums[strip] = {};
    float products[strip];
    const Index width = end - begin;
    for (Index row = 0; row < rows; ++row) {
      const Index first = row * cols + begin;
      for_lanes(
          width, [&](Index i, Index count) __attribute__((always_inline)) {
            Floats v = load(x + first + i, count);
            if (bias) v += load(bias + begin + i, count);
            store(products + i, load(dy + first + i, count) * Form::slope(clamped(v, Form::limit)), count);
          });
      for (Index i = 0; i < width; ++i) sums[i] += static_cast<double>(products[i]);
    }
    for (Index i = 0; i < width; ++i) {
      const auto sum = static_cast<float>(sums[i]);
      dbias[begin + i] = accumulate ? dbias[begin + i] + sum : sum;
    }
  });
}

}  // namespace

void gelu_forward(Stream& stream, GeluForm form, Index rows, Index cols, In x, In bias, Out y) {
  for_storage(x.dtype, [&]<class T>() {
    const auto run = form == GeluForm::tanh ? forward<TanhForm, T> : forward<ErfForm, T>;
    run(stream, rows, cols, values<T>(x), values<T>(bias), values<T>(y));
  });
}

void gelu_backward(Stream& stream, GeluForm form, Index rows, Index cols, In x, In bias, In dy, Out dx) {
  for_storage(x.dtype, [&]<class T>() {
    const auto run = form == GeluForm::tanh ? backward<TanhForm, T> : backward<ErfForm, T>;
    run(stream, rows, cols, values<T>(x), values<T>(bias), values<T>(dy), values<T>(dx));
  });
}

void gelu_backward_bias(Stream& stream, GeluForm form, Index rows, Index cols, In x, In bias, In dy,
                        bool accumulate, Out dbias) {
  for_storage(x.dtype, [&]<class T>() {
    const auto run = form == GeluForm::tanh ? backward_bias<TanhForm, T> : backward_bias<ErfForm, T>;
    run(stream, rows, cols, values<T>(x), values<T>(bias), values<T>(dy), accumulate, values<float>(dbias));
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
