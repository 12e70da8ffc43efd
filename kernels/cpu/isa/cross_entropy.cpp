// Cross-entropy over rows of logits, see kernels/cross_entropy.h.
#include "kernels/cross_entropy.h"

#include <cmath>

#include "kernels/cpu/isa/vector_math.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

constexpr float infinity = __builtin_inff();

void check_targets(Index rows, Index vocabulary, const std::int32_t* targets) {
  for (Index row = 0; row < rows; ++row) {
    const Index target = targets[row];
    if (target != ignored_target && (target < 0 || target >= vocabulary))
      throw_target_out_of_range(row, target, vocabulary);
  }
}

/// log sum exp of a row: one pass for the maximum, one for the sum.
float log_sum_exp(const float* row, Index n) {
  Floats top = splat(-infinity);
  for_lanes(
      n, [&](Index i, Index count)
             __attribute__((always_inline)) { top = larger(top, load(row + i, count, -infinity)); });
  const float highest = maximum(top);
  const float shift = highest == -infinity || highest == infinity ? 0.0f : highest;
  // Chains of 64 additions in fp32, their sums in double: a large vocabulary costs no digits.
  constexpr Index stretch = 64 * lanes;
  double total = 0;
  for (Index begin = 0; begin < n; begin += stretch) {
    Floats part{};
    for_lanes(
        n - begin < stretch ? n - begin : stretch, [&](Index i, Index count) __attribute__((always_inline)) {
          part += exponential(load(row + begin + i, count, -infinity) - splat(shift));
        });
    total += static_cast<double>(sum(part));
  }
  return static_cast<float>(static_cast<double>(shift) + std::log(total));
}

double mean_of(const float* row, Index n) {
  Doubles low{}, high{};
  for_lanes(
      n, [&](Index i, Index count) __attribute__((always_inline)) {
        const DoublePair v = load_double(row + i, count);
        low += v.low;
        high += v.high;
      });
  return sum(low + high) / static_cast<double>(n);
}

}  // namespace

void cross_entropy_forward(Stream& stream, Index rows, Index vocabulary, float smoothing, In logits,
                           In targets, Out row_lse, Out sum_and_count) {
  const float* plogits = floats(logits);
  const std::int32_t* ptargets = int32s(targets);
  float* plse = floats(row_lse);
  double* result = doubles(sum_and_count);
  check_targets(rows, vocabulary, ptargets);
  stream.pool().parallel_ranges(rows, rows_per_task(vocabulary), [=](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) plse[row] = log_sum_exp(plogits + row * vocabulary, vocabulary);
  });
  double loss = 0, valid = 0;
  const double share = static_cast<double>(smoothing);
  for (Index row = 0; row < rows; ++row) {
    if (ptargets[row] == ignored_target) continue;
    const float* logit = plogits + row * vocabulary;
    const auto top = static_cast<double>(plse[row]);
    loss += (1 - share) * (top - static_cast<double>(logit[ptargets[row]]));
    if (smoothing != 0.0f) loss += share * (top - mean_of(logit, vocabulary));
    valid += 1;
  }
  result[0] = loss;
  result[1] = valid;
}

void cross_entropy_backward(Stream& stream, Index rows, Index vocabulary, float smoothing, In seed, In logits,
                            In targets, In row_lse, Out dlogits) {
  const float factor = *floats(seed);
  const float* plogits = floats(logits);
  const std::int32_t* ptargets = int32s(targets);
  const float* plse = floats(row_lse);
  float* pdlogits = floats(dlogits);
  check_targets(rows, vocabulary, ptargets);
  stream.pool().parallel_ranges(rows, rows_per_task(vocabulary), [=](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const float* in = plogits + row * vocabulary;
      float* out = pdlogits + row * vocabulary;
      const Index target = ptargets[row];
      if (target == ignored_target) {
        std::memset(out, 0, static_cast<std::size_t>(vocabulary) * sizeof(float));
        continue;
      }
      const Floats lse = splat(plse[row]);
      // p - 1 of the target before it is overwritten: `out` may be `in`. 1 - p of a sure row loses nothing by
      // this order.
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
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
