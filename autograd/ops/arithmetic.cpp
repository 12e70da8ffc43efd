// Ops of two and three operands that broadcast: arithmetic, where, comparisons.
#include "autograd/ops/arithmetic.h"

#include "autograd/ops/operands.h"
#include "kernels/elementwise.h"
#include "kernels/strided.h"

namespace penstock::ops {
namespace {

using kernels::any_layout;
using kernels::BinaryOp;

/// a op b on a common shape, through strides.
Tensor compute(BinaryOp op, const Shape& shape, const Tensor& a, const Tensor& b) {
  const Tensor y = Tensor::empty(a.context(), shape, a.dtype());
  const Tensor wide[] = {a.expand(shape), b.expand(shape)};
  kernels::binary(a.context().stream(), op, kernels::strided(shape, wide), any_layout(a), any_layout(b), y);
  return y;
}

Tensor negated(const Tensor& x) {
  const Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
  kernels::unary(x.context().stream(), kernels::UnaryOp::affine, {-1, 0},
                 kernels::strided(x.shape(), {&x, 1}), any_layout(x), y);
  return y;
}

class ArithmeticOp final : public Op {
 public:
  ArithmeticOp(std::string_view name, BinaryOp op) : name_(name), op_(op) {}

  std::string_view name() const override { return name_; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    require_floats(name_, in);
    const Tensor &a = in[0], &b = in[1];
    shapes_[0] = a.shape();
    shapes_[1] = b.shape();
    if (op_ == BinaryOp::product || op_ == BinaryOp::quotient) {
      save.input(0, 1u << 1);
      save.input(1, op_ == BinaryOp::quotient ? 3u : 1u);
    }
    const bool dense = a.shape() == b.shape() && a.is_contiguous() && b.is_contiguous();
    if (op_ != BinaryOp::sum || !dense)
      return {compute(op_, broadcast_shape(name_, a.shape(), b.shape()), a, b)};
    const Tensor y = Tensor::empty(a.context(), a.shape(), a.dtype());
    kernels::add(a.context().stream(), a.numel(), a, b, y);
    return {y};
  }

  void backward(BackwardContext& ctx) override {
    const Tensor dy = ctx.grad();
    for (int i = 0; i < 2; ++i) {
      if (!ctx.wants(i)) continue;
      const Shape& shape = shapes_[i];
      const DType dtype = ctx.gradient_dtype(i);
      switch (op_) {
        case BinaryOp::sum:
          ctx.set_grad(i, sum_to(dy, shape, dtype));
          break;
        case BinaryOp::difference:
          ctx.set_grad(i, i == 0 ? sum_to(dy, shape, dtype) : negated(sum_to(dy, shape, dtype)));
          break;
        case BinaryOp::product:
          ctx.set_grad(i, sum_to(compute(BinaryOp::product, dy.shape(), dy, ctx.input(1 - i)), shape, dtype));
          break;
        case BinaryOp::quotient:
          ctx.set_grad(i, sum_to(i == 0 ? compute(BinaryOp::quotient, dy.shape(), dy, ctx.input(1))
                                        : divisor_gradient(ctx, dy),
                                 shape, dtype));
          break;
      }
    }
  }

 private:
  static Tensor divisor_gradient(BackwardContext& ctx, const Tensor& dy) {
    const Tensor a = ctx.input(0), b = ctx.input(1);
    const Tensor db = Tensor::empty(ctx.context(), dy.shape(), dy.dtype());
    const Tensor wide[] = {dy, a.expand(dy.shape()), b.expand(dy.shape())};
    kernels::divide_backward(ctx.stream(), kernels::strided(dy.shape(), wide), any_layout(dy), any_layout(a),
                             any_layout(b), db);
    return db;
  }

  std::string_view name_;
  BinaryOp op_;
  Shape shapes_[2];
};

class WhereOp final : public Op {
 public:
  std::string_view name() const override { return "where"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    const Tensor& condition = in[0];
    require<ValueError>(condition.dtype() == DType::u8, "where: the condition is uint8, not {}",
                        name_of(condition.dtype()));
    require_floats(name(), in.subspan(1));
    for (std::size_t i = 0; i < 2; ++i) shapes_[i] = in[i + 1].shape();
    const Shape shape =
        broadcast_shape(name(), condition.shape(), broadcast_shape(name(), shapes_[0], shapes_[1]));
    save.input(0, 6u);
    const Tensor y = Tensor::empty(condition.context(), shape, in[1].dtype());
    const Tensor wide[] = {condition.expand(shape), in[1].expand(shape), in[2].expand(shape)};
    kernels::select(condition.context().stream(), kernels::strided(shape, wide), any_layout(condition),
                    any_layout(in[1]), any_layout(in[2]), y);
    return {y};
  }

  void backward(BackwardContext& ctx) override {
    const Tensor dy = ctx.grad(), condition = ctx.input(0);
    const Tensor wide[] = {condition.expand(dy.shape()), dy, dy};
    for (int i = 0; i < 2; ++i) {
      if (!ctx.wants(i + 1)) continue;
      const Tensor chosen = Tensor::empty(ctx.context(), dy.shape(), dy.dtype());
      kernels::select(ctx.stream(), kernels::strided(dy.shape(), wide), any_layout(condition),
                      i == 0 ? any_layout(dy) : kernels::In(), i == 1 ? any_layout(dy) : kernels::In(),
                      chosen);
      ctx.set_grad(i + 1, sum_to(chosen, shapes_[i], ctx.gradient_dtype(i + 1)));
    }
  }

 private:
  Shape shapes_[2];
};

class ComparisonOp final : public Op {
 public:
  ComparisonOp(std::string_view name, kernels::Comparison op) : name_(name), op_(op) {}

  std::string_view name() const override { return name_; }
  bool differentiable() const override { return false; }

  Tensors forward(std::span<const Tensor> in, Saver&) override {
    const Tensor &a = in[0], &b = in[1];
    const DType dtype = a.dtype();
    require<ValueError>(dtype == b.dtype(), "{}: {} with {}", name_, name_of(dtype), name_of(b.dtype()));
    require<ValueError>(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::i32 ||
                            dtype == DType::i64 || dtype == DType::u8,
                        "{}: compares fp32, bf16, int32, int64 or uint8, not {}", name_, name_of(dtype));
    const Shape shape = broadcast_shape(name_, a.shape(), b.shape());
    const Tensor y = Tensor::empty(a.context(), shape, DType::u8);
    const Tensor wide[] = {a.expand(shape), b.expand(shape)};
    kernels::compare(a.context().stream(), op_, kernels::strided(shape, wide), any_layout(a), any_layout(b),
                     y);
    return {y};
  }

  void backward(BackwardContext&) override {}

 private:
  std::string_view name_;
  kernels::Comparison op_;
};

/// Compares the values, so that nothing is recorded.
Variable compare(std::string_view name, kernels::Comparison op, const Variable& a, const Variable& b) {
  return apply_one<ComparisonOp>({Variable(a.tensor()), Variable(b.tensor())}, name, op);
}

}  // namespace

Variable scalar(RankContext& context, float value) {
  return Variable(Tensor::from(context, Shape{}, std::vector<float>{value}, MemoryKind::workspace));
}

Variable add(const Variable& a, const Variable& b) {
  return apply_one<ArithmeticOp>({a, b}, "add", BinaryOp::sum);
}
Variable sub(const Variable& a, const Variable& b) {
  return apply_one<ArithmeticOp>({a, b}, "sub", BinaryOp::difference);
}
Variable mul(const Variable& a, const Variable& b) {
  return apply_one<ArithmeticOp>({a, b}, "mul", BinaryOp::product);
}
Variable div(const Variable& a, const Variable& b) {
  return apply_one<ArithmeticOp>({a, b}, "div", BinaryOp::quotient);
}

Variable where(const Variable& condition, const Variable& a, const Variable& b) {
  return apply_one<WhereOp>({condition, a, b});
}

Variable equal(const Variable& a, const Variable& b) {
  return compare("equal", kernels::Comparison::equal, a, b);
}
Variable not_equal(const Variable& a, const Variable& b) {
  return compare("not_equal", kernels::Comparison::not_equal, a, b);
}
Variable less(const Variable& a, const Variable& b) {
  return compare("less", kernels::Comparison::less, a, b);
}
Variable less_equal(const Variable& a, const Variable& b) {
  return compare("less_equal", kernels::Comparison::less_equal, a, b);
}
Variable greater(const Variable& a, const Variable& b) {
  return compare("greater", kernels::Comparison::greater, a, b);
}
Variable greater_equal(const Variable& a, const Variable& b) {
  return compare("greater_equal", kernels::Comparison::greater_equal, a, b);
}

}  // namespace penstock::ops
