// RMS normalisation, see kernels/norm.h.
#include <cmath>

#include "kernels/cpu/isa/rows.h"
#include "kernels/norm.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

/// out (cols) = the normalised `in`; gives 1 / root mean square.
template <class T>
PENSTOCK_INLINE float normalise_row(Index cols, float eps, const T* in, const T* gain, T* out) {
  Doubles low{}, high{};
  for_lanes(
      cols, [&](Index i, Index count) __attribute__((always_inline)) {
        const DoublePair v = load_double(in + i, count);
        low += v.low * v.low;
        high += v.high * v.high;
      });
  const double mean = sum(low + high) / static_cast<double>(cols);
  const auto r = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(eps)));
  for_lanes(
      cols, [&](Index i, Index count) __attribute__((always_inline)) {
        store(out + i, load(in + i, count) * splat(r) * load(gain + i, count), count);
      });
  return r;
}

}  // namespace

void rms_norm_forward(Stream& stream, Index rows, Index cols, float eps, In x, In gain, Out y, Out rstd) {
  for_storage(x.dtype, [&]<class T>() {
    const T* px = values<T>(x);
    const T* pgain = values<T>(gain);
    T* py = values<T>(y);
    float* prstd = values<float>(rstd);
    stream.pool().parallel_ranges(rows, rows_per_task(cols), [=](Index begin, Index end) {
      for (Index row = begin; row < end; ++row)
        prstd[row] = normalise_row(cols, eps, px + row * cols, pgain, py + row * cols);
    });
  });
}

void add_rms_norm_forward(Stream& stream, Index rows, Index cols, float eps, In a, In b, In gain, Out sum,
                          Out y, Out rstd) {
  for_storage(a.dtype, [&]<class T>() {
    const T* pa = values<T>(a);
    const T* pb = values<T>(b);
    const T* pgain = values<T>(gain);
    T* psum = values<T>(sum);
    T* py = values<T>(y);
    float* prstd = values<float>(rstd);
    stream.pool().parallel_ranges(rows, rows_per_task(cols), [=](Index begin, Index end) {
      for (Index row = begin; row < end; ++row) {
        const Index first = row * cols;
        add_row(cols, pa + first, pb + first, psum + first);
        prstd[row] = normalise_row(cols, eps, psum + first, pgain, py + first);
      }
    });
  });
}

void rms_norm_backward_input(Stream& stream, Index rows, Index cols, In x, In gain, In rstd, In dy,
                             In residual, Out dx) {
  for_storage(x.dtype, [&]<class T>() {
    const T* px = values<T>(x);
    const T* pgain = values<T>(gain);
    const float* prstd = values<float>(rstd);
    const T* pdy = values<T>(dy);
    const T* presidual = values<T>(residual);
    T* pdx = values<T>(dx);
    stream.pool().parallel_ranges(rows, rows_per_task(cols), [=](Index begin, Index end) {
      for (Index row = begin; row < end; ++row) {
        const T* in = px + row * cols;
        const T* grad = pdy + row * cols;
        const T* around = presidual ? presidual + row * cols : nullptr;
        T* out = pdx + row * cols;
        const Floats r = splat(prstd[row]);
        // With h = dy * gain: dx = rstd (h - xhat mean(h xhat))
        Floats products{};
        for_lanes(
            cols, [&](Index i, Index count) __attribute__((always_inline)) {
              const Floats h = load(grad + i, count) * load(pgain + i, count);
              products += h * (load(in + i, count) * r);
            });
        const Floats mean = splat(sum(products) / static_cast<float>(cols));
        for_lanes(
            cols, [&](Index i, Index count) __attribute__((always_inline)) {
              const Floats h = load(grad + i, count) * load(pgain + i, count);
              const Floats through = h - (load(in + i, count) * r) * mean;
              store(out + i, around ? multiply_add(through, r, load(around + i, count)) : through * r, count);
            });
      }
    });
  });
}

void rms_norm_backward_weight(Stream& stream, Index rows, Index cols, In x, In rstd, In dy, bool accumulate,
                              Out dgain) {
  for_storage(x.dtype, [&]<class T>() {
    const T* px = values<T>(x);
    const float* prstd = values<float>(rstd);
    const T* pdy = values<T>(dy);
    float* pdgain = values<float>(dgain);
    constexpr Index strip = 64;  // columns of a task
    stream.pool().parallel_ranges(cols, strip, [=](Index begin, Index end) {
      double sums[strip] = {};
      const Index width = end - begin;
      for (Index row = 0; row < rows; ++row) {
        const T* in = px + row * cols + begin;
        const T* grad = pdy + row * cols + begin;
        const float r = prstd[row];
        for (Index i = 0; i < width; ++i)
          sums[i] += static_cast<double>(widened(grad[i]) * (widened(in[i]) * r));
      }
      for (Index i = 0; i < width; ++i) {
        const auto g = static_cast<float>(sums[i]);
        pdgain[begin + i] = accumulate ? pdgain[begin + i] + g : g;
      }
    });
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
