// Cross-entropy over rows of logits, see kernels/cross_entropy.h.
#include "kernels/cross_entropy.h"

#include <cmath>

#include "kernels/cpu/isa/rows.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

void check_targets(Index rows, Index vocabulary, std::int32_t ignored, const std::int32_t* targets) {
  for (Index row = 0; row < rows; ++row) {
    const Index target = targets[row];
    if (target != ignored && (target < 0 || target >= vocabulary))
      throw_target_out_of_range(row, target, vocabulary, ignored);
  }
}

/// log sum exp of a row: one pass for the maximum, one for the sum.
template <class T>
float log_sum_exp(const T* row, Index n) {
  const float highest = row_largest(row, n);
  const float shift = highest == -infinity || highest == infinity ? 0.0f : highest;
  return static_cast<float>(static_cast<double>(shift) + std::log(exponential_sum(row, n, shift)));
}

}  // namespace

void cross_entropy_forward(Stream& stream, Index rows, Index vocabulary, float smoothing,
                           std::int32_t ignored, In logits, In targets, Out row_lse, Out sum_and_count) {
  for_storage(logits.dtype, [&]<class T>() {
    const T* plogits = values<T>(logits);
    const std::int32_t* ptargets = values<std::int32_t>(targets);
    float* plse = values<float>(row_lse);
    double* result = values<double>(sum_and_count);
    check_targets(rows, vocabulary, ignored, ptargets);
    stream.pool().parallel_ranges(rows, rows_per_task(vocabulary), [=](Index begin, Index end) {
      for (Index row = begin; row < end; ++row)
        plse[row] = log_sum_exp(plogits + row * vocabulary, vocabulary);
    });
    double loss = 0, valid = 0;
    const double share = static_cast<double>(smoothing);
    for (Index row = 0; row < rows; ++row) {
      if (ptargets[row] == ignored) continue;
      const T* logit = plogits + row * vocabulary;
      const auto top = static_cast<double>(plse[row]);
      loss += (1 - share) * (top - static_cast<double>(widened(logit[ptargets[row]])));
      if (smoothing != 0.0f)
        loss += share * (top - row_sum(logit, vocabulary) / static_cast<double>(vocabulary));
      valid += 1;
    }
    result[0] = loss;
    result[1] = valid;
  });
}

void cross_entropy_backward(Stream& stream, Index rows, Index vocabulary, float smoothing,
                            std::int32_t ignored, In seed, In logits, In targets, In row_lse, Out dlogits) {
  for_storage(logits.dtype, [&]<class T>() {
    const float factor = *values<float>(seed);
    const T* plogits = values<T>(logits);
    const std::int32_t* ptargets = values<std::int32_t>(targets);
    const float* plse = values<float>(row_lse);
    T* pdlogits = values<T>(dlogits);
    check_targets(rows, vocabulary, ignored, ptargets);
    stream.pool().parallel_ranges(rows, rows_per_task(vocabulary), [=](Index begin, Index end) {
      for (Index row = begin; row < end; ++row) {
        const T* in = plogits + row * vocabulary;
        T* out = pdlogits + row * vocabulary;
        const Index target = ptargets[row];
        if (target == ignored) {
          zero(out, vocabulary);
          continue;
        }
        const Floats lse = splat(plse[row]);
        // p - 1 of the target before it is overwritten: `out` may be `in`. 1 - p of a sure row loses nothing
        // by this order.
        const float everyone = smoothing / static_cast<float>(vocabulary);
        const float chosen = (1.0f - smoothing) + everyone;
        for_lanes(
            vocabulary, [&](Index i, Index count) __attribute__((always_inline)) {
              const Floats p = exponential(load(in + i, count, -infinity) - lse);
              const Floats hit =
                  select(iota(static_cast<std::int32_t>(i)) == splat_int(static_cast<std::int32_t>(target)),
                         splat(chosen), splat(everyone));
              store(out + i, (p - hit) * splat(factor), count);
            });
      }
    });
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
