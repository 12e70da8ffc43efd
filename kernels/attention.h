// Scaled dot-product attention, blockwise: the Tq x Tk matrix is never formed.
#pragma once

#include "kernels/kernel.h"

namespace penstock::kernels {

/// q (B, Tq, H, D), k and v (B, Tk, Hkv, D), out (B, Tq, H, D), lse (B, H, Tq) fp32 = log sum exp of the
/// scaled scores. Head h reads key/value head h / (H / Hkv). Rows of q, k, v, out are `*_stride` elements
/// apart from one position to the next (D-vectors of a position's heads are adjacent), so that slices of a
/// fused (B, T, 3, H, D) need no copy.
struct AttentionShape {
  Index batch = 0, queries = 0, keys = 0, heads = 0, kv_heads = 0, head_size = 0;
  Index q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0;
  float scale = 1.0f;
  bool causal = true;
  Index query_offset = 0;  ///< position of query 0 among the keys: query i sees keys 0 .. query_offset + i
  Index window = 0;        ///< 0: none; else query at position p sees keys above p - window only
};

/// q, k, v, out and their gradients are fp32 or bf16, all alike. Optional segment ids (B, Tk) int32: query i
/// sees only keys of its own segment (its own id stands at query_offset + i). A query that sees no key has
/// output 0, lse -infinity and no gradient.
PENSTOCK_KERNEL(attention_forward, const AttentionShape& shape, In q, In k, In v, In segment_ids, Out out,
                Out lse);

/// Floats of workspace that attention_backward needs: sums of dk and dv, where those are not fp32 themselves.
Index attention_backward_workspace(const AttentionShape& shape, DType dtype);

/// Gradients dq, dk, dv with the strides of q, k, v; dout has that of out. dlse (B, H, Tq) fp32 is the
/// gradient of lse, or absent. Overwrites. Deterministic.
PENSTOCK_KERNEL(attention_backward, const AttentionShape& shape, In q, In k, In v, In segment_ids, In out,
                In lse, In dout, In dlse, Out workspace, Out dq, Out dk, Out dv);

}  // namespace penstock::kernels
