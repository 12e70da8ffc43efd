// BlockContext: weights and dropout.
#include "nn/block.h"

#include "autograd/ops/dropout.h"
#include "core/philox.h"
#include "nn/weight_store.h"

namespace penstock {

Variable BlockContext::weight(const Parameter& parameter) const {
  const WeightHandle handle{block, parameter.index, weight_version};
  if (tape) return tape->weight(handle, !parameter.frozen);
  return Variable(weights->resolve(handle));
}

Variable BlockContext::dropout(const Variable& x, float probability, const std::string& name) const {
  if (mode != Mode::train || probability == 0) return x;
  return ops::dropout(x, probability, random_key(seed, RandomPurpose::dropout, name).value, state,
                      Variable(sequence_ids));
}

Variables BlockContext::part(Recompute which, const Variables& inputs, const Part& body) const {
  if (!tape || recompute != which) return body(inputs, *this);
  return tape->recompute(
      [context = *this, body](const Variables& values, Tape& segment_tape) {
        BlockContext within = context;
        within.tape = &segment_tape;
        return body(values, within);
      },
      inputs);
}

Variables run_block(const Block& block, const Variables& inputs, const BlockContext& context) {
  return context.part(Recompute::block, inputs,
                      [&block](const Variables& values, const BlockContext& within) {
                        return block.forward(values, within);
                      });
}

}  // namespace penstock
