// swiglu: keeps its inputs.
#include "autograd/ops/swiglu.h"

#include "autograd/ops/operands.h"
#include "kernels/swiglu.h"

namespace penstock::ops {
namespace {

enum Input : int { gate_, up_ };

class SwigluOp final : public Op {
 public:
  std::string_view name() const override { return "swiglu"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    require_floats(name(), in);
    require<ShapeError>(in[gate_].shape() == in[up_].shape(), "swiglu: gate {} and up {}",
                        in[gate_].shape().str(), in[up_].shape().str());
    const Tensor gate = in[gate_].contiguous(), up = in[up_].contiguous();
    const Tensor y = Tensor::empty(gate.context(), gate.shape(), gate.dtype());
    kernels::swiglu_forward(gate.context().stream(), gate.numel(), gate, up, y);
    save.tensor(gate, (1u << gate_) | (1u << up_));
    save.tensor(up, 1u << gate_);
    return {y};
  }

  void backward(BackwardContext& ctx) override {
    const Tensor dy = ctx.grad().contiguous(), gate = ctx.saved(0);
    const Tensor up = ctx.wants(gate_) ? ctx.saved(1) : Tensor();
    const Tensor dgate = ctx.wants(gate_) ? Tensor::empty(ctx.context(), dy.shape(), dy.dtype()) : Tensor();
    const Tensor dup = ctx.wants(up_) ? Tensor::empty(ctx.context(), dy.shape(), dy.dtype()) : Tensor();
    const auto out = [](const Tensor& t) { return t.defined() ? kernels::Out(t) : kernels::Out(); };
    kernels::swiglu_backward(ctx.stream(), dy.numel(), gate, up.defined() ? kernels::In(up) : kernels::In(),
                             dy, out(dgate), out(dup));
    if (dgate.defined()) ctx.set_grad(gate_, dgate);
    if (dup.defined()) ctx.set_grad(up_, dup);
  }
};

}  // namespace

Variable swiglu(const Variable& gate, const Variable& up) { return apply_one<SwigluOp>({gate, up}); }

}  // namespace penstock::ops
