// Scaled dot-product attention, on fused projections or on separate ones.
#pragma once

#include "autograd/op.h"

namespace penstock::ops {

struct AttentionOptions {
  Index heads = 1;
  Index kv_heads = 1;  ///< divides heads
  bool causal = true;
  Index window = 0;        ///< 0: none; else a query sees the last `window` positions, its own among them
  Index query_offset = 0;  ///< position of query 0 among the keys; `attention` alone
  float scale = 0;         ///< of the scores; 0: 1 / sqrt(D)
};

/// qkv (B, T, (heads + 2 kv_heads) D): the queries of all heads, then their keys, then their values. Output
/// (B, T, heads D). segment_ids, where given, are (B, T) int32 or int64: no
/// attention across segments. Throws ShapeError and ValueError for sizes and options that do not fit.
Variable self_attention(const Variable& qkv, const AttentionOptions& options,
                        const Variable& segment_ids = {});

struct AttentionResult {
  Variable out;  ///< of q's shape
  Variable lse;  ///< (B, heads, Tq): log sum exp of the scaled scores, -infinity where a query sees no key
                 ///< (its output is 0)
};

/// q (B, Tq, heads D), k and v (B, Tk, kv_heads D), or each as (B, T, heads, D). Head h reads key/value head
/// h / (heads / kv_heads). Query i stands at position query_offset + i among the keys. segment_ids, where
/// given, are (B, Tk) int32. Both outputs have gradients. Throws ShapeError and ValueError for sizes and
/// options that do not fit.
AttentionResult attention(const Variable& q, const Variable& k, const Variable& v,
                          const AttentionOptions& options, const Variable& segment_ids = {});

}  // namespace penstock::ops
