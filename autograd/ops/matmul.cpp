// matmul: one product a batch, or one for the whole batch where b has no batch of its own.
#include "autograd/ops/matmul.h"

#include "autograd/ops/operands.h"
#include "autograd/ops/product.h"

namespace penstock::ops {
namespace {

/// The shape before the last two dimensions.
Shape batch_of(const Shape& shape) { return shape.without_last().without_last(); }

Shape joined(const Shape& batch, Index rows, Index cols) {
  std::vector<Index> sizes(batch.sizes().begin(), batch.sizes().end());
  sizes.push_back(rows);
  sizes.push_back(cols);
  return Shape(sizes);
}

/// A dense batch of matrices.
struct Matrices {
  Tensor values;
  bool transposed = false;
};

class MatmulOp final : public Op {
 public:
  explicit MatmulOp(const MatmulOptions& options) : options_(options) {}

  std::string_view name() const override { return "matmul"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    require_floats(name(), in);
    shapes_[0] = in[0].shape();
    shapes_[1] = in[1].shape();
    const std::string texts[] = {shapes_[0].str(), shapes_[1].str()};
    require<ShapeError>(shapes_[0].rank() >= 2 && shapes_[1].rank() >= 2,
                        "matmul: {} and {} are not both matrices", texts[0], texts[1]);
    m_ = shapes_[0].dim(options_.transpose_a ? -1 : -2);
    k_ = shapes_[0].dim(options_.transpose_a ? -2 : -1);
    n_ = shapes_[1].dim(options_.transpose_b ? -2 : -1);
    require<ShapeError>(shapes_[1].dim(options_.transpose_b ? -1 : -2) == k_, "matmul: {}{} times {}{}",
                        texts[0], options_.transpose_a ? " transposed" : "", texts[1],
                        options_.transpose_b ? " transposed" : "");
    batch_ = broadcast_shape(name(), batch_of(shapes_[0]), batch_of(shapes_[1]));
    const Tensor a = in[0].contiguous(), b = in[1].contiguous();
    save.input(0, 1u << 1);
    save.input(1, 1u << 0);
    return {multiply(batch_, m_, n_, k_, {a, options_.transpose_a}, {b, options_.transpose_b}, a.dtype())};
  }

  void backward(BackwardContext& ctx) override {
    const Tensor dy = ctx.grad().contiguous();
    const Shape batch = batch_of(dy.shape());
    if (ctx.wants(0)) {  // da = dy b^T, or its transpose b dy^T
      const Tensor b = ctx.input(1).contiguous();
      const DType dtype = ctx.gradient_dtype(0);
      const Matrices right{b, !options_.transpose_b}, left{b, options_.transpose_b};
      ctx.set_grad(0, sum_to(options_.transpose_a ? multiply(batch, k_, m_, n_, left, {dy, true}, dtype)
                                                  : multiply(batch, m_, k_, n_, {dy, false}, right, dtype),
                             shapes_[0]));
    }
    if (ctx.wants(1)) {  // db = a^T dy, or its transpose dy^T a
      const Tensor a = ctx.input(0).contiguous();
      if (one_b()) return fold(ctx, a, dy);
      const DType dtype = ctx.gradient_dtype(1);
      const Matrices left{a, !options_.transpose_a}, right{a, options_.transpose_a};
      ctx.set_grad(1, sum_to(options_.transpose_b ? multiply(batch, n_, k_, m_, {dy, true}, right, dtype)
                                                  : multiply(batch, k_, n_, m_, left, {dy, false}, dtype),
                             shapes_[1]));
    }
  }

 private:
  /// One b for a whole batch of a: the rows of all a form one matrix.
  bool one_b() const { return shapes_[1].rank() == 2 && !options_.transpose_a; }

  void fold(BackwardContext& ctx, const Tensor& a, const Tensor& dy) const {
    const Index rows = batch_.numel() * m_;
    const GradientTarget db = ctx.target(1, shapes_[1]);
    if (options_.transpose_b)
      product({n_, k_, rows, true, false, db.accumulate}, dy, a, {}, db.tensor);
    else
      product({k_, n_, rows, true, false, db.accumulate}, a, dy, {}, db.tensor);
  }

  /// (batch, m, n) = op(a) op(b), k in the middle.
  static Tensor multiply(const Shape& batch, Index m, Index n, Index k, const Matrices& a, const Matrices& b,
                         DType dtype) {
    RankContext& context = a.values.context();
    const Tensor y = Tensor::empty(context, joined(batch, m, n), dtype);
    const Shape batch_a = batch_of(a.values.shape()), batch_b = batch_of(b.values.shape());
    if (batch_b.numel() == 1 && batch_a == batch && !a.transposed) {
      product({batch.numel() * m, n, k, false, b.transposed, false}, a.values, b.values, {}, y);
      return y;
    }
    kernels::GemmBatch where;
    where.rank = batch.rank();
    fill_strides(where.stride_a, batch, batch_a, m * k);
    fill_strides(where.stride_b, batch, batch_b, k * n);
    for (int d = 0; d < batch.rank(); ++d) where.sizes[d] = batch[d];
    product({m, n, k, a.transposed, b.transposed, false}, where, a.values, b.values, y);
    return y;
  }

  /// How far apart the matrices of an operand with these batch dimensions lie along those of the result.
  static void fill_strides(Index* strides, const Shape& batch, const Shape& own, Index matrix) {
    const int missing = batch.rank() - own.rank();
    Index step = matrix;
    for (int d = own.rank() - 1; d >= 0; --d) {
      strides[missing + d] = own[d] == 1 ? 0 : step;
      step *= own[d];
    }
  }

  MatmulOptions options_;
  Shape shapes_[2], batch_;
  Index m_ = 0, n_ = 0, k_ = 0;
};

}  // namespace

Variable matmul(const Variable& a, const Variable& b, const MatmulOptions& options) {
  return apply_one<MatmulOp>({a, b}, options);
}

}  // namespace penstock::ops
