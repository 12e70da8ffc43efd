// rms_norm: keeps x and 1 / root mean square of each row.
#include "autograd/ops/rms_norm.h"

#include "autograd/ops/operands.h"
#include "kernels/norm.h"

namespace penstock::ops {
namespace {

enum Input : int { x_, gain_ };

class RmsNormOp final : public Op {
 public:
  RmsNormOp(float eps, bool of_heads) : eps_(eps), of_heads_(of_heads) {}

  std::string_view name() const override { return of_heads_ ? "head_rms_norm" : "rms_norm"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    require_floats(name(), in);
    const Tensor x = in[x_].contiguous(), gain = in[gain_].contiguous();
    require<ShapeError>(x.shape().rank() >= 1, "{}: x without dimensions", name());
    require<ShapeError>(gain.shape().rank() == 1, "{}: gain {} is not of one dimension", name(),
                        gain.shape().str());
    cols_ = gain.numel();
    const Index last = x.shape().dim(-1);
    require<ShapeError>(last == cols_ || (of_heads_ && cols_ > 0 && last % cols_ == 0),
                        "{}: gain {} for x {}", name(), gain.shape().str(), x.shape().str());
    rows_ = x.shape().without_last().numel() * (cols_ > 0 ? last / cols_ : 1);
    RankContext& context = x.context();
    const Tensor y = Tensor::empty(context, x.shape(), x.dtype());
    const Tensor rstd = Tensor::empty(context, Shape{rows_});
    kernels::rms_norm_forward(context.stream(), rows_, cols_, eps_, x, gain, y, rstd);
    constexpr InputMask both = (1u << x_) | (1u << gain_);
    save.tensor(x, both);
    save.tensor(rstd, both);
    save.input(gain_, 1u << x_);
    return {y};
  }

  void backward(BackwardContext& ctx) override {
    const Tensor dy = ctx.grad().contiguous(), x = ctx.saved(0), rstd = ctx.saved(1);
    if (ctx.wants(x_)) {
      const Tensor dx = Tensor::empty(ctx.context(), dy.shape(), dy.dtype());
      kernels::rms_norm_backward_input(ctx.stream(), rows_, cols_, x, ctx.input(gain_).contiguous(), rstd, dy,
                                       {}, dx);
      ctx.set_grad(x_, dx);
    }
    if (ctx.wants(gain_)) {
      const GradientTarget dgain = ctx.target(gain_, Shape{cols_});
      kernels::rms_norm_backward_weight(ctx.stream(), rows_, cols_, x, rstd, dy, dgain.accumulate,
                                        dgain.tensor);
    }
  }

 private:
  float eps_;
  bool of_heads_;
  Index rows_ = 0, cols_ = 0;
};

}  // namespace

Variable rms_norm(const Variable& x, const Variable& gain, float eps) {
  return apply_one<RmsNormOp>({x, gain}, eps, false);
}

Variable head_rms_norm(const Variable& x, const Variable& gain, float eps) {
  return apply_one<RmsNormOp>({x, gain}, eps, true);
}

}  // namespace penstock::ops
