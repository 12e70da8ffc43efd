// Compositions of general ops.
#include "autograd/ops/composed.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "autograd/ops/arithmetic.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/reductions.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/ops/softmax.h"
#include "kernels/cross_entropy.h"

namespace penstock::ops::composed {
namespace {

RankContext& context_of(const Variable& x) { return x.tensor().context(); }

/// 1 / sqrt(mean of x^2 over the last dimension + eps)
Variable inverse_root(const Variable& x, float eps) {
  return pow(add(mean(mul(x, x), {-1}, true), eps), -0.5f);
}

/// (B, T, heads D) -> (B, heads, T, D)
Variable by_head(const Variable& x, Index heads) {
  const Shape& s = x.shape();
  return permute(reshape(x, {s[0], s[1], heads, s[2] / heads}), {0, 2, 1, 3});
}

/// (B, kv_heads, T, D) -> (B, heads, T, D): each head of keys or values stands for a group of queries' heads.
Variable for_groups(const Variable& x, Index heads) {
  const Shape s = x.shape();
  const Index group = heads / s[1];
  return reshape(expand(reshape(x, {s[0], s[1], 1, s[2], s[3]}), Shape{s[0], s[1], group, s[2], s[3]}),
                 {s[0], heads, s[2], s[3]});
}

/// uint8 (Tq, Tk): 1 where the options let query i see key j.
Variable seen(RankContext& context, const AttentionOptions& o, Index queries, Index keys) {
  std::vector<std::uint8_t> mask;
  for (Index i = 0; i < queries; ++i) {
    for (Index j = 0; j < keys; ++j) {
      const Index at = i + o.query_offset;
      mask.push_back((!o.causal || j <= at) && (o.window == 0 || j > at - o.window));
    }
  }
  return Variable(Tensor::from(context, Shape{queries, keys}, mask));
}

}  // namespace

Variable linear(const Variable& x, const Variable& weight, const Variable& bias, WeightLayout layout) {
  const Variable y = matmul(x, weight, {.transpose_b = layout == WeightLayout::out_in});
  return bias.defined() ? add(y, bias) : y;
}

Variable gelu(const Variable& x, GeluForm form, const Variable& bias) {
  require<ValueError>(form == GeluForm::tanh, "composed gelu: the erf form is no composition of general ops");
  const Variable z = bias.defined() ? add(x, bias) : x;
  const float scale = std::sqrt(2.0f / std::numbers::pi_v<float>);
  const Variable inner = mul(add(z, mul(mul(mul(z, z), z), 0.044715f)), scale);
  return mul(mul(z, 0.5f), add(tanh(inner), 1.0f));
}

Variable swiglu(const Variable& gate, const Variable& up) { return mul(silu(gate), up); }

Variable layer_norm(const Variable& x, const Variable& gain, const Variable& bias, float eps) {
  const Variable centred = sub(x, mean(x, {-1}, true));
  const Variable y = mul(mul(centred, inverse_root(centred, eps)), gain);
  return bias.defined() ? add(y, bias) : y;
}

Variable rms_norm(const Variable& x, const Variable& gain, float eps) {
  return mul(mul(x, inverse_root(x, eps)), gain);
}

Variable cross_entropy_sum(const Variable& logits, const Variable& targets, float label_smoothing,
                           std::int32_t ignored_id) {
  RankContext& context = context_of(logits);
  const Index classes = logits.shape().dim(-1), rows = logits.shape().without_last().numel();
  std::vector<std::int32_t> ids(static_cast<std::size_t>(classes));
  std::iota(ids.begin(), ids.end(), 0);
  const Variable column(Tensor::from(context, Shape{classes}, ids));
  const Variable target = reshape(targets, {rows, 1});
  const Variable ignored(Tensor::from(context, Shape{1}, std::vector<std::int32_t>{ignored_id}));
  const Variable log_p = log_softmax(reshape(logits, {rows, classes}));
  const Variable zero = scalar(context, 0.0f);
  const Variable counts = not_equal(target, ignored);
  const Variable chosen = sum(where(counts, where(equal(target, column), log_p, zero), zero));
  const Variable all = sum(where(counts, log_p, zero));
  return reshape(
      add(mul(chosen, label_smoothing - 1.0f), mul(all, -label_smoothing / static_cast<float>(classes))),
      {1});
}

Variable attention(const Variable& q, const Variable& k, const Variable& v, const AttentionOptions& o,
                   const Variable& segment_ids) {
  RankContext& context = context_of(q);
  const Index batch = q.shape()[0], queries = q.shape()[1], keys = k.shape()[1], width = q.shape()[2];
  const Index head_size = width / o.heads;
  const Variable scores =
      mul(matmul(by_head(q, o.heads), for_groups(by_head(k, o.kv_heads), o.heads), {.transpose_b = true}),
          1.0f / std::sqrt(static_cast<float>(head_size)));
  const Variable hidden = scalar(context, -std::numeric_limits<float>::infinity());
  Variable masked = where(seen(context, o, queries, keys), scores, hidden);
  if (segment_ids.defined()) {
    const Variable of_queries = slice(segment_ids, 1, o.query_offset, o.query_offset + queries);
    masked =
        where(equal(reshape(of_queries, {batch, 1, queries, 1}), reshape(segment_ids, {batch, 1, 1, keys})),
              masked, hidden);
  }
  const Variable mixed = matmul(softmax(masked), for_groups(by_head(v, o.kv_heads), o.heads));
  return reshape(permute(mixed, {0, 2, 1, 3}), {batch, queries, width});
}

}  // namespace penstock::ops::composed
