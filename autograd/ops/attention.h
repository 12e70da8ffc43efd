// Scaled dot-product attention on fused projections.
#pragma once

#include "autograd/op.h"

namespace penstock::ops {

struct AttentionOptions {
  Index heads = 1;
  Index kv_heads = 1;       ///< divides heads
  bool causal = true;
  Index window = 0;         ///< 0: none
};

/// qkv (B, T, (heads + 2 kv_heads) D): the queries of all heads, then their keys, then their values. Output (B, T, heads D).
/// Scores are scaled by 1 / sqrt(D). segment_ids, where given, are (B, T) int32: no attention across segments.
Variable self_attention(const Variable& qkv, const AttentionOptions& options, const Variable& segment_ids = {});

}  // namespace penstock::ops
