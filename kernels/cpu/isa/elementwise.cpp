// Elementwise kernels, see kernels/elementwise.h.
#include "kernels/elementwise.h"

#include "kernels/cpu/isa/vector_math.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {

void add(Stream& stream, Index n, In a, In b, Out y) {
  const float* pa = floats(a);
  const float* pb = floats(b);
  float* py = floats(y);
  stream.pool().parallel_ranges(n, piece, [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) py[i] = pa[i] + pb[i];
  });
}

void add_into(Stream& stream, Index n, In x, Out y) {
  const float* px = floats(x);
  float* py = floats(y);
  stream.pool().parallel_ranges(n, piece, [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) py[i] += px[i];
  });
}

void scale(Stream& stream, Index n, In scale, In x, Out y) {
  const float* px = floats(x);
  const float factor = *floats(scale);
  float* py = floats(y);
  stream.pool().parallel_ranges(n, piece, [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) py[i] = factor * px[i];
  });
}

// x/2 (1 + tanh u) = x / (1 + e^-2u) with u = sqrt(2/pi) (x + 0.044715 x^3): nothing cancels for negative x.
// Beyond
// +-12 the sigmoid is exactly 0 or 1 in fp32; clamping there keeps x^3 finite.
namespace {

constexpr float two_root_two_over_pi = 1.5957691216057308f;
constexpr float cubic = 0.044715f;

PENSTOCK_INLINE Floats clamped(const Floats& x) {
  const Floats y = x < splat(-12.0f) ? splat(-12.0f) : x;
  return y > splat(12.0f) ? splat(12.0f) : y;
}

PENSTOCK_INLINE Floats gelu_sigmoid(const Floats& x) {
  const Floats slope =
      multiply_add(splat(-two_root_two_over_pi * cubic), x * x, splat(-two_root_two_over_pi));
  const Floats minus_two_u = x * slope;
  return splat(1.0f) / (splat(1.0f) + exponential(minus_two_u));
}

}  // namespace

void gelu_forward(Stream& stream, Index n, In x, Out y) {
  const float* px = floats(x);
  float* py = floats(y);
  stream.pool().parallel_ranges(n, piece, [=](Index begin, Index end) {
    for_lanes(
        end - begin, [&](Index i, Index count) __attribute__((always_inline)) {
          const Floats v = load(px + begin + i, count);
          store(py + begin + i, v * gelu_sigmoid(clamped(v)), count);
        });
  });
}

void gelu_backward(Stream& stream, Index n, In x, In dy, Out dx) {
  const float* px = floats(x);
  const float* pdy = floats(dy);
  float* pdx = floats(dx);
  stream.pool().parallel_ranges(n, piece, [=](Index begin, Index end) {
    for_lanes(
        end - begin, [&](Index i, Index count) __attribute__((always_inline)) {
          // y' = s + x s (1 - s) 2u'
          const Floats v = clamped(load(px + begin + i, count));
          const Floats s = gelu_sigmoid(v);
          const Floats two_u_slope =
              splat(two_root_two_over_pi) + splat(3.0f * two_root_two_over_pi * cubic) * v * v;
          const Floats slope = s + v * s * (splat(1.0f) - s) * two_u_slope;
          store(pdx + begin + i, load(pdy + begin + i, count) * slope, count);
        });
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
