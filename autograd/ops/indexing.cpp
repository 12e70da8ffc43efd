// gather and index_select: two index layouts of one pair of kernels.
#include "kernels/indexing.h"

#include "autograd/ops/operands.h"
#include "autograd/ops/shape_ops.h"

namespace penstock::ops {
namespace {

class IndexOp final : public Op {
 public:
  /// A list for all (index_select), or an index of its own for each element (gather).
  IndexOp(std::string_view name, int dimension, bool list)
      : name_(name), dimension_(dimension), list_(list) {}

  std::string_view name() const override { return name_; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    const Tensor x = in[0].contiguous(), index = in[1].contiguous();
    shape_ = x.shape();
    const int d = axis_of(name_, shape_, dimension_);
    require<ValueError>(index.dtype() == DType::i32 || index.dtype() == DType::i64,
                        "{}: an index is int32 or int64, not {}", name_, name_of(index.dtype()));
    const bool fits =
        list_ ? index.shape().rank() == 1
              : index.shape().rank() == shape_.rank() && index.shape().with(d, shape_[d]) == shape_;
    require<ShapeError>(fits, "{}: an index of shape {} into dimension {} of {}", name_, index.shape().str(),
                        dimension_, shape_.str());
    at_ = {};
    at_.rows = shape_[d];
    at_.count = list_ ? index.numel() : index.shape()[d];
    for (int k = 0; k < shape_.rank(); ++k)
      if (k != d) (k < d ? at_.outer : at_.inner) *= shape_[k];
    if (!list_) {
      at_.index_outer = at_.count * at_.inner;
      at_.index_count = at_.inner;
      at_.index_inner = 1;
    }
    const Tensor y = Tensor::empty(x.context(), shape_.with(d, at_.count), x.dtype());
    try {
      kernels::gather(x.context().stream(), at_, index, x, y);
    } catch (Error& e) {
      e.add_context(std::string(name_));
      throw;
    }
    save.tensor(index, 1u);
    return {y};
  }

  void backward(BackwardContext& ctx) override {
    if (!ctx.wants(0)) return;
    const Tensor dy = ctx.grad().contiguous(), index = ctx.saved(0);
    const GradientTarget dx = ctx.target(0, shape_);
    kernels::scatter_add(ctx.stream(), at_, dx.accumulate, index, dy, dx.tensor);
  }

 private:
  std::string_view name_;
  int dimension_;
  bool list_;
  Shape shape_;
  kernels::IndexShape at_;
};

}  // namespace

Variable gather(const Variable& x, int dimension, const Variable& index) {
  return apply_one<IndexOp>({x, index}, "gather", dimension, false);
}

Variable index_select(const Variable& x, int dimension, const Variable& index) {
  return apply_one<IndexOp>({x, index}, "index_select", dimension, true);
}

}  // namespace penstock::ops
