// parse_recompute and recompute_of_blocks.
#include "parallel/pipeline/plan/recompute.h"

#include <algorithm>
#include <charconv>

namespace penstock {

RecomputePolicy parse_recompute(const std::string& text) {
  using Kind = RecomputePolicy::Kind;
  if (text == "none") return {Kind::none, 0};
  if (text == "selective") return {Kind::selective, 0};
  if (text == "full") return {Kind::full, 0};
  Index count = -1;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  require<ValueError>(error == std::errc() && stop == end && count >= 0,
                      "--recompute {}: none, selective, full, or a number of layers of each stage", text);
  return count == 0 ? RecomputePolicy{} : RecomputePolicy{Kind::layers, count};
}

std::vector<Recompute> recompute_of_blocks(const Model& model, const Partition& partition,
                                           const RecomputePolicy& policy) {
  std::vector<Recompute> result(static_cast<std::size_t>(model.size()), Recompute::nothing);
  if (policy.kind == RecomputePolicy::Kind::none) return result;
  const std::vector<Index> layers = layers_per_stage(model, partition);
  const Index most = *std::max_element(layers.begin(), layers.end());
  require<ValueError>(policy.kind != RecomputePolicy::Kind::layers || policy.count <= most,
                      "--recompute {}: no stage has more than {} layers", policy.count, most);
  for (const BlockRange& stage : partition) {
    Index layer = 0;
    for (int b = stage.begin; b < stage.end; ++b) {
      if (model.block(b).layers() == 0) continue;
      layer += model.block(b).layers();
      if (policy.kind == RecomputePolicy::Kind::layers && layer > policy.count) break;
      result[static_cast<std::size_t>(b)] =
          policy.kind == RecomputePolicy::Kind::selective ? Recompute::attention : Recompute::block;
    }
  }
  return result;
}

}  // namespace penstock
