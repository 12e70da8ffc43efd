// Partition: by given numbers of layers, or by cost.
#include "parallel/pipeline/plan/partition.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace penstock {
namespace {

/// Blocks that are layers, in order.
std::vector<int> layer_blocks(const Model& model) {
  std::vector<int> blocks;
  for (int b = 0; b < model.size(); ++b)
    if (model.block(b).layers() > 0) blocks.push_back(b);
  return blocks;
}

}  // namespace

Partition partition_by_layers(const Model& model, const std::vector<Index>& layers, Index stages) {
  const std::vector<int> blocks = layer_blocks(model);
  const Index sum = std::accumulate(layers.begin(), layers.end(), Index{0});
  require<ValueError>(static_cast<Index>(layers.size()) == stages, "--partition {}: {} numbers for {} stages",
                      fmt::join(layers, ","), layers.size(), stages);
  require<ValueError>(std::all_of(layers.begin(), layers.end(), [](Index n) { return n >= 0; }) &&
                          sum == static_cast<Index>(blocks.size()),
                      "--partition {}: the numbers sum to {}, the model has {} layers",
                      fmt::join(layers, ","), sum, blocks.size());
  Partition partition;
  std::size_t next = 0;
  int begin = 0;
  for (std::size_t s = 0; s < layers.size(); ++s) {
    next += static_cast<std::size_t>(layers[s]);
    const bool last = s + 1 == layers.size();
    // A cut lies in front of the next layer; what stands before the first layer stays with stage 0.
    int end = last                   ? model.size()
              : next < blocks.size() ? blocks[next]
              : blocks.empty()       ? model.size()
                                     : blocks.back() + 1;
    partition.push_back({begin, end});
    begin = end;
  }
  return partition;
}

Partition partition_by_cost(const Model& model, const std::vector<double>& block_costs,
                            const std::vector<double>& speeds) {
  require<ValueError>(static_cast<int>(block_costs.size()) == model.size(),
                      "{} costs for a model of {} blocks", block_costs.size(), model.size());
  for (const double cost : block_costs)
    require<ValueError>(std::isfinite(cost) && cost >= 0, "the cost of a block is {}", cost);
  std::vector<double> sums(block_costs.size() + 1, 0.0);  // of the blocks before b
  for (std::size_t b = 0; b < block_costs.size(); ++b) sums[b + 1] = sums[b] + block_costs[b];
  return partition_by_cost(
      model,
      [&](BlockRange blocks) {
        return sums[static_cast<std::size_t>(blocks.end)] - sums[static_cast<std::size_t>(blocks.begin)];
      },
      speeds);
}

Partition partition_by_cost(const Model& model, const std::function<double(BlockRange)>& stage_cost,
                            const std::vector<double>& speeds) {
  const std::vector<int> blocks = layer_blocks(model);
  const auto stages = static_cast<Index>(speeds.size());
  const auto layers = static_cast<Index>(blocks.size());
  require<ValueError>(stages >= 1, "a partition into no stages");
  for (const double speed : speeds)
    require<ValueError>(std::isfinite(speed) && speed > 0, "the speed of a stage is {}", speed);

  const Index least = layers >= stages ? 1 : 0;
  const double infinity = std::numeric_limits<double>::infinity();
  // best[s][n]: cheapest worst time when stages s.. have the layers n.. ; take[s][n]: layers of stage s then.
  std::vector<std::vector<double>> best(static_cast<std::size_t>(stages) + 1,
                                        std::vector<double>(static_cast<std::size_t>(layers) + 1, infinity));
  std::vector<std::vector<Index>> take(static_cast<std::size_t>(stages),
                                       std::vector<Index>(static_cast<std::size_t>(layers) + 1, 0));
  best.back().back() = -infinity;
  const auto cut = [&](Index layer, bool first, bool last) {
    if (first) return 0;
    if (last || layers == 0) return model.size();
    return layer < layers ? blocks[static_cast<std::size_t>(layer)] : blocks.back() + 1;
  };
  for (Index s = stages - 1; s >= 0; --s) {
    for (Index n = 0; n <= layers; ++n) {
      for (Index count = s == stages - 1 ? std::max(layers - n, least) : least; n + count <= layers;
           ++count) {
        const double cost = stage_cost({cut(n, s == 0, false), cut(n + count, false, s == stages - 1)});
        const double worst =
            std::max(cost / speeds[static_cast<std::size_t>(s)],
                     best[static_cast<std::size_t>(s) + 1][static_cast<std::size_t>(n + count)]);
        double& known = best[static_cast<std::size_t>(s)][static_cast<std::size_t>(n)];
        if (worst < known) {
          known = worst;
          take[static_cast<std::size_t>(s)][static_cast<std::size_t>(n)] = count;
        }
      }
    }
  }
  std::vector<Index> per_stage;
  Index at = 0;
  for (Index s = 0; s < stages; ++s) {
    per_stage.push_back(take[static_cast<std::size_t>(s)][static_cast<std::size_t>(at)]);
    at += per_stage.back();
  }
  return partition_by_layers(model, per_stage, stages);
}

std::vector<Index> layers_per_stage(const Model& model, const Partition& partition) {
  std::vector<Index> result;
  for (const BlockRange& stage : partition) {
    Index count = 0;
    for (int b = stage.begin; b < stage.end; ++b) count += model.block(b).layers();
    result.push_back(count);
  }
  return result;
}

}  // namespace penstock
