// The tape: which values have gradients, in which half they are computed, and what is refused.
#include "autograd/tape.h"

#include <gtest/gtest.h>

#include "autograd/ops/arithmetic.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/linear.h"
#include "autograd/small_ops.h"
#include "support/simple_weights.h"
#include "support/temp_folder.h"

namespace penstock::testing {
namespace {

using Floats = std::vector<float>;

class TapeTest : public ::testing::Test {
 protected:
  Tensor vector(const Floats& values) {
    return Tensor::from(context, Shape{static_cast<Index>(values.size())}, values);
  }
  Variable product(const Variable& a, const Variable& b) { return apply_one<Product>({a, b}); }

  RankContext context{RankContext::Options{.poison = true}};
  SimpleWeights weights;
};

Floats values(const Tensor& t) { return t.defined() ? t.to_vector<float>() : Floats(); }

template <class Call>
std::string refusal(Call&& call) {
  return message_of<ValueError>(std::forward<Call>(call));
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

enum class How { full, halves };

void run_backward(Tape& tape, const Variables& outputs, const Tensors& gradients, How how) {
  if (how == How::full) {
    tape.backward(outputs, gradients);
  } else {
    tape.backward_input(outputs, gradients);
    tape.backward_weight();
  }
}

TEST_F(TapeTest, ProductRuleInBothHalves) {
  const WeightHandle w = weights.add(vector({5, 7}));
  for (const How how : {How::full, How::halves}) {
    Tape tape(context, &weights);
    const Variable x = tape.input(vector({2, 3}), true);
    const Variable y = product(x, tape.weight(w));
    EXPECT_EQ(y.kind(), ValueKind::activation);
    EXPECT_TRUE(y.requires_grad());
    EXPECT_EQ(values(y.tensor()), (Floats{10, 21}));
    run_backward(tape, {y}, {vector({1, -1})}, how);
    EXPECT_EQ(values(tape.take_grad(x)), (Floats{5, -7}));
    EXPECT_FALSE(tape.take_grad(x).defined()) << "it was moved out";
  }
  EXPECT_EQ(weights.gradient_values(w), (Floats{4, -6})) << "two micro-batches of (2, -3)";
}

TEST_F(TapeTest, TheInputHalfTouchesNoWeightGradient) {
  const WeightHandle w = weights.add(vector({5, 7}));
  Tape tape(context, &weights);
  const Variable x = tape.input(vector({2, 3}), true);
  const Variable y = product(x, product(tape.weight(w), tape.weight(w)));
  tape.backward_input(Variables{y}, Tensors{vector({1, 1})});
  EXPECT_EQ(values(tape.take_grad(x)), (Floats{25, 49}));
  EXPECT_FALSE(weights.has_gradient(w));
  tape.backward_weight();
  EXPECT_EQ(weights.gradient_values(w), (Floats{2 * 2 * 5, 2 * 3 * 7}));
}

TEST_F(TapeTest, AParameterUsedTwiceGetsTheSum) {
  for (const How how : {How::full, How::halves}) {
    SimpleWeights fresh;
    const WeightHandle w = fresh.add(vector({2, 3}));
    Tape tape(context, &fresh);
    const Variable x = tape.input(vector({1, 10}), true);
    // x w w, the weight taken once as a value and once anew: d/dw = 2 x w, d/dx = w^2
    const Variable once = tape.weight(w);
    const Variable y = product(product(x, once), tape.weight(w));
    run_backward(tape, {y}, {vector({1, 1})}, how);
    EXPECT_EQ(fresh.gradient_values(w), (Floats{4, 60}));
    EXPECT_EQ(values(tape.take_grad(x)), (Floats{4, 9}));
  }
}

TEST_F(TapeTest, AnOpOnWeightsAloneIsAWeightExpression) {
  for (const How how : {How::full, How::halves}) {
    SimpleWeights fresh;
    const WeightHandle w = fresh.add(Tensor::from(context, Shape{3, 2}, Floats{1, 2, 3, 4, 5, 6}));
    Tape tape(context, &fresh);
    const Variable x = tape.input(Tensor::from(context, Shape{2, 2}, Floats{10, 20, 30, 40}), true);
    const Variable part = apply_one<Rows>({tape.weight(w)}, 1, 3);  // rows 1 and 2
    EXPECT_EQ(part.kind(), ValueKind::weight);
    const Variable y = product(x, part);
    EXPECT_EQ(y.kind(), ValueKind::activation);
    run_backward(tape, {y}, {Tensor::from(context, Shape{2, 2}, Floats{1, 1, 1, 2})}, how);
    EXPECT_EQ(values(tape.take_grad(x)), (Floats{3, 4, 5, 12}));
    EXPECT_EQ(fresh.gradient_values(w), (Floats{0, 0, 10, 20, 30, 80}));
  }
}

TEST_F(TapeTest, AWeightExpressionUsedTwiceAddsItsGradientsBeforeItsOwnBackward) {
  const WeightHandle w = weights.add(vector({2, 3}));
  Tape tape(context, &weights);
  const Variable x = tape.input(vector({1, 10}), true);
  const Variable square = product(tape.weight(w), tape.weight(w));
  const Variable y = ops::add(product(x, square), product(x, square));  // 2 x w^2
  tape.backward_input(Variables{y}, Tensors{vector({1, 1})});
  EXPECT_EQ(values(tape.take_grad(x)), (Floats{8, 18}));
  tape.backward_weight();
  EXPECT_EQ(weights.gradient_values(w), (Floats{8, 120}));
}

// Handles, not tensors, are kept: a half sees the values that the resolver gives then.
TEST_F(TapeTest, WeightsAreResolvedWhenAHalfRuns) {
  const WeightHandle w = weights.add(vector({5, 7}));
  Tape tape(context, &weights);
  const Variable x = tape.input(vector({2, 3}), true);
  const Variable y = product(x, apply_one<Multiples>({tape.weight(w)}, Floats{2}));
  weights.set(w, vector({100, 200}));
  tape.backward_input(Variables{y}, Tensors{vector({1, 1})});
  EXPECT_EQ(values(tape.take_grad(x)), (Floats{200, 400}));
}

TEST_F(TapeTest, FrozenWeightsAndInputsWithoutGradient) {
  for (const How how : {How::full, How::halves}) {
    SimpleWeights fresh;
    const WeightHandle frozen = fresh.add(vector({5, 7})), trained = fresh.add(vector({2, 2}));
    Tape tape(context, &fresh);
    const Variable x = tape.input(vector({2, 3}), false);
    const Variable constant = product(x, tape.weight(frozen, false));
    EXPECT_FALSE(constant.requires_grad());
    EXPECT_EQ(tape.nodes(), 0) << "nothing needs a gradient: nothing is recorded";
    const Variable y = product(constant, tape.weight(trained));
    run_backward(tape, {y}, {vector({1, 1})}, how);
    EXPECT_FALSE(fresh.has_gradient(frozen));
    EXPECT_EQ(fresh.gradient_values(trained), (Floats{10, 21}));
    EXPECT_FALSE(tape.take_grad(x).defined());
  }
}

TEST_F(TapeTest, AFrozenWeightStillPassesTheGradientOfItsInput) {
  const WeightHandle frozen = weights.add(vector({5, 7}));
  Tape tape(context, &weights);
  const Variable x = tape.input(vector({2, 3}), true);
  const Variable y = product(x, tape.weight(frozen, false));
  tape.backward(Variables{y}, Tensors{vector({1, 2})});
  EXPECT_EQ(values(tape.take_grad(x)), (Floats{5, 14}));
  EXPECT_FALSE(weights.has_gradient(frozen));
}

TEST_F(TapeTest, SeveralOutputsEachWithItsGradient) {
  const auto gradient = [&](bool first, bool second, bool third) {
    Tape tape(context, nullptr);
    const Variable x = tape.input(vector({1, 2}), true);
    const Variables y = apply_op(std::make_unique<Multiples>(Floats{2, 3, 5}), Variables{x});
    tape.backward(y, Tensors{first ? vector({1, 1}) : Tensor(), second ? vector({10, 10}) : Tensor(),
                             third ? vector({100, 200}) : Tensor()});
    return values(tape.take_grad(x));
  };
  EXPECT_EQ(gradient(true, true, true), (Floats{532, 1032}));
  EXPECT_EQ(gradient(true, false, true), (Floats{502, 1002})) << "an undefined gradient counts as zero";
  EXPECT_EQ(gradient(false, true, false), (Floats{30, 30}));
  EXPECT_EQ(gradient(false, false, false), Floats()) << "no gradient at all: the input has none";
}

TEST_F(TapeTest, AnOutputMayBeAnInput) {
  for (const How how : {How::full, How::halves}) {
    Tape tape(context, nullptr);
    const Variable x = tape.input(vector({1, 2}), true), untouched = tape.input(vector({5}), true);
    const Variable y = product(x, x);
    run_backward(tape, {x, y, x}, {vector({10, 20}), vector({1, 1}), vector({100, 100})}, how);
    EXPECT_EQ(values(tape.take_grad(x)), (Floats{112, 124}));
    EXPECT_FALSE(tape.take_grad(untouched).defined()) << "no output depends on it";
  }
}

TEST_F(TapeTest, ConstantsAmongTheOutputsHaveNoSay) {
  Tape tape(context, nullptr);
  const Variable x = tape.input(vector({1, 2}), true), mask = tape.input(vector({7}), false);
  tape.backward(Variables{product(x, x), mask, Variable(vector({3}))},
                Tensors{vector({1, 1}), vector({1}), vector({1})});
  EXPECT_EQ(values(tape.take_grad(x)), (Floats{2, 4}));
}

TEST_F(TapeTest, AValueThatWasDroppedStillStartsTheBackward) {
  Tape tape(context, nullptr);
  const Variable x = tape.input(vector({3, 4}), true);
  Variable y = apply_one<Quarter>({x});
  y.drop_value();
  EXPECT_FALSE(y.defined());
  tape.backward(Variables{y}, Tensors{vector({2, 2})});
  EXPECT_EQ(values(tape.take_grad(x)), (Floats{3, 4}));  // dy/dx = x/2, from the output that the op saved
}

// dA = dB = dY is one tensor in three places: adding to one of them must not show in the others.
TEST_F(TapeTest, SharedGradientsAreNotAddedToInPlace) {
  for (const How how : {How::full, How::halves}) {
    Tape tape(context, nullptr);
    const Variable a = tape.input(vector({1, 2}), true), b = tape.input(vector({3, 4}), true);
    const Variable doubled = apply_one<Multiples>({a}, Floats{2});
    const Variable y = ops::add(a, b);
    const Tensor seed = vector({1, 1});
    run_backward(tape, {y, doubled}, {seed, vector({10, 10})}, how);
    EXPECT_EQ(values(tape.take_grad(a)), (Floats{21, 21}));
    EXPECT_EQ(values(tape.take_grad(b)), (Floats{1, 1}));
    EXPECT_EQ(values(seed), (Floats{1, 1})) << "the caller's tensor is not ours to change";
  }
}

TEST_F(TapeTest, SharedGradientsAreNotWrittenToByKernelsThatAdd) {
  for (const How how : {How::full, How::halves}) {
    Tape tape(context, nullptr);
    const Variable a = tape.input(vector({1, 2}), true), b = tape.input(vector({3, 4}), true);
    const Variable c = apply_one<Accumulating>({a, b});  // its backward adds to what `add` left in both
    const Variable y = ops::add(a, b);
    const Tensor seed = vector({1, 1});
    run_backward(tape, {y, c}, {seed, vector({10, 10})}, how);
    EXPECT_EQ(values(tape.take_grad(a)), (Floats{31, 41}));
    EXPECT_EQ(values(tape.take_grad(b)), (Floats{11, 21}));
    EXPECT_EQ(values(seed), (Floats{1, 1}));
  }
}

TEST_F(TapeTest, GradientsThatAreViewsAddUpToo) {
  Tape tape(context, nullptr);
  const Variable x = tape.input(vector({1, 2, 3}), true);
  const Tensor constant = vector({7}).expand(Shape{3});
  tape.backward(Variables{x, apply_one<Accumulating>({x, Variable(vector({1, 1, 1}))}), x},
                Tensors{constant, constant, vector({1, 2, 3})});
  EXPECT_EQ(values(tape.take_grad(x)), (Floats{15, 16, 17}));
  EXPECT_EQ(values(constant), (Floats{7, 7, 7}));
}

TEST_F(TapeTest, RunsTheRuntimesWorkBetweenOps) {
  int calls = 0;
  context.set_between_ops([&] { ++calls; });
  Tape tape(context, nullptr);
  const Variable x = tape.input(vector({1}), true);
  const Variable y = product(product(x, x), x);
  EXPECT_EQ(calls, 2);
  tape.backward(Variables{y}, Tensors{vector({1})});
  EXPECT_EQ(calls, 4);
}

TEST_F(TapeTest, BackwardRunsOnce) {
  const WeightHandle w = weights.add(vector({5}));
  const auto record = [&](Tape& tape) { return product(tape.input(vector({2}), true), tape.weight(w)); };
  const Tensors one{vector({1})};
  Tape twice(context, &weights);
  const Variables y{record(twice)};
  twice.backward(y, one);
  EXPECT_TRUE(contains(refusal([&] { twice.backward(y, one); }), "backward ran already on this tape"));
  EXPECT_TRUE(contains(refusal([&] { twice.backward_input(y, one); }), "backward ran already on this tape"));
  EXPECT_TRUE(contains(refusal([&] { twice.backward_weight(); }), "the W half needs the I half before it"));
  EXPECT_EQ(weights.gradient_values(w), (Floats{2})) << "a refused call changes nothing";

  Tape halves(context, &weights);
  const Variables z{record(halves)};
  EXPECT_TRUE(contains(refusal([&] { halves.backward_weight(); }), "the W half needs the I half before it"));
  halves.backward_input(z, one);
  EXPECT_TRUE(contains(refusal([&] { halves.backward_input(z, one); }), "backward ran already on this tape"));
  halves.backward_weight();
  EXPECT_TRUE(contains(refusal([&] { halves.backward_weight(); }), "and runs once"));
  EXPECT_EQ(weights.gradient_values(w), (Floats{4}));
}

TEST_F(TapeTest, NothingIsRecordedAfterABackwardBegan) {
  Tape tape(context, nullptr);
  const Variable x = tape.input(vector({1}), true);
  tape.backward_input(Variables{product(x, x)}, Tensors{vector({1})});
  EXPECT_TRUE(
      contains(refusal([&] { product(x, x); }), "product: recorded on a tape whose backward has begun"));
}

TEST_F(TapeTest, TapesDoNotMix) {
  Tape one(context, nullptr), other(context, nullptr);
  const Variable a = one.input(vector({1}), true), b = other.input(vector({1}), true);
  EXPECT_TRUE(contains(refusal([&] { product(a, b); }), "product: inputs from two tapes"));
  EXPECT_TRUE(contains(refusal([&] { one.backward(Variables{b}, Tensors{vector({1})}); }),
                       "a value of another tape"));
  EXPECT_TRUE(contains(refusal([&] { one.take_grad(b); }), "the gradient of a value of another tape"));
  EXPECT_TRUE(contains(refusal([&] { one.take_grad(Variable(vector({1}))); }),
                       "the gradient of a value of another tape"));
}

// Known fault 1: an op without a backward is an error when recorded, never a silent stop of the gradient.
TEST_F(TapeTest, AnOpWithoutGradientIsRefusedWhenRecorded) {
  Tape tape(context, nullptr);
  const Variable x = tape.input(vector({1}), true);
  EXPECT_TRUE(contains(refusal([&] { apply_one<Opaque>({x}); }), "opaque: has no gradient"));
  EXPECT_EQ(values(apply_one<Opaque>({tape.input(vector({4}), false)}).tensor()), (Floats{4}));
  EXPECT_EQ(values(apply_one<Opaque>({Variable(vector({5}))}).tensor()), (Floats{5}));
}

TEST_F(TapeTest, RefusesWhatDoesNotFit) {
  Tape tape(context, nullptr);
  const Variable x = tape.input(vector({1, 2}), true);
  EXPECT_TRUE(contains(refusal([&] { tape.weight({}); }), "a tape that has no weight store"));
  EXPECT_TRUE(contains(refusal([&] { tape.take_grad(x); }), "there after the I half"));
  EXPECT_TRUE(
      contains(refusal([&] { tape.backward(Variables{x}, Tensors{}); }), "1 outputs with 0 gradients"));
  EXPECT_TRUE(contains(message_of<ShapeError>([&] { tape.backward(Variables{x}, Tensors{vector({1})}); }),
                       "gradient of shape (1) for an output of shape (2)"));
  EXPECT_TRUE(contains(refusal([&] { product(x, Variable()); }), "product: input 1 has no value"));
  Variable gone = x;
  gone.drop_value();
  EXPECT_TRUE(contains(refusal([&] { product(gone, x); }), "product: input 0 has no value"));
  EXPECT_TRUE(contains(refusal([&] { apply_op(std::make_unique<Multiples>(Floats{1}), Variables(33, x)); }),
                       "multiples: more than 32 inputs"));
}

TEST_F(TapeTest, AFaultyOpIsNamed) {
  const auto message = [&](Faulty::Fault fault) {
    Tape tape(context, nullptr);
    const Variable x = tape.input(vector({1, 2}), true);
    const Variable y = apply_one<Faulty>({x, Variable(vector({1, 2}))}, fault);
    return message_of<Error>([&] { tape.backward(Variables{y}, Tensors{vector({1, 1})}); });
  };
  EXPECT_TRUE(
      contains(message(Faulty::Fault::unasked), "backward of faulty: faulty: gives a gradient of input 1"));
  EXPECT_TRUE(
      contains(message(Faulty::Fault::wrong_shape), "gradient of shape (1, 1) for input 0 of shape (2)"));
  EXPECT_TRUE(contains(message(Faulty::Fault::unsaved), "did not save for this half"));
}

// Known fault 1: whatever stands before an op learns, also on a fast path for contiguous inputs.
TEST_F(TapeTest, UpstreamWeightsLearnThroughStridedAndDenseInputs) {
  for (const bool strided : {false, true}) {
    SimpleWeights fresh;
    const WeightHandle w = fresh.add(Tensor::from(context, Shape{2, 2}, Floats{1, 2, 3, 4}));
    Tape tape(context, &fresh);
    Tensor data = Tensor::from(context, Shape{2, 2}, Floats{1, 5, 2, 7});
    if (strided) data = data.transpose(0, 1);
    const Variable y = ops::gelu(ops::linear(Variable(data), tape.weight(w)));
    tape.backward(Variables{y}, Tensors{Tensor::from(context, Shape{2, 2}, Floats{1, 2, 3, 5})});
    const Floats gradient = fresh.gradient_values(w);
    ASSERT_EQ(gradient.size(), 4u);
    for (const float g : gradient) EXPECT_NE(g, 0.0f);
  }
}

}  // namespace
}  // namespace penstock::testing
