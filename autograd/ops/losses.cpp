// mse_sum: keeps its inputs, no copy of the difference.
#include "autograd/ops/losses.h"

#include "autograd/ops/operands.h"
#include "kernels/loss.h"

namespace penstock::ops {
namespace {

class MseSumOp final : public Op {
 public:
  std::string_view name() const override { return "mse_sum"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    require_floats(name(), in);
    require<ShapeError>(in[0].shape() == in[1].shape(), "mse_sum: {} and the target {}", in[0].shape().str(),
                        in[1].shape().str());
    const Tensor x = in[0].contiguous(), target = in[1].contiguous();
    RankContext& context = x.context();
    const Tensor workspace = Tensor::empty(context, Shape{kernels::squared_error_workspace(x.numel())},
                                           DType::f64, MemoryKind::workspace);
    const Tensor result = Tensor::empty(context, Shape{1}, DType::f64);
    kernels::squared_error_forward(context.stream(), x.numel(), x, target, workspace, result);
    save.input(0, 3u);
    save.input(1, 3u);
    return {result};
  }

  void backward(BackwardContext& ctx) override {
    const Tensor x = ctx.input(0).contiguous(), target = ctx.input(1).contiguous();
    for (int i = 0; i < 2; ++i) {
      if (!ctx.wants(i)) continue;
      const Tensor dx = Tensor::empty(ctx.context(), x.shape(), x.dtype());
      kernels::squared_error_backward(ctx.stream(), x.numel(), i == 0 ? 2.0f : -2.0f, ctx.grad().contiguous(),
                                      x, target, dx);
      ctx.set_grad(i, dx);
    }
  }
};

}  // namespace

Variable mse_sum(const Variable& x, const Variable& target) { return apply_one<MseSumOp>({x, target}); }

}  // namespace penstock::ops
