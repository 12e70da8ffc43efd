// Functions of one operand, and the cast.
#include "autograd/convert.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/operands.h"
#include "kernels/strided.h"

namespace penstock::ops {
namespace {

using kernels::any_layout;
using kernels::UnaryOp;

class PointwiseOp final : public Op {
 public:
  PointwiseOp(std::string_view name, UnaryOp op, kernels::UnaryConstants constants = {})
      : name_(name), op_(op), constants_(constants) {}

  std::string_view name() const override { return name_; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    require_floats(name_, in);
    if (slope_from_output())
      save.output(0, 1u);
    else if (op_ != UnaryOp::affine)
      save.input(0, 1u);
    return {apply(constants_, in[0])};
  }

  void backward(BackwardContext& ctx) override {
    if (!ctx.wants(0)) return;
    const Tensor dy = ctx.grad();
    if (op_ == UnaryOp::affine)
      return ctx.set_grad(0, constants_.alpha == 1 ? dy : apply({constants_.alpha, 0}, dy));
    const Tensor operands[] = {slope_from_output() ? ctx.output(0) : ctx.input(0), dy};
    const Tensor dx = Tensor::empty(ctx.context(), dy.shape(), dy.dtype());
    kernels::unary_backward(ctx.stream(), op_, constants_, kernels::strided(dy.shape(), operands),
                            any_layout(operands[0]), any_layout(dy), dx);
    ctx.set_grad(0, dx);
  }

 private:
  bool slope_from_output() const { return op_ == UnaryOp::exponential || op_ == UnaryOp::square_root; }

  Tensor apply(kernels::UnaryConstants constants, const Tensor& x) const {
    const Tensor y = Tensor::empty(x.context(), x.shape(), x.dtype());
    kernels::unary(x.context().stream(), op_, constants, kernels::strided(x.shape(), {&x, 1}), any_layout(x),
                   y);
    return y;
  }

  std::string_view name_;
  UnaryOp op_;
  kernels::UnaryConstants constants_;
};

class CastOp final : public Op {
 public:
  explicit CastOp(DType dtype) : to_(dtype) {}

  std::string_view name() const override { return "cast"; }

  Tensors forward(std::span<const Tensor> in, Saver&) override {
    const DType from = in[0].dtype();
    for (const DType dtype : {from, to_})
      require<ValueError>(dtype != DType::f64 || (from == DType::f64 && to_ == DType::f32),
                          "cast: from {} to {}: {} holds losses and norms alone", name_of(from), name_of(to_),
                          name_of(dtype));
    return {converted(in[0], to_)};
  }

  void backward(BackwardContext& ctx) override {
    if (ctx.wants(0)) ctx.set_grad(0, converted(ctx.grad(), ctx.gradient_dtype(0)));
  }

 private:
  DType to_;
};

Variable pointwise(const Variable& x, std::string_view name, UnaryOp op,
                   kernels::UnaryConstants constants = {}) {
  return apply_one<PointwiseOp>({x}, name, op, constants);
}

}  // namespace

Variable add(const Variable& x, float value) { return pointwise(x, "add", UnaryOp::affine, {1, value}); }
Variable mul(const Variable& x, float value) { return pointwise(x, "mul", UnaryOp::affine, {value, 0}); }
Variable neg(const Variable& x) { return pointwise(x, "neg", UnaryOp::affine, {-1, 0}); }
Variable exp(const Variable& x) { return pointwise(x, "exp", UnaryOp::exponential); }
Variable log(const Variable& x) { return pointwise(x, "log", UnaryOp::logarithm); }
Variable tanh(const Variable& x) { return pointwise(x, "tanh", UnaryOp::hyperbolic_tangent); }
Variable sqrt(const Variable& x) { return pointwise(x, "sqrt", UnaryOp::square_root); }
Variable pow(const Variable& x, float exponent) { return pointwise(x, "pow", UnaryOp::power, {exponent, 0}); }
Variable relu(const Variable& x) { return pointwise(x, "relu", UnaryOp::relu); }
Variable sigmoid(const Variable& x) { return pointwise(x, "sigmoid", UnaryOp::sigmoid); }
Variable silu(const Variable& x) { return pointwise(x, "silu", UnaryOp::silu); }

Variable cast(const Variable& x, DType dtype) {
  if (x.defined() && x.tensor().dtype() == dtype) return x;
  const bool recorded = !x.defined() || (is_floating_point(dtype) && is_floating_point(x.tensor().dtype()));
  return apply_one<CastOp>({recorded ? x : Variable(x.tensor())}, dtype);
}

}  // namespace penstock::ops
