// Elementwise ops: add and GELU.
#include "autograd/ops/elementwise.h"

#include "kernels/elementwise.h"

namespace penstock::ops {
namespace {

class AddOp final : public Op {
 public:
  std::string_view name() const override { return "add"; }

  Tensors forward(std::span<const Tensor> in, Saver&) override {
    require<ShapeError>(in[0].shape() == in[1].shape(), "add: {} and {}", in[0].shape().str(), in[1].shape().str());
    const Tensor a = in[0].contiguous(), b = in[1].contiguous();
    const Tensor y = Tensor::empty(a.context(), a.shape(), a.dtype());
    kernels::add(a.context().stream(), a.numel(), a, b, y);
    return {y};
  }

  void backward(BackwardContext& ctx) override {
    for (int i = 0; i < 2; ++i)
      if (ctx.wants(i)) ctx.set_grad(i, ctx.grad());
  }
};

class GeluOp final : public Op {
 public:
  std::string_view name() const override { return "gelu"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    const Tensor x = in[0].contiguous();
    const Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
    kernels::gelu_forward(x.context().stream(), x.numel(), x, y);
    save.tensor(x, 1u);
    return {y};
  }

  void backward(BackwardContext& ctx) override {
    if (!ctx.wants(0)) return;
    const Tensor x = ctx.saved(0), dy = ctx.grad().contiguous();
    const Tensor dx = Tensor::empty(ctx.context(), x.shape(), x.dtype());
    kernels::gelu_backward(ctx.stream(), x.numel(), x, dy, dx);
    ctx.set_grad(0, dx);
  }
};

}  // namespace

Variable add(const Variable& a, const Variable& b) { return apply_one<AddOp>({a, b}); }

Variable gelu(const Variable& x) { return apply_one<GeluOp>({x}); }

}  // namespace penstock::ops
