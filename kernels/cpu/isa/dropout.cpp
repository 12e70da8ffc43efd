// Dropout with counter-based masks, see kernels/dropout.h.
#include "kernels/dropout.h"

#include "core/philox.h"
#include "kernels/cpu/isa/lanes.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

/// `flatten`: the Philox functions are inline and shared with code for older processors; no copy of ours may
/// be left.
__attribute__((flatten)) void drop_range(RandomKey key, std::uint32_t step, std::uint32_t sequence,
                                         float probability, float factor, Index begin, Index end,
                                         const float* x, float* y) {
  for (Index base = begin / 4; base * 4 < end; ++base) {
    const PhiloxBlock block = philox_block(key, step, sequence, static_cast<std::uint64_t>(base));
    for (Index k = 0; k < 4; ++k) {
      const Index e = base * 4 + k;
      if (e >= begin && e < end) y[e] = uniform_float(block.word[k]) >= probability ? x[e] * factor : 0.0f;
    }
  }
}

}  // namespace

void dropout(Stream& stream, Index sequences, Index elements, float probability, std::uint64_t key,
             const StepState* state, In sequence_ids, In x, Out y) {
  if (!(probability >= 0.0f && probability < 1.0f)) throw_dropout_probability(probability);
  const std::int64_t* ids = int64s(sequence_ids);
  const float* px = floats(x);
  float* py = floats(y);
  const auto step = static_cast<std::uint32_t>(state->step);
  const float factor = 1.0f / (1.0f - probability);
  const Index pieces = div_up(elements, piece);
  stream.pool().parallel_for(sequences * pieces, [=](Index task) {
    const Index sequence = task / pieces;
    const Index begin = task % pieces * piece;
    const Index end = begin + piece < elements ? begin + piece : elements;
    drop_range(RandomKey{key}, step, static_cast<std::uint32_t>(ids[sequence]), probability, factor, begin,
               end, px + sequence * elements, py + sequence * elements);
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
