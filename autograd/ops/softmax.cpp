// softmax, log_softmax: both keep their output alone.
#include "autograd/ops/softmax.h"

#include "autograd/ops/operands.h"
#include "kernels/softmax.h"

namespace penstock::ops {
namespace {

class SoftmaxOp final : public Op {
 public:
  explicit SoftmaxOp(bool logarithm) : logarithm_(logarithm) {}

  std::string_view name() const override { return logarithm_ ? "log_softmax" : "softmax"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    require_floats(name(), in);
    require<ShapeError>(in[0].shape().rank() >= 1, "{}: a tensor without dimensions has no rows", name());
    const Tensor x = in[0].contiguous();
    rows_ = x.shape().without_last().numel();
    cols_ = x.shape().dim(-1);
    const Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
    const auto& kernel = logarithm_ ? kernels::log_softmax_forward : kernels::softmax_forward;
    kernel(x.context().stream(), rows_, cols_, x, y);
    save.output(0, 1u);
    return {y};
  }

  void backward(BackwardContext& ctx) override {
    if (!ctx.wants(0)) return;
    const Tensor dy = ctx.grad().contiguous();
    const Tensor dx = Tensor::empty(ctx.context(), dy.shape(), dy.dtype());
    const auto& kernel = logarithm_ ? kernels::log_softmax_backward : kernels::softmax_backward;
    kernel(ctx.stream(), rows_, cols_, ctx.output(0), dy, dx);
    ctx.set_grad(0, dx);
  }

 private:
  bool logarithm_;
  Index rows_ = 0, cols_ = 0;
};

}  // namespace

Variable softmax(const Variable& x) { return apply_one<SoftmaxOp>({x}, false); }
Variable log_softmax(const Variable& x) { return apply_one<SoftmaxOp>({x}, true); }

}  // namespace penstock::ops
