// gelu: keeps x, as it came.
#include "autograd/ops/gelu.h"

#include "autograd/ops/operands.h"

namespace penstock::ops {
namespace {

enum Input : int { x_, bias_ };

class GeluOp final : public Op {
 public:
  explicit GeluOp(GeluForm form) : form_(form) {}

  std::string_view name() const override { return "gelu"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    require_floats(name(), in);
    const Tensor x = in[x_].contiguous();
    biased_ = in.size() > bias_;
    require<ShapeError>(!biased_ || (x.shape().rank() >= 1 && in[bias_].shape() == Shape{x.shape().dim(-1)}),
                        "gelu: bias {} for x {}", biased_ ? in[bias_].shape().str() : "", x.shape().str());
    cols_ = x.shape().rank() >= 1 ? x.shape().dim(-1) : 1;
    rows_ = x.shape().rank() >= 1 ? x.shape().without_last().numel() : 1;
    const Tensor bias = biased_ ? in[bias_].contiguous() : Tensor();
    const Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
    kernels::gelu_forward(x.context().stream(), form_, rows_, cols_, x,
                          biased_ ? kernels::In(bias) : kernels::In(), y);
    constexpr InputMask both = (1u << x_) | (1u << bias_);
    save.tensor(x, both);
    if (biased_) save.input(bias_, both);
    return {y};
  }

  void backward(BackwardContext& ctx) override {
    const Tensor x = ctx.saved(0), dy = ctx.grad().contiguous(),
                 b = biased_ ? ctx.input(bias_).contiguous() : Tensor();
    const kernels::In bias = biased_ ? kernels::In(b) : kernels::In();
    if (ctx.wants(x_)) {
      const Tensor dx = Tensor::empty(ctx.context(), x.shape(), x.dtype());
      kernels::gelu_backward(ctx.stream(), form_, rows_, cols_, x, bias, dy, dx);
      ctx.set_grad(x_, dx);
    }
    if (ctx.wants(bias_)) {
      const GradientTarget dbias = ctx.target(bias_, Shape{cols_});
      kernels::gelu_backward_bias(ctx.stream(), form_, rows_, cols_, x, bias, dy, dbias.accumulate,
                                  dbias.tensor);
    }
  }

 private:
  GeluForm form_;
  bool biased_ = false;
  Index rows_ = 0, cols_ = 0;
};

}  // namespace

Variable gelu(const Variable& x, GeluForm form, const Variable& bias) {
  if (bias.defined()) return apply_one<GeluOp>({x, bias}, form);
  return apply_one<GeluOp>({x}, form);
}

}  // namespace penstock::ops
