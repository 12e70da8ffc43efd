// Attention ops: a blockwise forward that keeps the output and the log-sum-exp, nothing of size T x T.
#include "autograd/ops/attention.h"

#include <cmath>

#include "autograd/convert.h"
#include "autograd/ops/operands.h"
#include "kernels/attention.h"

namespace penstock::ops {
namespace {

/// What both ops do: checks of options, the two kernels, the count of their work.
class AttentionOp : public Op {
 public:
  explicit AttentionOp(const AttentionOptions& options) : options_(options) {}

 protected:
  /// Queries, keys and values in memory, from the first position on.
  struct Parts {
    kernels::Out q, k, v;
  };

  void check_options() const {
    const auto& o = options_;
    require<ValueError>(o.heads >= 1 && o.kv_heads >= 1 && o.heads % o.kv_heads == 0,
                        "{}: {} heads over {} key/value heads", name(), o.heads, o.kv_heads);
    require<ValueError>(o.window >= 0, "{}: window {} is negative; 0 is none", name(), o.window);
  }

  Tensor indices(const Tensor& segment_ids) const {
    require_indices(name(), "segment ids", segment_ids);
    return converted(segment_ids, DType::i32).contiguous();
  }

  /// Sizes of dense rows; the strides are those of three tensors of their own.
  void set_shape(Index batch, Index queries, Index keys, Index head_size) {
    const Index q_width = options_.heads * head_size, kv_width = options_.kv_heads * head_size;
    shape_ = {.batch = batch,
              .queries = queries,
              .keys = keys,
              .heads = options_.heads,
              .kv_heads = options_.kv_heads,
              .head_size = head_size,
              .q_stride = q_width,
              .k_stride = kv_width,
              .v_stride = kv_width,
              .out_stride = q_width,
              .scale = options_.scale != 0 ? options_.scale : 1.0f / std::sqrt(static_cast<float>(head_size)),
              .causal = options_.causal,
              .query_offset = options_.query_offset,
              .window = options_.window};
  }

  void run(RankContext& context, const Parts& in, const Tensor& segment_ids, const Tensor& out,
           const Tensor& lse) const {
    kernels::attention_forward(context.stream(), shape_, read(in.q), read(in.k), read(in.v),
                               segment_ids.defined() ? kernels::In(segment_ids) : kernels::In(), out, lse);
    context.stream().count_flops(flops(2));
  }

  void run_backward(RankContext& context, const Parts& in, const Tensor& segment_ids, const Tensor& out,
                    const Tensor& lse, const Tensor& dout, const Tensor& dlse, const Parts& gradients) const {
    const Tensor workspace =
        Tensor::empty(context, Shape{kernels::attention_backward_workspace(shape_, in.q.dtype)}, DType::f32,
                      MemoryKind::workspace);
    const auto given = [](const Tensor& t) { return t.defined() ? kernels::In(t) : kernels::In(); };
    kernels::attention_backward(context.stream(), shape_, read(in.q), read(in.k), read(in.v),
                                given(segment_ids), out, lse, dout, given(dlse), workspace, gradients.q,
                                gradients.k, gradients.v);
    context.stream().count_flops(flops(5));
  }

  AttentionOptions options_;
  kernels::AttentionShape shape_;

 private:
  static kernels::In read(kernels::Out part) { return {part.data, part.dtype}; }

  /// `products` products of a (T, D) and a (D, T) matrix a head, half of it where causal.
  double flops(double products) const {
    const auto d = [](Index i) { return static_cast<double>(i); };
    const double all = 2 * products * d(shape_.batch) * d(shape_.heads) * d(shape_.queries) * d(shape_.keys) *
                       d(shape_.head_size);
    return shape_.causal ? all / 2 : all;
  }
};

class SelfAttentionOp final : public AttentionOp {
 public:
  using AttentionOp::AttentionOp;

  std::string_view name() const override { return "self_attention"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    require_floats(name(), in.first(1));
    const Tensor qkv = in[0].contiguous();
    check_options();
    require<ValueError>(options_.query_offset == 0,
                        "self_attention: query offset {}; queries are the keys' own positions",
                        options_.query_offset);
    const Index heads = options_.heads, kv_heads = options_.kv_heads;
    require<ShapeError>(qkv.shape().rank() == 3 && qkv.shape()[2] % (heads + 2 * kv_heads) == 0,
                        "self_attention: (B, T, (heads + 2 kv_heads) D), not {} with {} + 2 x {} heads",
                        qkv.shape().str(), heads, kv_heads);
    const Index batch = qkv.shape()[0], length = qkv.shape()[1], width = qkv.shape()[2];
    segments_ = in.size() > 1;
    require<ShapeError>(!segments_ || in[1].shape() == Shape({batch, length}),
                        "self_attention: segment ids {} for {}", segments_ ? in[1].shape().str() : "",
                        qkv.shape().str());
    set_shape(batch, length, length, width / (heads + 2 * kv_heads));
    shape_.q_stride = shape_.k_stride = shape_.v_stride = width;
    RankContext& context = qkv.context();
    const Tensor out = Tensor::empty(context, Shape{batch, length, shape_.out_stride}, qkv.dtype());
    const Tensor lse = Tensor::empty(context, Shape{batch, heads, length});
    const Tensor segment_ids = segments_ ? indices(in[1]) : Tensor();
    run(context, parts(qkv), segment_ids, out, lse);
    save.tensor(qkv, 1u);
    save.tensor(lse, 1u);
    if (segments_) save.tensor(segment_ids, 1u);
    save.output(0, 1u);
    return {out};
  }

  void backward(BackwardContext& ctx) override {
    if (!ctx.wants(0)) return;
    const Tensor qkv = ctx.saved(0);
    const Tensor dqkv = Tensor::empty(ctx.context(), qkv.shape(), qkv.dtype());
    run_backward(ctx.context(), parts(qkv), segments_ ? ctx.saved(2) : Tensor(), ctx.output(0), ctx.saved(1),
                 ctx.grad().contiguous(), {}, parts(dqkv));
    ctx.set_grad(0, dqkv);
  }

 private:
  Parts parts(const Tensor& fused) const {
    const auto at = [&](Index element) {
      auto* base = static_cast<std::byte*>(fused.data());
      return kernels::Out(base ? base + element * size_of(fused.dtype()) : nullptr, fused.dtype());
    };
    const Index q_width = shape_.heads * shape_.head_size, kv_width = shape_.kv_heads * shape_.head_size;
    return {at(0), at(q_width), at(q_width + kv_width)};
  }

  bool segments_ = false;
};

class SeparateAttentionOp final : public AttentionOp {
 public:
  using AttentionOp::AttentionOp;

  std::string_view name() const override { return "attention"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    check_options();
    require_floats(name(), in.first(3));
    const Shape &qs = in[q_].shape(), &ks = in[k_].shape();
    const Index head_size = head_size_of(qs, options_.heads);
    require<ShapeError>(head_size >= 0 && head_size_of(ks, options_.kv_heads) == head_size &&
                            in[v_].shape() == ks && ks[0] == qs[0],
                        "attention: q {}, k {} and v {} with {} and {} heads", qs.str(), ks.str(),
                        in[v_].shape().str(), options_.heads, options_.kv_heads);
    segments_ = in.size() > segment_ids_;
    require<ShapeError>(!segments_ || in[segment_ids_].shape() == Shape({ks[0], ks[1]}),
                        "attention: segment ids {} for keys {}",
                        segments_ ? in[segment_ids_].shape().str() : "", ks.str());
    set_shape(qs[0], qs[1], ks[1], head_size);
    const Tensor q = in[q_].contiguous(), k = in[k_].contiguous(), v = in[v_].contiguous();
    RankContext& context = q.context();
    const Tensor out = Tensor::empty(context, qs, q.dtype()),
                 lse = Tensor::empty(context, Shape{qs[0], options_.heads, qs[1]});
    const Tensor segment_ids = segments_ ? indices(in[segment_ids_]) : Tensor();
    run(context, {q, k, v}, segment_ids, out, lse);
    save.tensor(q, any);
    save.tensor(k, any);
    save.tensor(v, any);
    if (segments_) save.tensor(segment_ids, any);
    save.output(0, any);
    save.output(1, any);
    return {out, lse};
  }

  void backward(BackwardContext& ctx) override {
    RankContext& context = ctx.context();
    const Tensor q = ctx.saved(q_), k = ctx.saved(k_), v = ctx.saved(v_);
    const auto like = [&](const Tensor& t) { return Tensor::empty(context, t.shape(), t.dtype()); };
    const Tensor dq = like(q), dk = like(k), dv = like(v);
    const Tensor out = ctx.output(0), lse = ctx.output(1);
    Tensor dout =
        ctx.grad(0).defined() ? ctx.grad(0).contiguous() : Tensor::zeros(context, q.shape(), q.dtype());
    const Tensor dlse = ctx.grad(1).defined() ? ctx.grad(1).contiguous() : Tensor();
    run_backward(context, {q, k, v}, segments_ ? ctx.saved(segment_ids_) : Tensor(), out, lse, dout, dlse,
                 {dq, dk, dv});
    const Tensor* gradients[] = {&dq, &dk, &dv};
    for (const int i : {q_, k_, v_})
      if (ctx.wants(i)) ctx.set_grad(i, *gradients[i]);
  }

 private:
  enum Input : int { q_, k_, v_, segment_ids_ };
  static constexpr InputMask any = (1u << q_) | (1u << k_) | (1u << v_);

  /// D of (B, T, heads D) or (B, T, heads, D); -1 where the shape is neither.
  static Index head_size_of(const Shape& s, Index heads) {
    if (s.rank() == 4 && s[2] == heads) return s[3];
    return s.rank() == 3 && s[2] % heads == 0 ? s[2] / heads : -1;
  }

  bool segments_ = false;
};

}  // namespace

Variable self_attention(const Variable& qkv, const AttentionOptions& options, const Variable& segment_ids) {
  if (segment_ids.defined()) return apply_one<SelfAttentionOp>({qkv, segment_ids}, options);
  return apply_one<SelfAttentionOp>({qkv}, options);
}

AttentionResult attention(const Variable& q, const Variable& k, const Variable& v,
                          const AttentionOptions& options, const Variable& segment_ids) {
  Variables inputs{q, k, v};
  if (segment_ids.defined()) inputs.push_back(segment_ids);
  const Variables outputs = apply_op(std::make_unique<SeparateAttentionOp>(options), inputs);
  return {outputs[0], outputs[1]};
}

}  // namespace penstock::ops
