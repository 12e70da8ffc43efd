// add_layer_norm and add_rms_norm: keep the sum (an output, alive anyway) and the statistics of each row.
#include "autograd/ops/add_norm.h"

#include "autograd/ops/arithmetic.h"
#include "autograd/ops/layer_norm.h"
#include "autograd/ops/operands.h"
#include "autograd/ops/rms_norm.h"
#include "kernels/norm.h"
#include "kernels/reduce.h"

namespace penstock::ops {
namespace {

enum Input : int { x_, branch_, gain_, bias_ };
enum Output : int { sum_, normal_ };

/// What the two norms share: shapes, the residual path, gradients that are zero because nothing depends on
/// the norm.
class AddNormOp : public Op {
 public:
  explicit AddNormOp(float eps) : eps_(eps) {}

  Tensors forward(std::span<const Tensor> in, Saver& save) final {
    require_floats(name(), in);
    require<ShapeError>(in[x_].shape() == in[branch_].shape(), "{}: {} and {}", name(), in[x_].shape().str(),
                        in[branch_].shape().str());
    require<ShapeError>(in[x_].shape().rank() >= 1, "{}: x without dimensions", name());
    const Tensor x = in[x_].contiguous(), branch = in[branch_].contiguous();
    cols_ = x.shape().dim(-1);
    rows_ = x.shape().without_last().numel();
    for (std::size_t i = gain_; i < in.size(); ++i)
      require<ShapeError>(in[i].shape() == Shape{cols_}, "{}: {} {} for x {}", name(),
                          i == gain_ ? "gain" : "bias", in[i].shape().str(), x.shape().str());
    RankContext& context = x.context();
    const Tensor sum = Tensor::empty(context, x.shape(), x.dtype()),
                 normal = Tensor::empty(context, x.shape(), x.dtype());
    run(context, x, branch, in[gain_].contiguous(), in.size() > bias_ ? in[bias_].contiguous() : Tensor(),
        sum, normal, save);
    save.output(sum_, all);
    save.input(gain_, activations);
    return {sum, normal};
  }

  void backward(BackwardContext& ctx) final {
    if (!ctx.grad(normal_).defined()) {
      for (const int i : {x_, branch_})
        if (ctx.wants(i)) ctx.set_grad(i, ctx.grad(sum_));
      for (const int i : {gain_, bias_}) {
        if (!ctx.wants(i)) continue;
        const GradientTarget target = ctx.target(i, Shape{cols_});
        if (!target.accumulate) Tensor(target.tensor).fill_zero();
      }
      return;
    }
    const Tensor dy = ctx.grad(normal_).contiguous();
    if (ctx.wants(x_) || ctx.wants(branch_)) {
      const Tensor around = ctx.grad(sum_).defined() ? ctx.grad(sum_).contiguous() : Tensor();
      const Tensor dx = Tensor::empty(ctx.context(), dy.shape(), dy.dtype());
      input_gradient(ctx, dy, around.defined() ? kernels::In(around) : kernels::In(), dx);
      for (const int i : {x_, branch_})
        if (ctx.wants(i)) ctx.set_grad(i, dx);
    }
    weight_gradients(ctx, dy);
  }

 protected:
  static constexpr InputMask activations = (1u << x_) | (1u << branch_), all = activations | (1u << gain_);

  /// Computes the outputs and saves the statistics of each row.
  virtual void run(RankContext& context, const Tensor& x, const Tensor& branch, const Tensor& gain,
                   const Tensor& bias, const Tensor& sum, const Tensor& normal, Saver& save) = 0;
  /// dx = gradient through the norm + `around`
  virtual void input_gradient(BackwardContext& ctx, const Tensor& dy, kernels::In around,
                              const Tensor& dx) = 0;
  virtual void weight_gradients(BackwardContext& ctx, const Tensor& dy) = 0;

  float eps_;
  Index rows_ = 0, cols_ = 0;
};

class AddLayerNormOp final : public AddNormOp {
 public:
  using AddNormOp::AddNormOp;
  std::string_view name() const override { return "add_layer_norm"; }

 protected:
  void run(RankContext& context, const Tensor& x, const Tensor& branch, const Tensor& gain,
           const Tensor& bias, const Tensor& sum, const Tensor& normal, Saver& save) override {
    const Tensor mean = Tensor::empty(context, Shape{rows_}), rstd = Tensor::empty(context, Shape{rows_});
    kernels::add_layer_norm_forward(context.stream(), rows_, cols_, eps_, x, branch, gain,
                                    bias.defined() ? kernels::In(bias) : kernels::In(), sum, normal, mean,
                                    rstd);
    save.tensor(mean, all);
    save.tensor(rstd, all);
  }
  void input_gradient(BackwardContext& ctx, const Tensor& dy, kernels::In around, const Tensor& dx) override {
    kernels::layer_norm_backward_input(ctx.stream(), rows_, cols_, ctx.output(sum_),
                                       ctx.input(gain_).contiguous(), ctx.saved(0), ctx.saved(1), dy, around,
                                       dx);
  }
  void weight_gradients(BackwardContext& ctx, const Tensor& dy) override {
    if (ctx.wants(gain_)) {
      const GradientTarget dgain = ctx.target(gain_, Shape{cols_});
      const GradientTarget dbias = ctx.wants(bias_) ? ctx.target(bias_, Shape{cols_}) : GradientTarget{};
      kernels::layer_norm_backward_weight(
          ctx.stream(), rows_, cols_, ctx.output(sum_), ctx.saved(0), ctx.saved(1), dy, dgain.accumulate,
          dgain.tensor, dbias.accumulate,
          dbias.tensor.defined() ? kernels::Out(dbias.tensor) : kernels::Out());
    } else if (ctx.wants(bias_)) {  // the sum is not kept for this
      const GradientTarget dbias = ctx.target(bias_, Shape{cols_});
      kernels::column_sum(ctx.stream(), rows_, cols_, dbias.accumulate, dy, dbias.tensor);
    }
  }
};

class AddRmsNormOp final : public AddNormOp {
 public:
  using AddNormOp::AddNormOp;
  std::string_view name() const override { return "add_rms_norm"; }

 protected:
  void run(RankContext& context, const Tensor& x, const Tensor& branch, const Tensor& gain, const Tensor&,
           const Tensor& sum, const Tensor& normal, Saver& save) override {
    const Tensor rstd = Tensor::empty(context, Shape{rows_});
    kernels::add_rms_norm_forward(context.stream(), rows_, cols_, eps_, x, branch, gain, sum, normal, rstd);
    save.tensor(rstd, all);
  }
  void input_gradient(BackwardContext& ctx, const Tensor& dy, kernels::In around, const Tensor& dx) override {
    kernels::rms_norm_backward_input(ctx.stream(), rows_, cols_, ctx.output(sum_),
                                     ctx.input(gain_).contiguous(), ctx.saved(0), dy, around, dx);
  }
  void weight_gradients(BackwardContext& ctx, const Tensor& dy) override {
    if (!ctx.wants(gain_)) return;
    const GradientTarget dgain = ctx.target(gain_, Shape{cols_});
    kernels::rms_norm_backward_weight(ctx.stream(), rows_, cols_, ctx.output(sum_), ctx.saved(0), dy,
                                      dgain.accumulate, dgain.tensor);
  }
};

template <class OpType>
SumAndNorm record(std::initializer_list<Variable> inputs, float eps) {
  const Variables outputs =
      apply_op(std::make_unique<OpType>(eps), std::span<const Variable>(inputs.begin(), inputs.size()));
  return {outputs[sum_], outputs[normal_]};
}

}  // namespace

SumAndNorm add_layer_norm(const Variable& x, const Variable& branch, const Variable& gain,
                          const Variable& bias, float eps) {
  if (bias.defined()) return record<AddLayerNormOp>({x, branch, gain, bias}, eps);
  return record<AddLayerNormOp>({x, branch, gain}, eps);
}

SumAndNorm add_rms_norm(const Variable& x, const Variable& branch, const Variable& gain, float eps) {
  return record<AddRmsNormOp>({x, branch, gain}, eps);
}

namespace composed {

SumAndNorm add_layer_norm(const Variable& x, const Variable& branch, const Variable& gain,
                          const Variable& bias, float eps) {
  const Variable sum = add(x, branch);
  return {sum, layer_norm(sum, gain, bias, eps)};
}

SumAndNorm add_rms_norm(const Variable& x, const Variable& branch, const Variable& gain, float eps) {
  const Variable sum = add(x, branch);
  return {sum, rms_norm(sum, gain, eps)};
}

}  // namespace composed

}  // namespace penstock::ops
