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

  const double infinity = std::numeric_limits<double>::infinity();
  const auto at = [](Index i) { return static_cast<std::size_t>(i); };
  const auto cut = [&](Index layer, bool first, bool last) {
    if (first) return 0;
    if (last || layers == 0) return model.size();
    return layer < layers ? blocks[at(layer)] : blocks.back() + 1;
  };
  const auto time = [&](Index s, Index begin, Index end) {
    return stage_cost({cut(begin, s == 0, false), cut(end, false, s == stages - 1)}) / speeds[at(s)];
  };
  // best[s][n]: the best that stages s.. can do with the layers n.. ; take[s][n]: layers of stage s then.
  std::vector<std::vector<double>> best;
  std::vector<std::vector<Index>> take;
  /// `join` makes the value of stages s.. from the time of stage s and the value of those behind it.
  const auto solve = [&](double of_nothing, auto&& join) {
    best.assign(at(stages) + 1, std::vector<double>(at(layers) + 1, infinity));
    take.assign(at(stages), std::vector<Index>(at(layers) + 1, 0));
    best.back().back() = of_nothing;
    for (Index s = stages - 1; s >= 0; --s)
      for (Index n = 0; n <= layers; ++n)
        for (Index end = s == stages - 1 ? layers : n; end <= layers; ++end) {
          const double rest = best[at(s) + 1][at(end)];
          if (rest == infinity) continue;
          const double value = join(time(s, n, end), rest, end - n);
          if (value >= best[at(s)][at(n)]) continue;
          best[at(s)][at(n)] = value;
          take[at(s)][at(n)] = end - n;
        }
  };
  solve(-infinity, [](double mine, double rest, Index) { return std::max(mine, rest); });
  // Of all cuts whose slowest stage is as fast, the most even one: the sum of squares. Of those, one without
  // an empty stage.
  const double slowest = best[0][0] * (1 + 1e-12);
  solve(0, [&](double mine, double rest, Index count) {
    const double square = mine * mine + (count == 0 ? 1e-9 * slowest * slowest : 0.0);
    return mine <= slowest ? square + rest : infinity;
  });
  std::vector<Index> per_stage;
  Index next = 0;
  for (Index s = 0; s < stages; ++s) {
    per_stage.push_back(take[at(s)][at(next)]);
    next += per_stage.back();
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
