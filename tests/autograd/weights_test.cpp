// Weights on a tape: expressions of them whose W half comes late, weights as outputs, and who is told when a
// gradient is complete.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "autograd/ops/arithmetic.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/small_ops.h"
#include "autograd/tape.h"
#include "support/simple_weights.h"

namespace penstock::testing {
namespace {

using Floats = std::vector<float>;

class WeightsOnATape : public ::testing::Test {
 protected:
  Tensor vector(const Floats& values) {
    return Tensor::from(context, Shape{static_cast<Index>(values.size())}, values);
  }
  Tensor matrix(Index rows, Index cols, float first) {
    Floats values;
    for (Index i = 0; i < rows * cols; ++i) values.push_back(std::sin(first + static_cast<float>(i) * 1.7f));
    return Tensor::from(context, Shape{rows, cols}, values);
  }

  RankContext context{RankContext::Options{.poison = true}};
  SimpleWeights weights;
};

/// c[i][j] = sum over k of a[i][k] b[k][j], by hand.
Floats times(const Floats& a, const Floats& b, std::size_t rows, std::size_t inner, std::size_t cols) {
  Floats c(rows * cols);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < cols; ++j)
      for (std::size_t k = 0; k < inner; ++k) c[i * cols + j] += a[i * inner + k] * b[k * cols + j];
  return c;
}

void expect_near(const Floats& a, const Floats& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(std::abs(a[i] - b[i]) <= 1e-5f) << i << ": " << a[i] << " " << b[i];
}

/// Slice of a fused (in, 3 out) weight, transposed, cast to bf16 and back: q = x (W[:, 2:4]).
struct Expression {
  const char* name;
  std::function<Variable(const Variable& w)> of;  // (3, 6) -> (3, 2) or (2, 3)
  ops::WeightLayout layout;
  bool rounded;
};

// The I half uses the values of its time, and the W half, long after it and after the weights have changed
// again, writes where the expression came from.
TEST_F(WeightsOnATape, ExpressionsWorkWithDelayedWeightHalvesAndLaterVersions) {
  const std::vector<Expression> expressions = {
      {"slice", [](const Variable& w) { return ops::slice(w, 1, 2, 4); }, ops::WeightLayout::in_out, false},
      {"transposed slice", [](const Variable& w) { return ops::transpose(ops::slice(w, 1, 2, 4), 0, 1); },
       ops::WeightLayout::out_in, false},
      {"cast slice",
       [](const Variable& w) {
         return ops::cast(ops::cast(ops::slice(w, 1, 2, 4), DType::bf16), DType::f32);
       },
       ops::WeightLayout::in_out, true},
      {"split",
       [](const Variable& w) {
         return ops::split(w, {2, 2, 2}, 1)[1];
       },
       ops::WeightLayout::in_out, false},
  };
  for (const Expression& expression : expressions) {
    SCOPED_TRACE(expression.name);
    SimpleWeights fresh;
    const WeightHandle w = fresh.add(matrix(3, 6, 0.3f));
    std::vector<std::unique_ptr<Tape>> tapes;
    std::vector<Floats> dw;  // of the slice, by hand: x^T dy of each micro-batch
    for (int m = 0; m < 3; ++m) {
      tapes.push_back(std::make_unique<Tape>(context, &fresh));
      Tape& tape = *tapes.back();
      const Tensor x = matrix(4, 3, 5.0f + static_cast<float>(m)),
                   dy = matrix(4, 2, 9.0f + static_cast<float>(m));
      const Variable in = tape.input(x, true);
      const Variable part = expression.of(tape.weight(w));
      EXPECT_EQ(part.kind(), ValueKind::weight);
      const Variable y = ops::linear(in, part, {}, expression.layout);
      fresh.set(w, matrix(3, 6, 20.0f + static_cast<float>(m)));  // a later version, before the I half
      tape.backward_input({&y, 1}, {&dy, 1});
      // dx = dy part^T with the values that are there now
      Floats transposed;
      const Floats now = matrix(3, 6, 20.0f + static_cast<float>(m)).to_vector<float>();
      for (std::size_t c = 2; c < 4; ++c)
        for (std::size_t r = 0; r < 3; ++r)
          transposed.push_back(expression.rounded ? static_cast<float>(bf16(now[r * 6 + c]))
                                                  : now[r * 6 + c]);
      expect_near(tape.take_grad(in).to_vector<float>(), times(dy.to_vector<float>(), transposed, 4, 2, 3));
      dw.push_back(times(x.transpose(0, 1).contiguous().to_vector<float>(), dy.to_vector<float>(), 3, 4, 2));
      EXPECT_FALSE(fresh.has_gradient(w));
    }
    fresh.set(w, matrix(3, 6, 77.0f));
    for (const auto& tape : tapes) tape->backward_weight();
    Floats expected(18, 0.0f);
    for (std::size_t r = 0; r < 3; ++r)
      for (std::size_t c = 0; c < 2; ++c)
        for (const Floats& one : dw) expected[r * 6 + 2 + c] += one[r * 2 + c];
    expect_near(fresh.gradient_values(w), expected);
  }
}

// The gradient of a parameter that is itself an output waits for the W half too: else the I half of one
// micro-batch would add before the W half of an earlier one, and sums would depend on the schedule.
TEST_F(WeightsOnATape, AWeightThatIsAnOutputGetsItsGradientInTheWeightHalf) {
  const WeightHandle direct = weights.add(vector({1, 2})), sliced = weights.add(vector({1, 2, 3}));
  const auto record = [&](Tape& tape, float scale) {
    const Variable x = tape.input(vector({scale, scale}), true);
    Variables outputs{tape.weight(direct), ops::slice(tape.weight(sliced), 0, 1, 3),
                      apply_one<Product>({x, tape.weight(direct)}), tape.weight(direct)};
    return outputs;
  };
  const Tensors seeds{vector({10, 20}), vector({3, 4}), vector({1, 1}), vector({100, 200})};
  Tape first(context, &weights), second(context, &weights);
  const Variables a = record(first, 1), b = record(second, 2);
  first.backward_input(a, seeds);
  second.backward_input(b, seeds);
  EXPECT_FALSE(weights.has_gradient(direct));
  EXPECT_FALSE(weights.has_gradient(sliced));
  first.backward_weight();
  EXPECT_EQ(weights.gradient_values(direct), (Floats{111, 221}));
  EXPECT_EQ(weights.gradient_values(sliced), (Floats{0, 3, 4}));
  second.backward_weight();
  EXPECT_EQ(weights.gradient_values(direct), (Floats{223, 443}));
  Tape full(context, &weights);
  full.backward(record(full, 0), seeds);
  EXPECT_EQ(weights.gradient_values(direct), (Floats{333, 663}));
  EXPECT_EQ(weights.gradient_values(sliced), (Floats{0, 9, 12}));
  EXPECT_EQ(seeds[0].to_vector<float>(), (Floats{10, 20})) << "the caller's tensor is not ours to change";
}

// I then W equals B bit for bit also where a weight is an output: numbers whose sums depend on the order.
TEST_F(WeightsOnATape, WeightsAsOutputsKeepTheOrderOfAdditions) {
  const auto gradient = [&](int how) {
    SimpleWeights fresh;
    const WeightHandle w = fresh.add(vector({1}));
    std::vector<std::unique_ptr<Tape>> tapes;
    for (int m = 0; m < 3; ++m) {
      tapes.push_back(std::make_unique<Tape>(context, &fresh));
      const float large = m == 0 ? 1e8f : m == 1 ? -1e8f : 0.25f;
      const Variable x = tapes.back()->input(vector({large}), true);
      const Variables y{apply_one<Product>({x, tapes.back()->weight(w)}), tapes.back()->weight(w)};
      const Tensors seeds{vector({1}), vector({3.3f})};
      if (how == 0) {
        tapes.back()->backward(y, seeds);
      } else {
        tapes.back()->backward_input(y, seeds);
        if (how == 1) tapes.back()->backward_weight();
      }
    }
    if (how == 2)
      for (const auto& tape : tapes) tape->backward_weight();
    return fresh.gradient_values(w);
  };
  EXPECT_EQ(gradient(0), gradient(1));
  EXPECT_EQ(gradient(0), gradient(2));
  EXPECT_NE(gradient(0)[0], 9.9f + 0.25f) << "the order shows";
}

TEST_F(WeightsOnATape, EachWeightIsToldOfOnceAfterItsLastUse) {
  const WeightHandle a = weights.add(vector({1, 2})), b = weights.add(vector({3, 4})),
                     c = weights.add(vector({5, 6})), unused = weights.add(vector({7, 8})),
                     frozen = weights.add(vector({1, 1})), within = weights.add(vector({2, 2})),
                     out = weights.add(vector({1, 0}));
  for (const bool halves : {false, true}) {
    for (const WeightHandle& w : {a, b, c, unused, frozen, within, out}) weights.set(w, vector({1, 2}));
    Tape tape(context, &weights);
    const Variable x = tape.input(vector({2, 3}), true);
    const auto product = [](const Variable& p, const Variable& q) { return apply_one<Product>({p, q}); };
    Variable h = product(x, tape.weight(a));
    h = product(h, tape.weight(frozen, false));
    h = product(h, product(tape.weight(b), tape.weight(b)));  // a weight expression
    h = tape.recompute(
        [&](const Variables& in, Tape& t) {
          return Variables{product(product(in[0], t.weight(within)), t.weight(c))};
        },
        {h})[0];
    tape.weight(unused);
    const Variables outputs{product(h, tape.weight(c)), tape.weight(out)};
    std::vector<int> told;
    const auto values = [&](const WeightHandle& w) { return weights.gradient_values(w); };
    std::map<int, Floats> at_that_time;
    tape.on_weight_done([&](const WeightHandle& w) {
      told.push_back(w.parameter);
      at_that_time[w.parameter] = values(w);
    });
    const Tensors seeds{vector({1, 1}), vector({1, 1})};
    if (halves) {
      tape.backward_input(outputs, seeds);
      EXPECT_TRUE(told.empty());
      tape.backward_weight();
    } else {
      tape.backward(outputs, seeds);
    }
    // Those without a use first; then as the backward meets the first, which is the last, of their uses.
    ASSERT_EQ(told.size(), 6u);
    EXPECT_EQ(std::set<int>(told.begin(), told.begin() + 2),
              (std::set<int>{unused.parameter, out.parameter}));
    EXPECT_EQ(std::set<int>(told.begin() + 2, told.begin() + 4),
              (std::set<int>{within.parameter, c.parameter}));
    EXPECT_EQ(told[4], b.parameter);
    EXPECT_EQ(told[5], a.parameter);
    for (const WeightHandle& w : {a, b, c, within, out})
      EXPECT_EQ(at_that_time[w.parameter], values(w)) << w.parameter;
    EXPECT_TRUE(at_that_time[unused.parameter].empty());
  }
}

}  // namespace
}  // namespace penstock::testing
