// RecomputePolicy: what is run again in the backward instead of being kept, as --recompute says it.
#pragma once

#include <string>
#include <vector>

#include "parallel/pipeline/plan/partition.h"

namespace penstock {

struct RecomputePolicy {
  enum class Kind : std::uint8_t {
    none,
    selective,  ///< of every layer the attention alone
    full,       ///< every layer
    layers,  ///< the first `count` layers of each stage: its backward comes to them when the others are done
             ///< with and have given their memory back
  };
  Kind kind = Kind::none;
  Index count = 0;

  friend bool operator==(const RecomputePolicy&, const RecomputePolicy&) = default;
};

/// From "none", "selective", "full" or a number of layers (0 is none). Throws ValueError for anything else.
RecomputePolicy parse_recompute(const std::string& text);

/// For each block of the model. Embedding and head, which are no layers, keep what they need; a stage with
/// fewer than `count` layers runs all of its own again. Throws ValueError where no stage has `count` layers.
std::vector<Recompute> recompute_of_blocks(const Model& model, const Partition& partition,
                                           const RecomputePolicy& policy);

}  // namespace penstock
