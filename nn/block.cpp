// BlockContext: weights and dropout.
#include "nn/block.h"

#include "autograd/ops/dropout.h"
#include "core/philox.h"
#include "nn/weight_store.h"

namespace penstock {

Variable BlockContext::weight(const Parameter& parameter) const {
  const WeightHandle handle{block, parameter.index, weight_version};
  if (tape) return tape->weight(handle);
  return Variable(weights->resolve(handle));
}

Variable BlockContext::dropout(const Variable& x, float probability, const std::string& name) const {
  if (mode != Mode::train || probability == 0) return x;
  return ops::dropout(x, probability, random_key(seed, RandomPurpose::dropout, name).value, state,
                      Variable(sequence_ids));
}

}  // namespace penstock
