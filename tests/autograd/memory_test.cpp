// What a tape keeps: only what a half that is to come needs, and nothing after the last one.
#include <gtest/gtest.h>

#include "autograd/ops/embedding.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/layer_norm.h"
#include "autograd/ops/linear.h"
#include "autograd/small_ops.h"
#include "autograd/tape.h"
#include "support/simple_weights.h"

namespace penstock::testing {
namespace {

class TapeMemory : public ::testing::Test {
 protected:
  Tensor tensor(const Shape& size) { return Tensor::zeros(context, size, DType::f32, MemoryKind::parameter); }
  Index live() const { return context.allocator().live()[MemoryKind::activation]; }
  static Variable product_of_weights(Tape& tape, const WeightHandle& a, const WeightHandle& b) {
    return apply_one<Product>({tape.weight(a), tape.weight(b)});
  }
  static constexpr Index row = 64 * sizeof(float);

  mutable RankContext context{RankContext::Options{.poison = true}};
  SimpleWeights weights;
  const Shape shape{64};
};

TEST_F(TapeMemory, WhatOnlyTheInputHalfNeedsIsFreedAfterIt) {
  const Tensor seed = tensor(shape);
  Tape tape(context, nullptr);
  {
    const Variable x = tape.input(tensor(shape), true);
    Variable y = ops::gelu(ops::gelu(ops::gelu(x)));
    EXPECT_EQ(live(), 3 * row) << "two saved intermediate values and the output";
    y.drop_value();
    EXPECT_EQ(live(), 2 * row);
    tape.backward_input(Variables{y}, Tensors{seed});
    EXPECT_EQ(live(), row) << "the gradient of the input alone";
    EXPECT_TRUE(tape.take_grad(x).defined());
  }
  EXPECT_EQ(live(), 0);
  tape.backward_weight();
  EXPECT_EQ(live(), 0);
}

TEST_F(TapeMemory, TheWeightHalfKeepsInputsOfItsProductsAndTheirOutputGradients) {
  const WeightHandle w = weights.add(tensor(Shape{64, 64}));
  const Tensor seed = tensor(Shape{1, 64});
  Tape tape(context, &weights);
  const Variable x = tape.input(tensor(Shape{1, 64}), true);
  Variable y;
  {
    const Variable hidden = ops::gelu(ops::linear(ops::gelu(x), tape.weight(w)));
    y = ops::linear(hidden, tape.weight(w));
  }
  // gelu's outputs, linear's output (saved by gelu), the last output; x itself is a parameter-kind tensor
  // here.
  EXPECT_EQ(live(), 4 * row);
  y.drop_value();
  EXPECT_EQ(live(), 3 * row);
  tape.backward_input(Variables{y}, Tensors{seed});
  tape.take_grad(x);
  // For the W half: both products' inputs and the gradient of the first one's output (the second's is the
  // seed).
  EXPECT_EQ(live(), 3 * row);
  tape.backward_weight();
  EXPECT_EQ(live(), 0);
}

TEST_F(TapeMemory, ANodeWithAWeightLetsGoOfWhatOnlyItsInputHalfNeeds) {
  const WeightHandle w = weights.add(tensor(shape));
  const Tensor seed = tensor(shape);
  Tape tape(context, &weights);
  const Variable x = tape.input(tensor(shape), true);
  Variable y;
  {
    const Variable a = ops::gelu(x), b = ops::gelu(x);
    y = apply_one<ProductPlus>({a, b, tape.weight(w)});
  }
  y.drop_value();
  EXPECT_EQ(live(), 3 * row) << "both factors, and the copy of one";
  tape.backward_input(Variables{y}, Tensors{seed});
  tape.take_grad(x);
  EXPECT_EQ(live(), 0) << "the W half needs the seed alone";
  tape.backward_weight();
  EXPECT_TRUE(weights.has_gradient(w));
}

TEST_F(TapeMemory, ValuesOfWeightExpressionsAreMadeAgainNotKept) {
  const WeightHandle w = weights.add(tensor(shape));
  Tape tape(context, &weights);
  const Variable x = tape.input(tensor(shape), true);
  Variable y = apply_one<Product>({x, product_of_weights(tape, w, w)});
  y.drop_value();
  EXPECT_EQ(live(), 0) << "x is the caller's; the square of w follows from w";
  tape.backward(Variables{y}, Tensors{tensor(shape)});
  EXPECT_TRUE(tape.take_grad(x).defined());
}

TEST_F(TapeMemory, FrozenWeightsNeedNoInputs) {
  const WeightHandle w = weights.add(tensor(Shape{64, 64}));
  Tape tape(context, &weights);
  const Variable x = tape.input(tensor(Shape{1, 64}), true);
  const Tensor seed = tensor(Shape{1, 64});
  Variable y = apply_one<Multiples>({x}, std::vector<float>{2});
  y = ops::linear(y, tape.weight(w, false));
  EXPECT_EQ(live(), row) << "the output; the product's input was let go";
  tape.backward_input(Variables{y}, Tensors{seed});
  y.drop_value();
  tape.take_grad(x);
  EXPECT_EQ(live(), 0);
}

TEST_F(TapeMemory, FullBackwardFreesNodeByNode) {
  // A chain of n products: were values and gradients freed only at the end, the peak would grow by n more
  // rows.
  constexpr int n = 10;
  const Tensor seed = tensor(shape);
  Tape tape(context, nullptr);
  const Variable x = tape.input(tensor(shape), true);
  Variable y = x;
  for (int i = 0; i < n; ++i) y = ops::gelu(y);
  y.drop_value();
  EXPECT_EQ(live(), (n - 1) * row);
  context.allocator().reset_peak();
  tape.backward(Variables{y}, Tensors{seed});
  EXPECT_LE(context.allocator().peak()[MemoryKind::activation], (n + 1) * row);
  tape.take_grad(x);
  EXPECT_EQ(live(), 0);
}

TEST_F(TapeMemory, NothingStaysAfterABackwardEvenWhereNoGradientArrived) {
  const WeightHandle gain = weights.add(tensor(shape)), bias = weights.add(tensor(shape));
  const WeightHandle table = weights.add(tensor(Shape{5, 64}));
  for (const bool halves : {false, true}) {
    Tape tape(context, &weights);
    const Tensor ids = Tensor::zeros(context, Shape{3}, DType::i32, MemoryKind::parameter);
    Variables outputs;
    {
      const Variable h = ops::embedding(Variable(ids), tape.weight(table));
      outputs = {ops::layer_norm(h, tape.weight(gain), tape.weight(bias)), ops::gelu(h),
                 product_of_weights(tape, gain, bias)};
    }
    for (Variable& v : outputs) v.drop_value();
    EXPECT_GT(live(), 0);
    const Tensors gradients{Tensor(), tensor(Shape{3, 64}), Tensor()};
    if (halves) {
      tape.backward_input(outputs, gradients);
      tape.backward_weight();
    } else {
      tape.backward(outputs, gradients);
    }
    EXPECT_EQ(live(), 0);
    EXPECT_TRUE(weights.has_gradient(table));
    EXPECT_FALSE(weights.has_gradient(gain)) << "nothing that counts depends on it";
  }
}

TEST_F(TapeMemory, WithoutATapeNothingIsKept) {
  Variable y(Tensor::zeros(context, shape));
  for (int i = 0; i < 5; ++i) y = ops::gelu(y);
  EXPECT_EQ(live(), row);
}

TEST_F(TapeMemory, TheSecondStepTakesNothingFromTheSystem) {
  const WeightHandle w = weights.add(tensor(Shape{64, 64}));
  const auto step = [&] {
    Tape tape(context, &weights);
    const Variable x = tape.input(tensor(Shape{3, 64}), true);
    const Variable y = ops::gelu(ops::linear(ops::gelu(x), tape.weight(w)));
    tape.backward_input(Variables{y}, Tensors{tensor(Shape{3, 64})});
    tape.take_grad(x);
    tape.backward_weight();
  };
  step();
  const Index before = context.allocator().system_allocations();
  step();
  step();
  EXPECT_EQ(context.allocator().system_allocations(), before);
}

}  // namespace
}  // namespace penstock::testing
