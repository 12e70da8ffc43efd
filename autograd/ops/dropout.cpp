// dropout: saves nothing but the numbers of the sequences; the mask is drawn again.
#include "autograd/ops/dropout.h"

#include "autograd/convert.h"
#include "autograd/ops/operands.h"
#include "kernels/dropout.h"

namespace penstock::ops {
namespace {

class DropoutOp final : public Op {
 public:
  DropoutOp(float probability, std::uint64_t key, const StepState* state)
      : probability_(probability), key_(key), state_(state) {}

  std::string_view name() const override { return "dropout"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    require_floats(name(), in.first(1));
    require<ShapeError>(in[0].shape().rank() >= 1 && in[1].shape() == Shape{in[0].shape()[0]},
                        "dropout: sequence numbers {} for x {}", in[1].shape().str(), in[0].shape().str());
    require_indices(name(), "sequence numbers", in[1]);
    const Tensor sequence_ids = converted(in[1], DType::i64).contiguous();
    save.tensor(sequence_ids, 1u);
    return {run(in[0], sequence_ids)};
  }

  void backward(BackwardContext& ctx) override {
    if (ctx.wants(0)) ctx.set_grad(0, run(ctx.grad(), ctx.saved(0)));
  }

 private:
  Tensor run(const Tensor& source, const Tensor& sequence_ids) const {
    const Tensor x = source.contiguous();
    const Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
    const Index sequences = x.shape()[0];
    kernels::dropout(x.context().stream(), sequences, sequences ? x.numel() / sequences : 0, probability_,
                     key_, state_, sequence_ids, x, y);
    return y;
  }

  float probability_;
  std::uint64_t key_;
  const StepState* state_;
};

}  // namespace

Variable dropout(const Variable& x, float probability, std::uint64_t key, const StepState* state,
                 const Variable& sequence_ids) {
  require<ValueError>(probability >= 0 && probability < 1, "dropout: probability {} is not in [0, 1)",
                      probability);
  if (probability == 0) return x;
  return apply_one<DropoutOp>({x, sequence_ids}, probability, key, state);
}

}  // namespace penstock::ops
