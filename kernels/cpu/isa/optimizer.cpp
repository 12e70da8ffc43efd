// Optimizer updates, see kernels/optimizer.h.
#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/cpu/isa/lanes.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

PENSTOCK_INLINE Floats square_root(const Floats& v) {
  Floats result;
  for (int i = 0; i < lanes; ++i) result[i] = __builtin_sqrtf(v[i]);
  return result;
}

}  // namespace

void adamw(Stream& stream, Index n, const AdamWSettings& settings, const StepState* state, In g, Out p, Out m,
           Out v) {
  const float* pg = values<float>(g);
  float* pp = values<float>(p);
  float* pm = values<float>(m);
  float* pv = values<float>(v);
  // Scalars in double and rounded once, as torch's Python scalars are.
  const double rate = static_cast<double>(state->learning_rate);
  const auto updates = static_cast<double>(state->updates);
  const Floats clip = splat(state->clip_factor);
  const Floats beta1 = splat(static_cast<float>(settings.beta1));
  const Floats beta2 = splat(static_cast<float>(settings.beta2));
  const Floats rest1 = splat(static_cast<float>(1.0 - settings.beta1));
  const Floats rest2 = splat(static_cast<float>(1.0 - settings.beta2));
  const Floats keep = splat(static_cast<float>(1.0 - rate * settings.weight_decay));
  const Floats step_size = splat(static_cast<float>(rate / (1.0 - std::pow(settings.beta1, updates))));
  const Floats over_root_correction2 =
      splat(static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(settings.beta2, updates))));
  const Floats eps = splat(static_cast<float>(settings.eps));
  stream.pool().parallel_ranges(n, piece, [&](Index begin, Index end) {
    for_lanes(
        end - begin, [&](Index offset, Index count) __attribute__((always_inline)) {
          const Index i = begin + offset;
          const Floats gradient = load(pg + i, count) * clip;
          const Floats first = beta1 * load(pm + i, count) + rest1 * gradient;
          const Floats second = beta2 * load(pv + i, count) + rest2 * (gradient * gradient);
          const Floats denominator = square_root(second) * over_root_correction2 + eps;
          store(pm + i, first, count);
          store(pv + i, second, count);
          store(pp + i, load(pp + i, count) * keep - step_size * (first / denominator), count);
        });
  });
}

void sgd(Stream& stream, Index n, const SgdSettings& settings, const StepState* state, In g, Out p, Out b) {
  const float* pg = values<float>(g);
  float* pp = values<float>(p);
  const Floats clip = splat(state->clip_factor);
  const Floats decay = splat(static_cast<float>(settings.weight_decay));
  const Floats step_size = splat(state->learning_rate);
  if (settings.momentum == 0) {
    stream.pool().parallel_ranges(n, piece, [&](Index begin, Index end) {
      for_lanes(
          end - begin, [&](Index offset, Index count) __attribute__((always_inline)) {
            const Index i = begin + offset;
            const Floats value = load(pp + i, count);
            const Floats gradient = load(pg + i, count) * clip + decay * value;
            store(pp + i, value - step_size * gradient, count);
          });
    });
    return;
  }
  float* pb = values<float>(b);
  const Floats momentum = splat(static_cast<float>(settings.momentum));
  const bool first = state->updates <= 1;  // the buffer starts as the first gradient, whatever it holds
  stream.pool().parallel_ranges(n, piece, [&](Index begin, Index end) {
    for_lanes(
        end - begin, [&](Index offset, Index count) __attribute__((always_inline)) {
          const Index i = begin + offset;
          const Floats value = load(pp + i, count);
          const Floats gradient = load(pg + i, count) * clip + decay * value;
          const Floats buffer = first ? gradient : momentum * load(pb + i, count) + gradient;
          store(pb + i, buffer, count);
          store(pp + i, value - step_size * buffer, count);
        });
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
