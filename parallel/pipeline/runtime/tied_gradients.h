// Gradients of parameters that several stages use (a tied embedding): the uses are added once, in model
// order, on every rank that holds one, so that all copies take the same update.
#pragma once

#include <functional>
#include <vector>

#include "nn/weight_store.h"
#include "parallel/comm/communicator.h"

namespace penstock {

/// After WeightStore::finish_gradients, before the norm. `rank_of_block` gives the rank of the pipeline that
/// holds a block. The sum lies in the accumulator of the first use that each rank holds. Collective over the
/// ranks that share a parameter.
void reduce_tied_gradients(RankContext& context, Communicator& pipeline, const Model& model,
                           WeightStore& weights, const std::function<int(int block)>& rank_of_block);

}  // namespace penstock
