// layer_norm: keeps x, mean and 1/deviation of each row.
#include "autograd/ops/layer_norm.h"

#include "kernels/norm.h"

namespace penstock::ops {
namespace {

enum Input : int { x_, gain_, bias_ };

class LayerNormOp final : public Op {
 public:
  explicit LayerNormOp(float eps) : eps_(eps) {}

  std::string_view name() const override { return "layer_norm"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    const Tensor x = in[x_].contiguous();
    require<ShapeError>(x.shape().rank() >= 1, "layer_norm: x without dimensions");
    cols_ = x.shape().dim(-1);
    rows_ = x.shape().without_last().numel();
    require<ShapeError>(in[gain_].shape() == Shape{cols_} && in[bias_].shape() == Shape{cols_},
                        "layer_norm: gain {} and bias {} for x {}", in[gain_].shape().str(), in[bias_].shape().str(),
                        x.shape().str());
    RankContext& context = x.context();
    const Tensor y = Tensor::empty(context, x.shape(), x.dtype());
    const Tensor mean = Tensor::empty(context, Shape{rows_}), rstd = Tensor::empty(context, Shape{rows_});
    kernels::layer_norm_forward(context.stream(), rows_, cols_, eps_, x, in[gain_], in[bias_], y, mean, rstd);
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
      const Tensor dx = Tensor::empty(ctx.context(), dy.shape(), dy.dtype());
      kernels::layer_norm_backward_input(ctx.stream(), rows_, cols_, saved(0), ctx.input(gain_), saved(1), saved(2), dy, dx);
      ctx.set_grad(x_, dx);
    }
    if (!ctx.wants(gain_) && !ctx.wants(bias_)) return;
    const GradientTarget dgain = ctx.wants(gain_) ? ctx.target(gain_, Shape{cols_}) : GradientTarget{};
    const GradientTarget dbias = ctx.wants(bias_) ? ctx.target(bias_, Shape{cols_}) : GradientTarget{};
    const auto out = [](const GradientTarget& t) { return t.tensor.defined() ? kernels::Out(t.tensor) : kernels::Out(); };
    const bool gain = ctx.wants(gain_);
    kernels::layer_norm_backward_weight(ctx.stream(), rows_, cols_, gain ? saved(0) : kernels::In(),
                                        gain ? saved(1) : kernels::In(), gain ? saved(2) : kernels::In(), dy,
                                        dgain.accumulate, out(dgain), dbias.accumulate, out(dbias));
  }

 private:
  float eps_;
  Index rows_ = 0, cols_ = 0;
};

}  // namespace

Variable layer_norm(const Variable& x, const Variable& gain, const Variable& bias, float eps) {
  return apply_one<LayerNormOp>({x, gain, bias}, eps);
}

}  // namespace penstock::ops
