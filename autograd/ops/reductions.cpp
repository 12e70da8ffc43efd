// sum, mean, max.
#include "autograd/ops/reductions.h"

#include "autograd/convert.h"
#include "autograd/ops/operands.h"
#include "kernels/strided.h"

namespace penstock::ops {
namespace {

enum class Reduction : std::uint8_t { sum, mean, max };

class ReductionOp final : public Op {
 public:
  ReductionOp(std::string_view name, Reduction kind, std::vector<int> axes, bool keepdims)
      : name_(name), kind_(kind), axes_(std::move(axes)), keepdims_(keepdims) {}

  std::string_view name() const override { return name_; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    require_floats(name_, in);
    const Tensor& x = in[0];
    shape_ = x.shape();
    const Axes axes = find_axes();
    count_ = 1;
    kept_ = shape_;
    std::vector<Index> remaining;
    for (int d = 0; d < shape_.rank(); ++d) {
      if (axes[static_cast<std::size_t>(d)]) {
        count_ *= shape_[d];
        kept_ = kept_.with(d, 1);
      } else {
        remaining.push_back(shape_[d]);
      }
    }
    require<ShapeError>(kind_ == Reduction::sum || count_ > 0, "{}: of nothing, over empty dimensions of {}",
                        name_, shape_.str());
    const Tensor y = kind_ == Reduction::max
                         ? max_axes(x, axes)
                         : sum_axes(x, axes, kind_ == Reduction::mean ? static_cast<double>(count_) : 1.0);
    if (kind_ == Reduction::max) {
      save.input(0, 1u);
      save.output(0, 1u);
    }
    return {keepdims_ ? y : y.contiguous().reshape(Shape(remaining))};
  }

  void backward(BackwardContext& ctx) override {
    if (!ctx.wants(0)) return;
    const Tensor dy = ctx.grad().contiguous().reshape(kept_);
    if (kind_ == Reduction::sum || count_ == 1) return ctx.set_grad(0, dy.expand(shape_));
    if (kind_ == Reduction::max) return ctx.set_grad(0, shared(ctx, dy));
    const Tensor share = Tensor::empty(ctx.context(), kept_, dy.dtype());
    kernels::unary(ctx.stream(), kernels::UnaryOp::affine,
                   {static_cast<float>(1 / static_cast<double>(count_)), 0},
                   kernels::strided(kept_, {&dy, 1}), dy, share);
    ctx.set_grad(0, share.expand(shape_));
  }

 private:
  Axes find_axes() const {
    Axes axes;
    for (const int axis : axes_) {
      const auto d = static_cast<std::size_t>(axis_of(name_, shape_, axis));
      require<ShapeError>(!axes[d], "{}: dimension {} is named twice", name_, axis);
      axes.set(d);
    }
    if (axes_.empty())
      for (int d = 0; d < shape_.rank(); ++d) axes.set(static_cast<std::size_t>(d));
    return axes;
  }

  static void divide(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& y) {
    const Tensor operands[] = {a, b};
    kernels::binary(stream, kernels::BinaryOp::quotient, kernels::strided(y.shape(), operands),
                    kernels::any_layout(a), kernels::any_layout(b), y);
  }

  /// dy over the number of elements that tie, at each of them.
  Tensor shared(BackwardContext& ctx, const Tensor& dy) const {
    using kernels::any_layout;
    const Tensor x = ctx.input(0), y = ctx.output(0).reshape(kept_);
    const Tensor tie = Tensor::empty(ctx.context(), shape_, DType::u8, MemoryKind::workspace);
    const Tensor compared[] = {x, y.expand(shape_)};
    kernels::compare(ctx.stream(), kernels::Comparison::equal, kernels::strided(shape_, compared),
                     any_layout(x), any_layout(y), tie);
    const Tensor ties = sum_to(converted(tie, DType::f32), kept_);
    Tensor share = Tensor::empty(ctx.context(), kept_);
    divide(ctx.stream(), converted(dy, DType::f32), ties, share);
    share = converted(share, dy.dtype());
    const Tensor dx = Tensor::empty(ctx.context(), shape_, dy.dtype());
    const Tensor wide[] = {tie, share.expand(shape_), share.expand(shape_)};
    kernels::select(ctx.stream(), kernels::strided(shape_, wide), tie, any_layout(share), {}, dx);
    return dx;
  }

  std::string_view name_;
  Reduction kind_;
  std::vector<int> axes_;
  bool keepdims_;
  Shape shape_, kept_;
  Index count_ = 1;
};

}  // namespace

Variable sum(const Variable& x, const std::vector<int>& axes, bool keepdims) {
  return apply_one<ReductionOp>({x}, "sum", Reduction::sum, axes, keepdims);
}

Variable mean(const Variable& x, const std::vector<int>& axes, bool keepdims) {
  return apply_one<ReductionOp>({x}, "mean", Reduction::mean, axes, keepdims);
}

Variable max(const Variable& x, const std::vector<int>& axes, bool keepdims) {
  return apply_one<ReductionOp>({x}, "max", Reduction::max, axes, keepdims);
}

}  // namespace penstock::ops
