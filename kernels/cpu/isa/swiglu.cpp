// SwiGLU, see kernels/swiglu.h.
#include "kernels/swiglu.h"

#include "kernels/cpu/isa/vector_math.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

/// 1 / (1 + e^-x): 0 and 1 at the ends, as e^-x becomes infinity or 0 there; NaN for NaN.
PENSTOCK_INLINE Floats sigmoid(const Floats& x) { return splat(1.0f) / (splat(1.0f) + exponential(-x)); }

}  // namespace

void swiglu_forward(Stream& stream, Index n, In gate, In up, Out y) {
  for_storage(gate.dtype, [&]<class T>() {
    const T* pgate = values<T>(gate);
    const T* pup = values<T>(up);
    T* py = values<T>(y);
    stream.pool().parallel_ranges(n, piece, [=](Index begin, Index end) {
      for_lanes(
          end - begin, [&](Index i, Index count) __attribute__((always_inline)) {
            const Floats g = load(pgate + begin + i, count);
            store(py + begin + i, g * sigmoid(g) * load(pup + begin + i, count), count);
          });
    });
  });
}

void swiglu_backward(Stream& stream, Index n, In gate, In up, In dy, Out dgate, Out dup) {
  for_storage(gate.dtype, [&]<class T>() {
    const T* pgate = values<T>(gate);
    const T* pup = values<T>(up);
    const T* pdy = values<T>(dy);
    T* pdgate = values<T>(dgate);
    T* pdup = values<T>(dup);
    stream.pool().parallel_ranges(n, piece, [=](Index begin, Index end) {
      for_lanes(
          end - begin, [&](Index i, Index count) __attribute__((always_inline)) {
            const Floats g = load(pgate + begin + i, count);
            const Floats grad = load(pdy + begin + i, count);
            const Floats s = sigmoid(g);
            if (pdup) store(pdup + begin + i, grad * (g * s), count);
            if (pdgate) {
              // silu' = s + g s (1 - s)
              const Floats slope = multiply_add(g * s, splat(1.0f) - s, s);
              store(pdgate + begin + i, grad * load(pup + begin + i, count) * slope, count);
            }
          });
    });
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
