// self_attention: blockwise forward that keeps the output and the log-sum-exp, nothing of size T x T.
#include "autograd/ops/attention.h"

#include <cmath>

#include "kernels/attention.h"

namespace penstock::ops {
namespace {

class SelfAttentionOp final : public Op {
 public:
  explicit SelfAttentionOp(const AttentionOptions& options) : options_(options) {}

  std::string_view name() const override { return "self_attention"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    const Tensor qkv = in[0].contiguous();
    const Index heads = options_.heads, kv_heads = options_.kv_heads;
    require<ValueError>(heads >= 1 && kv_heads >= 1 && heads % kv_heads == 0, "self_attention: {} heads over {} key/value heads",
                        heads, kv_heads);
    require<ShapeError>(qkv.shape().rank() == 3 && qkv.shape()[2] % (heads + 2 * kv_heads) == 0,
                        "self_attention: (B, T, (heads + 2 kv_heads) D), not {} with {} + 2 x {} heads", qkv.shape().str(),
                        heads, kv_heads);
    const Index width = qkv.shape()[2], size = width / (heads + 2 * kv_heads);
    const Index batch = qkv.shape()[0], length = qkv.shape()[1];
    const bool segments = in.size() > 1;
    require<ShapeError>(!segments || in[1].shape() == Shape({batch, length}), "self_attention: segment ids {} for {}",
                        segments ? in[1].shape().str() : "", qkv.shape().str());
    shape_ = {.batch = batch, .queries = length, .keys = length, .heads = heads, .kv_heads = kv_heads, .head_size = size,
              .q_stride = width, .k_stride = width, .v_stride = width, .out_stride = heads * size,
              .scale = 1.0f / std::sqrt(static_cast<float>(size)), .causal = options_.causal, .query_offset = 0,
              .window = options_.window};
    RankContext& context = qkv.context();
    const Tensor out = Tensor::empty(context, Shape{batch, length, heads * size}, qkv.dtype());
    const Tensor lse = Tensor::empty(context, Shape{batch, heads, length});
    const auto [q, k, v] = parts(kernels::Out(qkv));
    kernels::attention_forward(context.stream(), shape_, read(q), read(k), read(v),
                               segments ? kernels::In(in[1]) : kernels::In(), out, lse);
    context.stream().count_flops(flops(2));
    save.tensor(qkv, 1u);
    save.tensor(lse, 1u);
    if (segments) save.tensor(in[1], 1u);
    segments_ = segments;
    save.output(0, 1u);
    return {out};
  }

  void backward(BackwardContext& ctx) override {
    if (!ctx.wants(0)) return;
    RankContext& context = ctx.context();
    const Tensor qkv = ctx.saved(0);
    const Tensor dqkv = Tensor::empty(context, qkv.shape(), qkv.dtype());
    const Tensor workspace =
        Tensor::empty(context, Shape{kernels::attention_backward_workspace(shape_)}, DType::f32, MemoryKind::workspace);
    const auto [q, k, v] = parts(kernels::Out(qkv));
    const auto [dq, dk, dv] = parts(kernels::Out(dqkv));
    kernels::attention_backward(ctx.stream(), shape_, read(q), read(k), read(v),
                                segments_ ? kernels::In(ctx.saved(2)) : kernels::In(), ctx.output(0), ctx.saved(1),
                                ctx.grad().contiguous(), workspace, dq, dk, dv);
    ctx.stream().count_flops(flops(5));
    ctx.set_grad(0, dqkv);
  }

 private:
  struct Parts {
    kernels::Out q, k, v;
  };

  /// Where queries, keys and values of the first position lie.
  Parts parts(kernels::Out fused) const {
    const auto at = [&](Index element) {
      auto* base = static_cast<std::byte*>(fused.data);
      return kernels::Out(base ? base + element * size_of(fused.dtype) : nullptr, fused.dtype);
    };
    const Index q_width = shape_.heads * shape_.head_size, kv_width = shape_.kv_heads * shape_.head_size;
    return {at(0), at(q_width), at(q_width + kv_width)};
  }

  static kernels::In read(kernels::Out part) { return {part.data, part.dtype}; }

  /// `products` products of a (T, D) and a (D, T) matrix a head, half of it where causal.
  double flops(double products) const {
    const auto d = [](Index i) { return static_cast<double>(i); };
    const double all = 2 * products * d(shape_.batch) * d(shape_.heads) * d(shape_.queries) * d(shape_.keys) * d(shape_.head_size);
    return shape_.causal ? all / 2 : all;
  }

  AttentionOptions options_;
  kernels::AttentionShape shape_;
  bool segments_ = false;
};

}  // namespace

Variable self_attention(const Variable& qkv, const AttentionOptions& options, const Variable& segment_ids) {
  if (segment_ids.defined()) return apply_one<SelfAttentionOp>({qkv, segment_ids}, options);
  return apply_one<SelfAttentionOp>({qkv}, options);
}

}  // namespace penstock::ops
