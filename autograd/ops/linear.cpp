// linear: one matrix product forward, one for each half of the backward.
#include "autograd/ops/linear.h"

#include "autograd/ops/operands.h"
#include "autograd/ops/product.h"
#include "kernels/reduce.h"

namespace penstock::ops {
namespace {

enum Input : int { x_, weight_, bias_ };

class LinearOp final : public Op {
 public:
  explicit LinearOp(WeightLayout layout) : out_in_(layout == WeightLayout::out_in) {}

  std::string_view name() const override { return "linear"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    require_floats(name(), in);
    const Tensor& w = in[weight_];
    const bool bias = in.size() > bias_;
    require<ShapeError>(in[x_].shape().rank() >= 1 && w.shape().rank() == 2, "linear: x {} times weight {}",
                        in[x_].shape().str(), w.shape().str());
    in_ = w.shape()[out_in_ ? 1 : 0];
    out_ = w.shape()[out_in_ ? 0 : 1];
    require<ShapeError>(in[x_].shape().dim(-1) == in_,
                        "linear: x {} ends in {}, but the weight {} takes {} inputs", in[x_].shape().str(),
                        in[x_].shape().dim(-1), w.shape().str(), in_);
    require<ShapeError>(!bias || in[bias_].shape() == Shape{out_}, "linear: bias {} for {} outputs",
                        bias ? in[bias_].shape().str() : "", out_);
    const Tensor x = in[x_].contiguous(), b = bias ? in[bias_].contiguous() : Tensor();
    shape_ = x.shape();
    rows_ = shape_.without_last().numel();
    const Tensor y = Tensor::empty(x.context(), shape_.with(-1, out_), x.dtype());
    product({rows_, out_, in_, false, out_in_, false}, x, w.contiguous(), b, y);
    save.tensor(x, 1u << weight_);
    save.input(weight_, 1u << x_);
    return {y};
  }

  void backward(BackwardContext& ctx) override {
    const Tensor dy = ctx.grad().contiguous();
    if (ctx.wants(x_)) {  // dx (rows, in) = dy (rows, out) W^T
      const Tensor dx = Tensor::empty(ctx.context(), shape_, dy.dtype());
      product({rows_, in_, out_, false, !out_in_, false}, dy, ctx.input(weight_).contiguous(), {}, dx);
      ctx.set_grad(x_, dx);
    }
    if (ctx.wants(weight_)) {  // dW = x^T dy, or its transpose
      const Tensor x = ctx.saved(0);
      const GradientTarget dw = ctx.target(weight_, out_in_ ? Shape{out_, in_} : Shape{in_, out_});
      if (out_in_)
        product({out_, in_, rows_, true, false, dw.accumulate}, dy, x, {}, dw.tensor);
      else
        product({in_, out_, rows_, true, false, dw.accumulate}, x, dy, {}, dw.tensor);
    }
    if (ctx.wants(bias_)) {
      const GradientTarget db = ctx.target(bias_, Shape{out_});
      kernels::column_sum(ctx.stream(), rows_, out_, db.accumulate, dy, db.tensor);
    }
  }

 private:
  bool out_in_;
  Shape shape_;
  Index rows_ = 0, in_ = 0, out_ = 0;
};

}  // namespace

Variable linear(const Variable& x, const Variable& weight, const Variable& bias, WeightLayout layout) {
  if (bias.defined()) return apply_one<LinearOp>({x, weight, bias}, layout);
  return apply_one<LinearOp>({x, weight}, layout);
}

}  // namespace penstock::ops
