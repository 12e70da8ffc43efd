// Layer normalisation, see kernels/norm.h.
#include "kernels/norm.h"

#include <cmath>

#include "kernels/cpu/isa/rows.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {

namespace {

/// out (cols) = the normalised `in`; gives mean and 1/deviation.
template <class T>
PENSTOCK_INLINE void normalise_row(Index cols, float eps, const T* in, const T* gain, const T* bias, T* out,
                                   float& mean, float& rstd) {
  // Two passes, the mean in double: a large mean beside a small deviation costs nothing beyond the mean's
  // rounding.
  const auto m = static_cast<float>(row_sum(in, cols) / static_cast<double>(cols));
  Floats squares{};
  for_lanes(
      cols, [&](Index i, Index count) __attribute__((always_inline)) {
        const Floats d = load(in + i, count, m) - splat(m);
        squares += d * d;
      });
  const float variance = sum(squares) / static_cast<float>(cols);
  const float r = 1.0f / std::sqrt(variance + eps);
  for_lanes(
      cols, [&](Index i, Index count) __attribute__((always_inline)) {
        const Floats normal = (load(in + i, count) - splat(m)) * splat(r);
        const Floats shift = bias ? load(bias + i, count) : Floats{};
        store(out + i, multiply_add(normal, load(gain + i, count), shift), count);
      });
  mean = m;
  rstd = r;
}

}  // namespace

void layer_norm_forward(Stream& stream, Index rows, Index cols, float eps, In x, In gain, In bias, Out y,
                        Out mean, Out rstd) {
  for_storage(x.dtype, [&]<class T>() {
    const T* px = values<T>(x);
    const T* pgain = values<T>(gain);
    const T* pbias = values<T>(bias);
    T* py = values<T>(y);
    float* pmean = values<float>(mean);
    float* prstd = values<float>(rstd);
    stream.pool().parallel_ranges(rows, rows_per_task(cols), [=](Index begin, Index end) {
      for (Index row = begin; row < end; ++row)
        normalise_row(cols, eps, px + row * cols, pgain, pbias, py + row * cols, pmean[row], prstd[row]);
    });
  });
}

void add_layer_norm_forward(Stream& stream, Index rows, Index cols, float eps, In a, In b, In gain, In bias,
                            Out sum, Out y, Out mean, Out rstd) {
  for_storage(a.dtype, [&]<class T>() {
    const T* pa = values<T>(a);
    const T* pb = values<T>(b);
    const T* pgain = values<T>(gain);
    const T* pbias = values<T>(bias);
    T* psum = values<T>(sum);
    T* py = values<T>(y);
    float* pmean = values<float>(mean);
    float* prstd = values<float>(rstd);
    stream.pool().parallel_ranges(rows, rows_per_task(cols), [=](Index begin, Index end) {
      for (Index row = begin; row < end; ++row) {
        const Index first = row * cols;
        add_row(cols, pa + first, pb + first, psum + first);
        normalise_row(cols, eps, psum + first, pgain, pbias, py + first, pmean[row], prstd[row]);
      }
    });
  });
}

void layer_norm_backward_input(Stream& stream, Index rows, Index cols, In x, In gain, In mean, In rstd, In dy,
                               In residual, Out dx) {
  for_storage(x.dtype, [&]<class T>() {
    const T* px = values<T>(x);
    const T* pgain = values<T>(gain);
    const float* pmean = values<float>(mean);
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
        const Floats m = splat(pmean[row]);
        const Floats r = splat(prstd[row]);
        // With h = dy * gain: dx = rstd (h - mean(h) - xhat mean(h xhat))
        Floats h_sum{}, h_xhat_sum{};
        for_lanes(
            cols, [&](Index i, Index count) __attribute__((always_inline)) {
              const Floats h = load(grad + i, count) * load(pgain + i, count);
              h_sum += h;
              h_xhat_sum += h * ((load(in + i, count) - m) * r);
            });
        const Floats h_mean = splat(sum(h_sum) / static_cast<float>(cols));
        const Floats h_xhat_mean = splat(sum(h_xhat_sum) / static_cast<float>(cols));
        for_lanes(
            cols, [&](Index i, Index count) __attribute__((always_inline)) {
              const Floats h = load(grad + i, count) * load(pgain + i, count);
              const Floats xhat = (load(in + i, count) - m) * r;
              const Floats through = h - h_mean - xhat * h_xhat_mean;
              store(out + i, around ? multiply_add(through, r, load(around + i, count)) : through * r, count);
            });
      }
    });
  });
}

namespace {

constexpr Index strip = 64;  // columns of a task

}  // namespace

void layer_norm_backward_weight(Stream& stream, Index rows, Index cols, In x, In mean, In rstd, In dy,
                                bool accumulate_gain, Out dgain, bool accumulate_bias, Out dbias) {
  for_storage(x.dtype, [&]<class T>() {
    const T* px = values<T>(x);
    const float* pmean = values<float>(mean);
    const float* prstd = values<float>(rstd);
    const T* pdy = values<T>(dy);
    float* pdgain = values<float>(dgain);
    float* pdbias = values<float>(dbias);
    stream.pool().parallel_ranges(cols, strip, [=](Index begin, Index end) {
      double gain_sum[strip] = {}, bias_sum[strip] = {};
      const Index width = end - begin;
      for (Index row = 0; row < rows; ++row) {
        const T* in = px + row * cols + begin;
        const T* grad = pdy + row * cols + begin;
        const float m = pmean[row], r = prstd[row];
        if (width == strip) {
          for (Index i = 0; i < strip; ++i) {
            gain_sum[i] += static_cast<double>(widened(grad[i]) * ((widened(in[i]) - m) * r));
            bias_sum[i] += static_cast<double>(widened(grad[i]));
          }
        } else {
          for (Index i = 0; i < width; ++i) {
            gain_sum[i] += static_cast<double>(widened(grad[i]) * ((widened(in[i]) - m) * r));
            bias_sum[i] += static_cast<double>(widened(grad[i]));
          }
        }
      }
      for (Index i = 0; i < width; ++i) {
        const auto g = static_cast<float>(gain_sum[i]);
        const auto b = static_cast<float>(bias_sum[i]);
        if (pdgain) pdgain[begin + i] = accumulate_gain ? pdgain[begin + i] + g : g;
        if (pdbias) pdbias[begin + i] = accumulate_bias ? pdbias[begin + i] + b : b;
      }
    });
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
