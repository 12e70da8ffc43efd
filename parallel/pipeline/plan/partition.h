// Partition: which blocks a stage has.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/model.h"

namespace penstock {

struct BlockRange {
  int begin = 0, end = 0;

  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

/// Stages as ranges of blocks that cover the model in order.
using Partition = std::vector<BlockRange>;

/// From transformer layers per stage: blocks before the first layer (embedding) go with the first stage,
/// those after the last (norm and head) with the last. Throws ValueError unless there are `stages` numbers,
/// none negative, that sum to the model's layers.
Partition partition_by_layers(const Model& model, const std::vector<Index>& layers, Index stages);

/// The cut between layers whose most expensive stage is cheapest, given a cost for each block and a relative
/// speed for each stage (time = cost / speed); among equals the one whose first stage has fewest layers, then
/// the best and so on for the stages that are left. A stage may be without layers only where there are fewer
/// layers than stages. Dynamic programming, exact. Throws ValueError for a number of costs that is not the
/// model's, no stage, or a cost or speed that is negative, zero (speed) or not finite.
Partition partition_by_cost(const Model& model, const std::vector<double>& block_costs,
                            const std::vector<double>& speeds);
/// The same for costs that are no sums over blocks: `stage_cost` gives that of a stage with these blocks.
Partition partition_by_cost(const Model& model, const std::function<double(BlockRange)>& stage_cost,
                            const std::vector<double>& speeds);

/// Layers per stage, as --partition writes them.
std::vector<Index> layers_per_stage(const Model& model, const Partition& partition);

}  // namespace penstock
