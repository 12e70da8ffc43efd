// General ops where a record's finite differences do not reach: ties, results that are constants, views,
// integers.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/ops/arithmetic.h"
#include "autograd/ops/losses.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/reductions.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/tape.h"
#include "ops/table/record.h"

namespace penstock::testing {
namespace {

/// A tape with one input, and the gradient of <cotangent, output> by it.
struct Graph {
  Graph(const Shape& shape, const std::vector<float>& x)
      : input(tape.input(Tensor::from(context, shape, x), true)) {}

  std::vector<float> gradient(const Variable& output, const std::vector<float>& cotangent) {
    const Tensor dy = Tensor::from(context, output.shape(), cotangent);
    tape.backward({&output, 1}, {&dy, 1});
    const Tensor dx = tape.take_grad(input);
    return dx.defined() ? dx.to_vector<float>() : std::vector<float>();
  }

  RankContext context;
  Tape tape{context, nullptr};
  Variable input;
};

TEST(Max, TiesShareTheGradientEqually) {
  Graph rows(Shape{3, 4}, {1, 5, 5, 0, 2, 2, 2, 2, -1, -3, -2, -1});
  EXPECT_EQ(rows.gradient(ops::max(rows.input, {1}), {3, 8, 1}),
            (std::vector<float>{0, 1.5f, 1.5f, 0, 2, 2, 2, 2, 0.5f, 0, 0, 0.5f}));
  // A tie across two groups of axes counts once.
  Graph apart(Shape{2, 2, 2}, {7, 1, 0, 7, 7, 2, 3, 4});
  EXPECT_EQ(apart.gradient(ops::max(apart.input, {0, 2}), {6, 5}),
            (std::vector<float>{3, 0, 0, 5, 3, 0, 0, 0}));
}

TEST(Max, ANanIsTheLargestAndSpoilsNoOtherRow) {
  Graph g(Shape{2, 3}, {1, NAN, 3, 4, 5, 6});
  const Variable y = ops::max(g.input, {1});
  EXPECT_TRUE(std::isnan(y.tensor().to_vector<float>()[0]));
  EXPECT_EQ(y.tensor().to_vector<float>()[1], 6.0f);
  EXPECT_EQ(g.gradient(y, {1, 1}), (std::vector<float>{0, 0, 0, 0, 0, 1}));
}

TEST(Relu, SlopeAtZeroIsZero) {
  Graph g(Shape{4}, {0.0f, -0.0f, 1, -1});
  EXPECT_EQ(g.gradient(ops::relu(g.input), {1, 1, 1, 1}), (std::vector<float>{0, 0, 1, 0}));
}

TEST(Where, NoGradientLeaksFromTheSideThatIsNotTaken) {
  Graph g(Shape{4}, {4, 0, -1, 9});  // sqrt has no slope at 0 and no value at -1
  const Variable positive = ops::greater(g.input, ops::scalar(g.context, 0));
  const Variable safe = ops::where(positive, g.input, ops::scalar(g.context, 1));
  const Variable y = ops::where(positive, ops::sqrt(safe), ops::scalar(g.context, -7));
  EXPECT_EQ(y.tensor().to_vector<float>(), (std::vector<float>{2, -7, -7, 3}));
  EXPECT_EQ(g.gradient(y, {1, 1, 1, 1.5f}), (std::vector<float>{0.25f, 0, 0, 0.25f}));
}

TEST(Comparison, IsAConstant) {
  Graph g(Shape{3}, {1, 2, 3});
  const Variable less = ops::less(g.input, ops::scalar(g.context, 2.5f));
  EXPECT_FALSE(less.requires_grad());
  EXPECT_EQ(less.tensor().to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{1, 1, 0}));
}

TEST(Cast, ToAnIntegerIsAConstantAndToAFloatingTypePassesTheGradient) {
  Graph g(Shape{3}, {1, 2, 3});
  const Variable index = ops::cast(g.input, DType::i64);
  EXPECT_FALSE(index.requires_grad());
  EXPECT_EQ(index.tensor().to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(ops::cast(index, DType::f32).tensor().to_vector<float>(), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(ops::cast(g.input, DType::f32).tensor().data(), g.input.tensor().data());
  EXPECT_EQ(g.gradient(ops::cast(ops::cast(g.input, DType::bf16), DType::f32), {1, 1.00390625f, 3}),
            (std::vector<float>{1, 1, 3}));  // the gradient is rounded to bf16 on its way
}

TEST(Views, ShareTheirInputsMemory) {
  Graph g(Shape{4, 6}, std::vector<float>(24, 1.0f));
  const auto begin = static_cast<const float*>(g.input.tensor().data());
  const auto place = [&](const Variable& v) { return static_cast<const float*>(v.tensor().data()) - begin; };
  EXPECT_EQ(place(ops::reshape(g.input, {3, 8})), 0);
  EXPECT_EQ(place(ops::transpose(g.input, 0, 1)), 0);
  EXPECT_EQ(place(ops::permute(g.input, {1, 0})), 0);
  EXPECT_EQ(place(ops::slice(g.input, 0, 1, 3)), 6);
  EXPECT_EQ(place(ops::slice(g.input, 1, 2, 6, 2)), 2);
  EXPECT_EQ(place(ops::expand(g.input, Shape{5, 4, 6})), 0);
  EXPECT_EQ(place(ops::split(g.input, {1, 5}, 1)[1]), 1);
}

TEST(Split, APartThatNothingUsesHasAGradientOfZero) {
  Graph g(Shape{5}, {1, 2, 3, 4, 5});
  const Variables parts = ops::split(g.input, {2, 2, 1}, 0);
  EXPECT_EQ(g.gradient(parts[1], {7, 8}), (std::vector<float>{0, 0, 7, 8, 0}));
}

TEST(Gather, OfIntegers) {
  RankContext context;
  const Variable table(Tensor::from(context, Shape{2, 3}, std::vector<std::int64_t>{10, 11, 12, 20, 21, 22}));
  const Variable index(Tensor::from(context, Shape{2, 1}, std::vector<std::int32_t>{2, 0}));
  EXPECT_EQ(ops::gather(table, 1, index).tensor().to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{12, 20}));
}

// Known fault 7, its own example: the gradient of a matrix that met a batch.
TEST(Matmul, GradientOfABroadcastOperand) {
  Graph g(Shape{10, 12}, std::vector<float>(120, 1.0f));
  const Variable b(Tensor::from(g.context, Shape{2, 12, 14}, std::vector<float>(336, 0.5f)));
  const Variable y = ops::matmul(g.input, b);
  EXPECT_EQ(y.shape(), (Shape{2, 10, 14}));
  EXPECT_EQ(g.gradient(y, std::vector<float>(280, 1.0f)),
            std::vector<float>(120, 14.0f));  // 2 batches x 14 x 0.5
}

TEST(MseSum, IsASumWithASeed) {
  Graph g(Shape{2, 2}, {1, 2, 3, 4});
  const Variable target(Tensor::from(g.context, Shape{2, 2}, std::vector<float>{1, 0, 0, 8}));
  const Variable loss = ops::mse_sum(g.input, target);
  EXPECT_EQ(loss.tensor().item(), 0 + 4 + 9 + 16);
  EXPECT_EQ(g.gradient(loss, {0.25f}), (std::vector<float>{0, 1, 1.5f, -2}));
}

/// The chain rule through the layers of a small network, against numbers worked out by hand: y = sum(relu(x
/// w)^2).
TEST(Chain, ByHand) {
  Graph g(Shape{1, 2}, {1, -2});
  const Variable w(Tensor::from(g.context, Shape{2, 2}, std::vector<float>{3, 1, 1, 2}));
  const Variable h = ops::relu(ops::matmul(g.input, w));  // (1, -3) -> (1, 0)
  const Variable y = ops::sum(ops::pow(h, 2));
  EXPECT_EQ(y.tensor().item(), 1);
  EXPECT_EQ(g.gradient(y, {1}), (std::vector<float>{6, 2}));  // 2 h w^T
}

}  // namespace
}  // namespace penstock::testing
