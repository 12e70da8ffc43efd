// cross_entropy_sum: keeps the logits and one log-sum-exp a row; no second copy of the probabilities.
#include "autograd/ops/cross_entropy.h"

#include "autograd/convert.h"
#include "autograd/ops/operands.h"

namespace penstock::ops {
namespace {

class CrossEntropyOp final : public Op {
 public:
  CrossEntropyOp(float smoothing, std::int32_t ignored) : smoothing_(smoothing), ignored_(ignored) {}

  std::string_view name() const override { return "cross_entropy"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    require<ValueError>(smoothing_ >= 0 && smoothing_ <= 1,
                        "cross_entropy: label smoothing {} is outside 0..1", smoothing_);
    require_floats(name(), in.first(1));
    require_indices(name(), "targets", in[1]);
    const Tensor logits = in[0].contiguous(), targets = converted(in[1], DType::i32).contiguous();
    require<ShapeError>(logits.shape().rank() >= 1 && targets.shape() == logits.shape().without_last(),
                        "cross_entropy: targets {} for logits {}", targets.shape().str(),
                        logits.shape().str());
    RankContext& context = logits.context();
    vocabulary_ = logits.shape().dim(-1);
    rows_ = targets.numel();
    const Tensor lse = Tensor::empty(context, Shape{rows_});
    const Tensor sum_and_count = Tensor::empty(context, Shape{2}, DType::f64);
    kernels::cross_entropy_forward(context.stream(), rows_, vocabulary_, smoothing_, ignored_, logits,
                                   targets, lse, sum_and_count);
    save.tensor(logits, 1u);
    save.tensor(targets, 1u);
    save.tensor(lse, 1u);
    return {sum_and_count.slice(0, 0, 1)};
  }

  void backward(BackwardContext& ctx) override {
    if (!ctx.wants(0)) return;
    const Tensor logits = ctx.saved(0);
    // Two handles are the tape's and ours: then nobody reads the logits again, and their memory takes the
    // gradient.
    const bool mine = logits.storage().use_count() == 2;
    const Tensor dlogits = mine ? logits : Tensor::empty(ctx.context(), logits.shape(), logits.dtype());
    kernels::cross_entropy_backward(ctx.stream(), rows_, vocabulary_, smoothing_, ignored_, ctx.grad(),
                                    logits, ctx.saved(1), ctx.saved(2), dlogits);
    ctx.set_grad(0, dlogits);
  }

 private:
  float smoothing_;
  std::int32_t ignored_;
  Index rows_ = 0, vocabulary_ = 0;
};

}  // namespace

Variable cross_entropy_sum(const Variable& logits, const Variable& targets, float label_smoothing,
                           std::int32_t ignored) {
  return apply_one<CrossEntropyOp>({logits, targets}, label_smoothing, ignored);
}

}  // namespace penstock::ops
