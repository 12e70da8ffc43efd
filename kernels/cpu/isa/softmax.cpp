// Softmax and log-softmax over rows, see kernels/softmax.h.
#include "kernels/softmax.h"

#include "kernels/cpu/isa/rows.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

/// What is taken from every element before the exponential: the largest, 0 where all are -infinity. (Where a
/// NaN hides the largest the sum is NaN all the same.)
template <class T>
float row_shift(const T* row, Index n) {
  const float highest = row_largest(row, n);
  return highest == -infinity ? 0.0f : highest;
}

template <class T>
bool all_masked(const T* y, Index n) {
  Index i = 0;
  while (i < n && widened(y[i]) == -infinity) ++i;
  return i == n;
}

}  // namespace

void softmax_forward(Stream& stream, Index rows, Index cols, In x, Out y) {
  for_storage(x.dtype, [&]<class T>() {
    const T* px = values<T>(x);
    T* py = values<T>(y);
    stream.pool().parallel_ranges(rows, rows_per_task(cols), [=](Index begin, Index end) {
      for (Index row = begin; row < end; ++row) {
        const T* in = px + row * cols;
        T* out = py + row * cols;
        const float shift = row_shift(in, cols);
        // fp32 keeps the exponentials where the result goes; bf16 would round them twice, and takes them
        // again.
        constexpr bool keep = std::is_same_v<T, float>;
        const double total = exponential_sum(
            in, cols, shift, [&](Index i, const Floats& e, Index count) __attribute__((always_inline)) {
              if constexpr (keep) store(out + i, e, count);
            });
        const float factor = total == 0 ? 0.0f : static_cast<float>(1 / total);
        for_lanes(
            cols, [&](Index i, Index count) __attribute__((always_inline)) {
              if constexpr (keep)
                store(out + i, splat(factor) * load(out + i, count), count);
              else
                store(out + i, splat(factor) * exponential(load(in + i, count) - splat(shift)), count);
            });
      }
    });
  });
}

void softmax_backward(Stream& stream, Index rows, Index cols, In y, In dy, Out dx) {
  for_storage(y.dtype, [&]<class T>() {
    const T* py = values<T>(y);
    const T* pdy = values<T>(dy);
    T* pdx = values<T>(dx);
    stream.pool().parallel_ranges(rows, rows_per_task(cols), [=](Index begin, Index end) {
      for (Index row = begin; row < end; ++row) {
        const T* p = py + row * cols;
        const T* grad = pdy + row * cols;
        T* out = pdx + row * cols;
        const auto mean = static_cast<float>(row_product(p, grad, cols));
        for_lanes(
            cols, [&](Index i, Index count) __attribute__((always_inline)) {
              store(out + i, load(p + i, count) * (load(grad + i, count) - splat(mean)), count);
            });
      }
    });
  });
}

void log_softmax_forward(Stream& stream, Index rows, Index cols, In x, Out y) {
  for_storage(x.dtype, [&]<class T>() {
    const T* px = values<T>(x);
    T* py = values<T>(y);
    stream.pool().parallel_ranges(rows, rows_per_task(cols), [=](Index begin, Index end) {
      for (Index row = begin; row < end; ++row) {
        const T* in = px + row * cols;
        T* out = py + row * cols;
        const float shift = row_shift(in, cols);
        const double total = exponential_sum(in, cols, shift);
        const float log_total = total == 0 ? 0.0f : static_cast<float>(__builtin_log(total));
        for_lanes(
            cols, [&](Index i, Index count) __attribute__((always_inline)) {
              store(out + i, load(in + i, count) - splat(shift) - splat(log_total), count);
            });
      }
    });
  });
}

void log_softmax_backward(Stream& stream, Index rows, Index cols, In y, In dy, Out dx) {
  for_storage(y.dtype, [&]<class T>() {
    const T* py = values<T>(y);
    const T* pdy = values<T>(dy);
    T* pdx = values<T>(dx);
    stream.pool().parallel_ranges(rows, rows_per_task(cols), [=](Index begin, Index end) {
      for (Index row = begin; row < end; ++row) {
        const T* p = py + row * cols;
        const T* grad = pdy + row * cols;
        T* out = pdx + row * cols;
        if (all_masked(p, cols)) {
          zero(out, cols);
          continue;
        }
        const auto total = static_cast<float>(row_sum(grad, cols));
        for_lanes(
            cols, [&](Index i, Index count) __attribute__((always_inline)) {
              const Floats e = exponential(load(p + i, count));
              store(out + i, multiply_add(-e, splat(total), load(grad + i, count)), count);
            });
      }
    });
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
