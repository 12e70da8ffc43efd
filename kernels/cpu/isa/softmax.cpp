// Softmax and log-softmax over rows, see kernels/softmax.h.
#include "kernels/softmax.h"

#include "kernels/cpu/isa/vector_math.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

constexpr float infinity = __builtin_inff();

/// What is taken from every element before the exponential: the largest, 0 where all are -infinity. (A NaN
/// may hide the largest; the sum is NaN then all the same.)
float row_shift(const float* row, Index n) {
  Floats top = splat(-infinity);
  for_lanes(
      n, [&](Index i, Index count)
             __attribute__((always_inline)) { top = larger(top, load(row + i, count, -infinity)); });
  const float highest = maximum(top);
  return highest == -infinity ? 0.0f : highest;
}

/// Sum of exp(row - shift); the exponentials are written to `out` where it is given. Chains of 64 additions
/// in fp32, their sums in double.
double exponential_sum(const float* row, Index n, float shift, float* out) {
  constexpr Index stretch = 64 * lanes;
  double total = 0;
  for (Index begin = 0; begin < n; begin += stretch) {
    Floats part{};
    for_lanes(
        n - begin < stretch ? n - begin : stretch, [&](Index i, Index count) __attribute__((always_inline)) {
          const Floats e = exponential(load(row + begin + i, count, -infinity) - splat(shift));
          if (out) store(out + begin + i, e, count);
          part += e;
        });
    total += static_cast<double>(sum(part));
  }
  return total;
}

bool all_masked(const float* y, Index n) {
  Index i = 0;
  while (i < n && y[i] == -infinity) ++i;
  return i == n;
}

}  // namespace

void softmax_forward(Stream& stream, Index rows, Index cols, In x, Out y) {
  const float* px = floats(x);
  float* py = floats(y);
  stream.pool().parallel_ranges(rows, rows_per_task(cols), [=](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const float* in = px + row * cols;
      float* out = py + row * cols;
      const double total = exponential_sum(in, cols, row_shift(in, cols), out);
      const float factor = total == 0 ? 0.0f : static_cast<float>(1 / total);
      for_lanes(
          cols, [&](Index i, Index count) __attribute__((always_inline)) {
            store(out + i, splat(factor) * load(out + i, count), count);
          });
    }
  });
}

void softmax_backward(Stream& stream, Index rows, Index cols, In y, In dy, Out dx) {
  const float* py = floats(y);
  const float* pdy = floats(dy);
  float* pdx = floats(dx);
  stream.pool().parallel_ranges(rows, rows_per_task(cols), [=](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const float* p = py + row * cols;
      const float* grad = pdy + row * cols;
      float* out = pdx + row * cols;
      Doubles low{}, high{};
      for_lanes(
          cols, [&](Index i, Index count) __attribute__((always_inline)) {
            const DoublePair a = load_double(p + i, count), b = load_double(grad + i, count);
            low += a.low * b.low;
            high += a.high * b.high;
          });
      const auto mean = static_cast<float>(sum(low + high));
      for_lanes(
          cols, [&](Index i, Index count) __attribute__((always_inline)) {
            store(out + i, load(p + i, count) * (load(grad + i, count) - splat(mean)), count);
          });
    }
  });
}

void log_softmax_forward(Stream& stream, Index rows, Index cols, In x, Out y) {
  const float* px = floats(x);
  float* py = floats(y);
  stream.pool().parallel_ranges(rows, rows_per_task(cols), [=](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const float* in = px + row * cols;
      float* out = py + row * cols;
      const float shift = row_shift(in, cols);
      const double total = exponential_sum(in, cols, shift, nullptr);
      const float log_total = total == 0 ? 0.0f : static_cast<float>(__builtin_log(total));
      for_lanes(
          cols, [&](Index i, Index count) __attribute__((always_inline)) {
            store(out + i, load(in + i, count) - splat(shift) - splat(log_total), count);
          });
    }
  });
}

void log_softmax_backward(Stream& stream, Index rows, Index cols, In y, In dy, Out dx) {
  const float* py = floats(y);
  const float* pdy = floats(dy);
  float* pdx = floats(dx);
  stream.pool().parallel_ranges(rows, rows_per_task(cols), [=](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const float* p = py + row * cols;
      const float* grad = pdy + row * cols;
      float* out = pdx + row * cols;
      if (all_masked(p, cols)) {
        std::memset(out, 0, static_cast<std::size_t>(cols) * sizeof(float));
        continue;
      }
      Doubles low{}, high{};
      for_lanes(
          cols, [&](Index i, Index count) __attribute__((always_inline)) {
            const DoublePair v = load_double(grad + i, count);
            low += v.low;
            high += v.high;
          });
      const auto total = static_cast<float>(sum(low + high));
      for_lanes(
          cols, [&](Index i, Index count) __attribute__((always_inline)) {
            const Floats e = exponential(load(p + i, count));
            store(out + i, multiply_add(-e, splat(total), load(grad + i, count)), count);
          });
    }
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
