// Small ops for the tests of the tape: what they compute fits in one line each.
#pragma once

#include "autograd/op.h"

namespace penstock::testing {

/// a * b, element by element. Each gradient needs the other input.
class Product final : public Op {
 public:
  std::string_view name() const override { return "product"; }
  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    save.input(0, 1u << 1);
    save.input(1, 1u << 0);
    return {multiply(in[0], in[1])};
  }
  void backward(BackwardContext& ctx) override {
    for (int i = 0; i < 2; ++i)
      if (ctx.wants(i)) ctx.set_grad(i, multiply(ctx.grad(), ctx.input(1 - i)));
  }

  static Tensor multiply(const Tensor& a, const Tensor& b) {
    const Tensor y = Tensor::empty(a.context(), a.shape());
    const std::vector<float> p = a.to_vector<float>(), q = b.to_vector<float>();
    for (std::size_t i = 0; i < p.size(); ++i) y.data_as<float>()[i] = p[i] * q[i];
    return y;
  }
};

/// a * b + w: the products' gradients need values that w's does not.
class ProductPlus final : public Op {
 public:
  std::string_view name() const override { return "product_plus"; }
  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    save.input(0, 1u << 1);
    save.input(1, 1u << 0);
    save.tensor(in[0].clone(), 1u << 1);
    const Tensor y = Product::multiply(in[0], in[1]);
    const std::vector<float> w = in[2].to_vector<float>();
    for (std::size_t i = 0; i < w.size(); ++i) y.data_as<float>()[i] += w[i];
    return {y};
  }
  void backward(BackwardContext& ctx) override {
    if (ctx.wants(0)) ctx.set_grad(0, Product::multiply(ctx.grad(), ctx.input(1)));
    if (ctx.wants(1)) ctx.set_grad(1, Product::multiply(ctx.grad(), ctx.saved(0)));
    if (ctx.wants(2)) ctx.set_grad(2, ctx.grad());
  }
};

/// x * factor for each factor: several outputs of one input. Saves nothing.
class Multiples final : public Op {
 public:
  explicit Multiples(std::vector<float> factors) : factors_(std::move(factors)) {}
  std::string_view name() const override { return "multiples"; }
  Tensors forward(std::span<const Tensor> in, Saver&) override {
    Tensors all;
    for (const float f : factors_) all.push_back(times(in[0], f));
    return all;
  }
  void backward(BackwardContext& ctx) override {
    if (!ctx.wants(0)) return;
    for (std::size_t k = 0; k < factors_.size(); ++k) {
      const Tensor& dy = ctx.grad(static_cast<int>(k));
      if (dy.defined()) ctx.set_grad(0, times(dy, factors_[k]));
    }
  }

 private:
  static Tensor times(const Tensor& x, float factor) {
    const Tensor y = Tensor::empty(x.context(), x.shape());
    const std::vector<float> p = x.to_vector<float>();
    for (std::size_t i = 0; i < p.size(); ++i) y.data_as<float>()[i] = p[i] * factor;
    return y;
  }

  std::vector<float> factors_;
};

/// exp-like: the gradient needs the output. y = x^2 / 4, dy/dx = sqrt(y) for x >= 0.
class Quarter final : public Op {
 public:
  std::string_view name() const override { return "quarter"; }
  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    const Tensor half = Product::multiply(in[0], in[0]);
    for (Index i = 0; i < half.numel(); ++i) half.data_as<float>()[i] /= 4;
    save.output(0, 1u);
    return {half};
  }
  void backward(BackwardContext& ctx) override {
    if (!ctx.wants(0)) return;
    const Tensor slope = ctx.output(0).clone();
    for (Index i = 0; i < slope.numel(); ++i)
      slope.data_as<float>()[i] = __builtin_sqrtf(slope.data_as<float>()[i]);
    ctx.set_grad(0, Product::multiply(ctx.grad(), slope));
  }
};

/// Rows begin .. end - 1: of a weight, a weight expression. The gradient is zero elsewhere.
class Rows final : public Op {
 public:
  Rows(Index begin, Index end) : begin_(begin), end_(end) {}
  std::string_view name() const override { return "rows"; }
  Tensors forward(std::span<const Tensor> in, Saver&) override {
    whole_ = in[0].shape();
    ++runs;
    return {in[0].slice(0, begin_, end_)};
  }
  void backward(BackwardContext& ctx) override {
    if (!ctx.wants(0)) return;
    const Tensor dx = Tensor::zeros(ctx.context(), whole_);
    dx.slice(0, begin_, end_).copy_from(ctx.grad());
    ctx.set_grad(0, dx);
  }
  static inline int runs = 0;

 private:
  Index begin_, end_;
  Shape whole_;
};

/// x * w through the accumulator itself, as a kernel that can add would: dw [+]= x dy.
class Accumulating final : public Op {
 public:
  std::string_view name() const override { return "accumulating"; }
  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    save.input(0, 1u << 1);
    save.input(1, 1u << 0);
    return {Product::multiply(in[0], in[1])};
  }
  void backward(BackwardContext& ctx) override {
    for (int i = 0; i < 2; ++i) {
      if (!ctx.wants(i)) continue;
      const std::vector<float> dy = ctx.grad().to_vector<float>(),
                               other = ctx.input(1 - i).to_vector<float>();
      const GradientTarget target = ctx.target(i, ctx.grad().shape());
      for (std::size_t e = 0; e < dy.size(); ++e) {
        float& to = target.tensor.data_as<float>()[e];
        to = target.accumulate ? to + dy[e] * other[e] : dy[e] * other[e];
      }
    }
  }
};

/// Has no gradient.
class Opaque final : public Op {
 public:
  std::string_view name() const override { return "opaque"; }
  Tensors forward(std::span<const Tensor> in, Saver&) override { return {in[0].clone()}; }
  void backward(BackwardContext&) override {}
  bool differentiable() const override { return false; }
};

/// Breaks a rule in its backward.
class Faulty final : public Op {
 public:
  enum class Fault { unasked, wrong_shape, unsaved };
  explicit Faulty(Fault fault) : fault_(fault) {}
  std::string_view name() const override { return "faulty"; }
  Tensors forward(std::span<const Tensor> in, Saver&) override { return {in[0].clone()}; }
  void backward(BackwardContext& ctx) override {
    if (fault_ == Fault::unasked) ctx.set_grad(1, ctx.grad());
    if (fault_ == Fault::wrong_shape) ctx.set_grad(0, Tensor::zeros(ctx.context(), Shape{1, 1}));
    if (fault_ == Fault::unsaved) ctx.set_grad(0, ctx.input(0));
  }

 private:
  Fault fault_;
};

}  // namespace penstock::testing
