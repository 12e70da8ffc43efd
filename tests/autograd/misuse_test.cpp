// What a user of tapes can get wrong, and how it is told: values changed in place, integers with gradients.
// And the scopes in which nothing is recorded on purpose.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "autograd/ops/arithmetic.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/small_ops.h"
#include "autograd/tape.h"
#include "support/simple_weights.h"
#include "support/temp_folder.h"

namespace penstock::testing {
namespace {

using Floats = std::vector<float>;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Misuse : public ::testing::Test {
 protected:
  Tensor vector(const Floats& values) {
    return Tensor::from(context, Shape{static_cast<Index>(values.size())}, values);
  }

  RankContext context{RankContext::Options{.poison = true}};
  SimpleWeights weights;
};

/// Doubles in place, as a user's kernel may.
void double_in_place(const Tensor& t) {
  for (Index i = 0; i < t.numel(); ++i) t.data_as<float>()[i] *= 2;
  t.changed_in_place();
}

TEST_F(Misuse, AValueChangedInPlaceAfterItWasSaved) {
  const std::vector<std::function<void(Tensor)>> writers = {
      [](Tensor t) { t.copy_from(t.clone()); },
      [](Tensor t) {
        t.copy_from_host(Floats{9, 9, 9, 9}.data(), 4 * sizeof(float));
      },
      [](Tensor t) { t.fill_zero(); },
      [](const Tensor& t) { double_in_place(t); },
      [](const Tensor& t) { t.slice(0, 3, 4).fill_zero(); },  // through a view of the same storage
      [](const Tensor& t) {
        t.reshape(Shape{2, 2}).changed_in_place();
      },  // likewise
  };
  for (std::size_t i = 0; i < writers.size(); ++i) {
    for (const bool half : {false, true}) {
      Tape tape(context, nullptr);
      const Tensor data = vector({1, 2, 3, 4});
      const Variable x = tape.input(data, true);
      const Variable y = apply_one<Product>({x, x});
      writers[i](data);
      const std::string message = message_of<ValueError>([&] {
        const Tensors seed{vector({1, 1, 1, 1})};
        half ? tape.backward_input(Variables{y}, seed) : tape.backward(Variables{y}, seed);
      });
      EXPECT_TRUE(
          contains(message, "product: input 1 of shape (4) was changed in place after the forward saved it"))
          << i << ": " << message;
      EXPECT_TRUE(contains(message_of<ValueError>([&] { tape.backward_weight(); }), "W half"))
          << "half-done is done";
    }
  }
}

TEST_F(Misuse, OutputsAndOtherSavedTensorsAreWatchedToo) {
  {
    Tape tape(context, nullptr);
    const Variable y = apply_one<Quarter>({tape.input(vector({4, 9}), true)});
    Tensor(y.tensor()).fill_zero();
    EXPECT_TRUE(contains(message_of<ValueError>([&] {
                           tape.backward(Variables{y}, Tensors{vector({1, 1})});
                         }),
                         "quarter: output 0 of shape (2) was changed"));
  }
  {
    Tape tape(context, nullptr);
    const Tensor data = vector({4, 9});
    const Variable y = ops::gelu(tape.input(data, true));
    Tensor(data).fill_zero();
    EXPECT_TRUE(contains(message_of<ValueError>([&] {
                           tape.backward(Variables{y}, Tensors{vector({1, 1})});
                         }),
                         "gelu: tensor 0 of shape (2) was changed"));
  }
}

TEST_F(Misuse, ChangesThatNoBackwardReadsAreFine) {
  // Before the forward; after the backward; of a value that is not needed; of the input of an op that keeps
  // none.
  Tape tape(context, nullptr);
  Tensor data = vector({1, 2});
  data.copy_from(vector({3, 4}));
  const Variable x = tape.input(data, true);
  const Variable y = apply_one<Multiples>({apply_one<Product>({x, Variable(vector({5, 6}))})}, Floats{2});
  data.fill_zero();  // the product's gradient of x needs the constant alone
  Tensor(y.tensor()).fill_zero();
  tape.backward(Variables{y}, Tensors{vector({1, 1})});
  EXPECT_EQ(tape.take_grad(x).to_vector<float>(), (Floats{10, 12}));
}

TEST_F(Misuse, TheWeightHalfLooksAgain) {
  const WeightHandle w = weights.add(vector({5, 7}));
  Tape tape(context, &weights);
  const Tensor data = vector({2, 3});
  const Variable y = apply_one<Product>({tape.input(data, true), tape.weight(w)});
  tape.backward_input(Variables{y}, Tensors{vector({1, 1})});
  Tensor(data).fill_zero();  // such as a batch's buffer that is used again before the delayed W
  EXPECT_TRUE(contains(message_of<ValueError>([&] { tape.backward_weight(); }), "was changed in place"));
  EXPECT_FALSE(weights.has_gradient(w));
}

TEST_F(Misuse, WeightsMayChangeTheyAreResolvedAgain) {
  const Tensor value = vector({5, 7});
  const WeightHandle w = weights.add(value);
  Tape tape(context, &weights);
  const Variable x = tape.input(vector({2, 3}), true);
  const Variable y = apply_one<Product>({x, tape.weight(w)});
  Tensor(value).copy_from(vector({50, 70}));
  tape.backward(Variables{y}, Tensors{vector({1, 1})});
  EXPECT_EQ(tape.take_grad(x).to_vector<float>(), (Floats{50, 70}));
}

TEST_F(Misuse, TheGradientThatIsWrittenOverLogitsIsNoChange) {
  const WeightHandle w = weights.add(Tensor::from(context, Shape{2, 3}, Floats{1, 2, 3, 4, 5, 6}));
  Tape tape(context, &weights);
  const Tensor targets = Tensor::from(context, Shape{2}, std::vector<std::int32_t>{2, 0});
  const Variable x = tape.input(Tensor::from(context, Shape{2, 2}, Floats{1, -1, 0.5, 2}), true);
  Variable loss = ops::cross_entropy_sum(ops::linear(x, tape.weight(w)), Variable(targets));
  const Index before = context.allocator().live()[MemoryKind::activation];
  tape.backward_input(Variables{loss}, Tensors{vector({1})});
  EXPECT_EQ(context.allocator().live()[MemoryKind::activation] - before,
            static_cast<Index>(4 * sizeof(float)) - static_cast<Index>(2 * sizeof(float)))
      << "the gradient of x came, the two log-sum-exps went; the logits' gradient took the logits' memory";
  tape.backward_weight();
  EXPECT_TRUE(weights.has_gradient(w));
}

TEST_F(Misuse, IntegersHaveNoGradient) {
  Tape tape(context, nullptr);
  const Tensor ids = Tensor::from(context, Shape{2}, std::vector<std::int32_t>{1, 2});
  EXPECT_TRUE(contains(message_of<ValueError>([&] { tape.input(ids, true); }),
                       "a gradient of an input of int32: only floating-point values have one"));
  EXPECT_EQ(tape.nodes(), 0);
  const Variable passed = tape.input(ids, false), x = tape.input(vector({1, 2}), true);
  const Variable y = apply_one<Product>({x, x});
  EXPECT_TRUE(contains(message_of<ValueError>([&] {
                         tape.backward(Variables{y, passed}, Tensors{vector({1, 1}), vector({1, 1})});
                       }),
                       "a gradient for output 1 of int32: integers have none"));
  tape.backward(Variables{y, passed}, Tensors{vector({1, 1}), Tensor()});
  EXPECT_EQ(tape.take_grad(x).to_vector<float>(), (Floats{2, 4})) << "a refused call changed nothing";
}

/// The largest value and where it is: one output has a gradient, the other cannot.
class LargestWithPlace final : public Op {
 public:
  std::string_view name() const override { return "largest"; }
  Tensors forward(std::span<const Tensor> in, Saver&) override {
    const Floats x = in[0].to_vector<float>();
    place_ = std::max_element(x.begin(), x.end()) - x.begin();
    shape_ = in[0].shape();
    return {Tensor::from(in[0].context(), Shape{1}, Floats{x[static_cast<std::size_t>(place_)]}),
            Tensor::from(in[0].context(), Shape{1}, std::vector<std::int64_t>{place_})};
  }
  void backward(BackwardContext& ctx) override {
    const Tensor dx = Tensor::zeros(ctx.context(), shape_);
    dx.slice(0, place_, place_ + 1).copy_from(ctx.grad());
    ctx.set_grad(0, dx);
  }

 private:
  Index place_ = 0;
  Shape shape_;
};

TEST_F(Misuse, AnIntegerAmongAnOpsOutputsIsAConstant) {
  Tape tape(context, nullptr);
  const Variable x = tape.input(vector({1, 7, 3}), true);
  const Variables y = apply_op(std::make_unique<LargestWithPlace>(), {&x, 1});
  EXPECT_TRUE(y[0].requires_grad());
  EXPECT_FALSE(y[1].requires_grad());
  tape.backward(y, Tensors{vector({2}), Tensor()});
  EXPECT_EQ(tape.take_grad(x).to_vector<float>(), (Floats{0, 2, 0}));
}

TEST_F(Misuse, AGradientOfAWeightIsNotOnTheTape) {
  const WeightHandle h = weights.add(vector({5, 7}));
  Tape tape(context, &weights);
  const Variable w = tape.weight(h);
  const Variable y = apply_one<Product>({tape.input(vector({1, 1}), true), w});
  tape.backward(Variables{y}, Tensors{vector({1, 1})});
  EXPECT_TRUE(contains(message_of<ValueError>([&] { tape.take_grad(w); }), "where its store has it"));
}

TEST_F(Misuse, ABackwardThatFailedIsNotRepeated) {
  Tape tape(context, nullptr);
  const Variable x = tape.input(vector({1, 2}), true);
  const Variables y{apply_one<Faulty>({x, Variable(vector({1, 2}))}, Faulty::Fault::unsaved)};
  EXPECT_THROW(tape.backward(y, Tensors{vector({1, 1})}), ValueError);
  EXPECT_TRUE(contains(message_of<ValueError>([&] {
                         tape.backward(y, Tensors{vector({1, 1})});
                       }),
                       "ran already"));
  EXPECT_TRUE(contains(message_of<ValueError>([&] { tape.take_grad(x); }), "after the I half"));
}

TEST_F(Misuse, NothingIsRecordedUnderNoGrad) {
  const WeightHandle w = weights.add(vector({5, 7}));
  Tape tape(context, &weights), other(context, &weights);
  const Variable x = tape.input(vector({2, 3}), true);
  Variable constant, too;
  {
    const Tape::NoGrad guard(tape);
    constant = apply_one<Product>({x, tape.weight(w)});
    {
      const Tape::NoGrad inner(tape);
      too = apply_one<Opaque>({x});
    }
    EXPECT_FALSE(apply_one<Product>({x, x}).requires_grad()) << "the inner scope's end is not the outer's";
    EXPECT_TRUE(apply_one<Product>({other.input(vector({1}), true), Variable(vector({1}))}).requires_grad())
        << "another tape records";
  }
  EXPECT_EQ(tape.nodes(), 0);
  EXPECT_FALSE(constant.requires_grad());
  EXPECT_EQ(constant.tensor().to_vector<float>(), (Floats{10, 21}));
  const Variable y = apply_one<Product>({x, constant});
  EXPECT_EQ(tape.nodes(), 1) << "and after it recording goes on";
  tape.backward(Variables{y}, Tensors{vector({1, 1})});
  EXPECT_EQ(tape.take_grad(x).to_vector<float>(), (Floats{10, 21}));
  EXPECT_FALSE(weights.has_gradient(w));
}

TEST_F(Misuse, NoGradEndsWithAnException) {
  Tape tape(context, nullptr);
  const Variable x = tape.input(vector({1}), true);
  EXPECT_THROW(
      {
        const Tape::NoGrad guard(tape);
        ops::linear(x, x);
      },
      ShapeError);
  EXPECT_TRUE(apply_one<Product>({x, x}).requires_grad());
}

TEST_F(Misuse, DetachedValuesPassNoGradient) {
  Tape tape(context, nullptr);
  const Variable x = tape.input(vector({2, 3}), true);
  const Variable square = apply_one<Product>({x, x});
  const Variable held = detach(square);
  EXPECT_EQ(held.tensor().data(), square.tensor().data()) << "the same memory";
  const Variable y = apply_one<Product>({x, held});  // x times the constant x^2
  tape.backward(Variables{y}, Tensors{vector({1, 1})});
  EXPECT_EQ(tape.take_grad(x).to_vector<float>(), (Floats{4, 9}));
}

}  // namespace
}  // namespace penstock::testing
