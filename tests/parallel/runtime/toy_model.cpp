// The toy's ops, blocks and data.
#include "parallel/runtime/toy_model.h"

#include <cmath>

#include "autograd/ops/arithmetic.h"
#include "autograd/ops/gelu.h"
#include "nn/layers.h"

namespace penstock::testing {
namespace {

class SquaredErrorSum final : public Op {
 public:
  std::string_view name() const override { return "squared_error"; }
  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    const Tensor y = in[0].contiguous(), t = in[1].contiguous();
    Tensor sum = Tensor::zeros(y.context(), Shape{1}, DType::f64);
    for (Index i = 0; !y.is_meta() && i < y.numel(); ++i) {
      const double d =
          static_cast<double>(y.data_as<float>()[i]) - static_cast<double>(t.data_as<float>()[i]);
      *sum.data_as<double>() += d * d;
    }
    save.tensor(y, 1u);
    save.tensor(t, 1u);
    return {sum};
  }
  void backward(BackwardContext& ctx) override {
    const Tensor y = ctx.saved(0), t = ctx.saved(1);
    const Tensor dy = Tensor::empty(ctx.context(), y.shape());
    for (Index i = 0; !y.is_meta() && i < y.numel(); ++i)
      dy.data_as<float>()[i] =
          2 * (y.data_as<float>()[i] - t.data_as<float>()[i]) * *ctx.grad().data_as<float>();
    ctx.set_grad(0, dy);
  }
};

class Transpose final : public Op {
 public:
  std::string_view name() const override { return "transpose"; }
  Tensors forward(std::span<const Tensor> in, Saver&) override { return {in[0].transpose(0, 1)}; }
  void backward(BackwardContext& ctx) override { ctx.set_grad(0, ctx.grad().transpose(0, 1)); }
};

class Repeat final : public Op {
 public:
  explicit Repeat(Index rows) : rows_(rows) {}
  std::string_view name() const override { return "repeat"; }
  Tensors forward(std::span<const Tensor> in, Saver&) override {
    return {in[0].expand(Shape{rows_, in[0].shape()[0]})};
  }
  void backward(BackwardContext& ctx) override {
    const Tensor dy = ctx.grad().contiguous();
    const Index cols = dy.shape()[1];
    Tensor dx = Tensor::zeros(ctx.context(), Shape{cols});
    for (Index i = 0; !dy.is_meta() && i < dy.numel(); ++i)
      dx.data_as<float>()[i % cols] += dy.data_as<float>()[i];
    ctx.set_grad(0, dx);
  }

 private:
  Index rows_;
};

class ToyBlock : public Block {
 public:
  ToyBlock(const std::string& name, ForwardHook hook) : Block(name), hook_(std::move(hook)) {}
  Variables forward(const Variables& in, const BlockContext& context) const final {
    if (hook_) hook_(context.block, context);
    return run(in, context);
  }
  virtual Variables run(const Variables& in, const BlockContext& context) const = 0;

 private:
  ForwardHook hook_;
};

constexpr Index C = ToySource::width;

/// (x, kinds) -> h, h again as the value that skips, kinds, a value that nobody will use.
class Begin final : public ToyBlock {
 public:
  explicit Begin(const ForwardHook& hook)
      : ToyBlock("begin", hook), in_(scope("begin.in"), C, C, 0.5f), dead_(scope("begin.dead"), C, 3, 0.5f) {}
  Variables run(const Variables& in, const BlockContext& ctx) const override {
    const Variable h = in_(in[0], ctx);
    return {h, h, in[1], dead_(in[0], ctx)};
  }

 private:
  Linear in_, dead_;
};

/// h is used twice here, besides skipping: three gradients meet in it. The dead value ends here. h goes on as
/// a transposed view.
class Mix final : public ToyBlock {
 public:
  explicit Mix(const ForwardHook& hook)
      : ToyBlock("mix", hook), norm_(scope("mix.norm"), C, 1e-5f), fc_(scope("mix.fc"), C, C, 0.7f) {}
  Variables run(const Variables& in, const BlockContext& ctx) const override {
    const Variable y = ops::add(in[0], ctx.dropout(fc_(ops::gelu(norm_(in[0], ctx)), ctx), 0.25f, "mix"));
    return {transposed(y), in[1], in[2]};
  }

 private:
  LayerNorm norm_;
  Linear fc_;
};

/// Adds a row of a table for each kind; a parameter goes on as an expanded view. The skipping value is used
/// and skips on.
class Look final : public ToyBlock {
 public:
  explicit Look(const ForwardHook& hook)
      : ToyBlock("look", hook),
        table_(scope("look.table"), 4, C, 0.5f),
        shift_(scope("look").declare("shift", Shape{C}, Initializer::ones())) {}
  Variables run(const Variables& in, const BlockContext& ctx) const override {
    const Variable h = ops::add(ops::add(transposed(in[0]), table_(in[2], ctx)), ops::gelu(in[1]));
    return {h, repeated(ctx.weight(shift_), h.shape()[0]), in[1], in[2]};
  }

 private:
  Embedding table_;
  const Parameter& shift_;
};

/// Passes on what it got, swapped: a block without parameters.
class Swap final : public ToyBlock {
 public:
  explicit Swap(const ForwardHook& hook) : ToyBlock("swap", hook) {}
  Variables run(const Variables& in, const BlockContext&) const override { return {in[2], in[1], in[0]}; }
};

class End final : public ToyBlock {
 public:
  explicit End(const ForwardHook& hook)
      : ToyBlock("end", hook), out_(scope("end.out"), C, C, 0.5f), tied_(scope("begin.in"), C, C, 0.5f) {}
  Variables run(const Variables& in, const BlockContext& ctx) const override {
    const Variable h = ops::add(ops::add(in[2], in[1]), ops::add(in[0], ops::gelu(in[0])));
    return {tied_(ops::gelu(out_(h, ctx)), ctx)};
  }

 private:
  Linear out_, tied_;
};

float number(Index a, Index b, Index c) {
  return static_cast<float>(std::sin(static_cast<double>(a) * 12.9898 + static_cast<double>(b) * 78.233 +
                                     static_cast<double>(c) * 3.7));
}

}  // namespace

Variable squared_error_sum(const Variable& y, const Variable& t) {
  return apply_one<SquaredErrorSum>({y, t});
}
Variable transposed(const Variable& x) { return apply_one<Transpose>({x}); }
Variable repeated(const Variable& x, Index rows) { return apply_one<Repeat>({x}, rows); }

Model make_toy(ForwardHook hook) {
  std::vector<std::unique_ptr<Block>> blocks;
  blocks.push_back(std::make_unique<Begin>(hook));
  blocks.push_back(std::make_unique<Mix>(hook));
  blocks.push_back(std::make_unique<Look>(hook));
  blocks.push_back(std::make_unique<Swap>(hook));
  blocks.push_back(std::make_unique<End>(hook));
  return Model("toy", std::move(blocks), [](const Variables& outputs, const Tensors& targets) {
    return squared_error_sum(outputs[0], Variable(targets[0]));
  });
}

MicroBatch ToySource::load(RankContext& context, Index step, SequenceSpan sequences, bool inputs,
                           bool targets) {
  MicroBatch batch = micro_batch_of(context, sequences, 1);
  std::vector<float> x, t;
  std::vector<std::int32_t> kinds;
  for (Index s = sequences.first; s < sequences.last; ++s) {
    kinds.push_back(static_cast<std::int32_t>((step * 5 + s * 3) % 4));
    for (Index c = 0; c < width; ++c) {
      x.push_back(number(step, s, c));
      t.push_back(number(step, s, c + width));
    }
  }
  if (change_) change_(step, sequences, x);
  const Shape shape{sequences.size(), width};
  if (inputs)
    batch.inputs = {Tensor::from(context, shape, x), Tensor::from(context, Shape{sequences.size()}, kinds)};
  if (targets) batch.targets = {Tensor::from(context, shape, t)};
  return batch;
}

Training toy_training(const Model& model, const Plan& plan) {
  Training t;
  t.model = &model;
  t.micro_batch = 2;
  t.source = [m = plan.micro_batches] { return std::make_unique<ToySource>(2 * m - 1); };
  t.plan = plan;
  t.partition = even_partition(model, plan.stages);
  return t;
}

}  // namespace penstock::testing
