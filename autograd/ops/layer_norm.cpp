// layer_norm: keeps x, mean and 1/deviation of each row.
#include "autograd/ops/layer_norm.h"

#include "autograd/ops/operands.h"
#include "kernels/norm.h"
#include "kernels/reduce.h"

namespace penstock::ops {
namespace {

enum Input : int { x_, gain_, bias_ };

class LayerNormOp final : public Op {
 public:
  explicit LayerNormOp(float eps) : eps_(eps) {}

  std::string_view name() const override { return "layer_norm"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    require_floats(name(), in);
    const Tensor x = in[x_].contiguous();
    require<ShapeError>(x.shape().rank() >= 1, "layer_norm: x without dimensions");
    cols_ = x.shape().dim(-1);
    rows_ = x.shape().without_last().numel();
    const bool biased = in.size() > bias_;
    require<ShapeError>(in[gain_].shape() == Shape{cols_} && (!biased || in[bias_].shape() == Shape{cols_}),
                        "layer_norm: gain {} and bias {} for x {}", in[gain_].shape().str(),
                        biased ? in[bias_].shape().str() : "none", x.shape().str());
    RankContext& context = x.context();
    const Tensor gain = in[gain_].contiguous(), bias = biased ? in[bias_].contiguous() : Tensor();
    const Tensor y = Tensor::empty(context, x.shape(), x.dtype());
    const Tensor mean = Tensor::empty(context, Shape{rows_}), rstd = Tensor::empty(context, Shape{rows_});
    kernels::layer_norm_forward(context.stream(), rows_, cols_, eps_, x, gain,
                                biased ? kernels::In(bias) : kernels::In(), y, mean, rstd);
    constexpr InputMask x_and_gain = (1u << x_) | (1u << gain_);
    save.tensor(x, x_and_gain);
    save.tensor(mean, x_and_gain);
    save.tensor(rstd, x_and_gain);
    save.input(gain_, 1u << x_);
    return {y};
  }

  void backward(BackwardContext& ctx) override {
    const Tensor dy = ctx.grad().contiguous();
    const auto saved = [&](int k) { return kernels::In(ctx.saved(k)); };
    if (ctx.wants(x_)) {
      const Tensor gain = ctx.input(gain_).contiguous();
      const Tensor dx = Tensor::empty(ctx.context(), dy.shape(), dy.dtype());
      kernels::layer_norm_backward_input(ctx.stream(), rows_, cols_, saved(0), gain, saved(1), saved(2), dy,
                                         {}, dx);
      ctx.set_grad(x_, dx);
    }
    if (ctx.wants(gain_)) {
      const GradientTarget dgain = ctx.target(gain_, Shape{cols_});
      const GradientTarget dbias = ctx.wants(bias_) ? ctx.target(bias_, Shape{cols_}) : GradientTarget{};
      kernels::layer_norm_backward_weight(
          ctx.stream(), rows_, cols_, saved(0), saved(1), saved(2), dy, dgain.accumulate, dgain.tensor,
          dbias.accumulate, dbias.tensor.defined() ? kernels::Out(dbias.tensor) : kernels::Out());
    } else if (ctx.wants(bias_)) {  // x is not kept for this
      const GradientTarget dbias = ctx.target(bias_, Shape{cols_});
      kernels::column_sum(ctx.stream(), rows_, cols_, dbias.accumulate, dy, dbias.tensor);
    }
  }

 private:
  float eps_;
  Index rows_ = 0, cols_ = 0;
};

}  // namespace

Variable layer_norm(const Variable& x, const Variable& gain, const Variable& bias, float eps) {
  if (bias.defined()) return apply_one<LayerNormOp>({x, gain, bias}, eps);
  return apply_one<LayerNormOp>({x, gain}, eps);
}

}  // namespace penstock::ops
