// What a user's model may do wrong, or in a way that not every model does: told by name, and never a wait for
// a value that does not come.
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/losses.h"
#include "autograd/ops/reductions.h"
#include "nn/layers.h"
#include "parallel/pipeline/runtime/batch_source.h"
#include "parallel/pipeline/schedule/lower.h"
#include "parallel/runtime/support.h"

namespace penstock::testing {
namespace {

using Forward = std::function<Variables(const Variables&, const BlockContext&)>;

/// A layer of width 3 that does what the test says.
class Step final : public Block {
 public:
  Step(const std::string& name, Forward forward)
      : Block(name), map_(scope(name), 3, 3, 0.5f), forward_(std::move(forward)) {}
  Variables forward(const Variables& in, const BlockContext& context) const override {
    const Variables mapped{map_(in[0], context)};
    return forward_ ? forward_(mapped, context) : mapped;
  }

 private:
  Linear map_;
  Forward forward_;
};

class Points final : public BatchSource {
 public:
  Index batch(Index) override { return 4; }
  Index valid_targets(Index) override { return 4; }
  MicroBatch load(RankContext& context, Index, SequenceSpan span, bool inputs, bool targets) override {
    MicroBatch batch = micro_batch_of(context, span);
    std::vector<float> values;
    for (Index i = 0; i < 3 * span.size(); ++i) values.push_back(0.1f * static_cast<float>(i + span.first));
    if (inputs) batch.inputs = {Tensor::from(context, Shape{span.size(), 3}, values)};
    if (targets) batch.targets = {Tensor::from(context, Shape{span.size(), 3}, values)};
    return batch;
  }
};

Model model_of(Forward first, LossFunction loss) {
  std::vector<std::unique_ptr<Block>> blocks;
  blocks.push_back(std::make_unique<Step>("one", std::move(first)));
  blocks.push_back(std::make_unique<Step>("two", Forward()));
  return Model("steps", std::move(blocks), std::move(loss));
}

Variable squared_error(const Variables& outputs, const Tensors& targets) {
  return ops::mse_sum(outputs[0], Variable(targets[0]));
}

Training training_of(const Model& model, Index pp) {
  Training t;
  t.model = &model;
  t.source = [] { return std::make_unique<Points>(); };
  t.plan = named_plan("1f1b", pp, 2);
  t.partition = even_partition(model, pp);
  t.micro_batch = 2;
  return t;
}

std::string words_of(const Model& model, Index pp) {
  try {
    train(training_of(model, pp));
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was wrong";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ModelErrors, ABlockThatGivesOtherValuesThanWithoutMemory) {
  const Model more = model_of(
      [](const Variables& in, const BlockContext& c) {
        return c.rank->device().kind == DeviceKind::meta ? in : Variables{in[0], in[0]};
      },
      squared_error);
  EXPECT_TRUE(contains(words_of(more, 2), "0F0: block one gave 2 values, and 1 when it ran without memory"))
      << words_of(more, 2);
  const Model other = model_of(
      [](const Variables& in, const BlockContext& c) {
        return c.rank->device().kind == DeviceKind::meta ? Variables{in[0], in[0]} : in;
      },
      squared_error);
  EXPECT_TRUE(contains(words_of(other, 2), "block one gave 1 values, and 2")) << words_of(other, 2);
}

TEST(ModelErrors, AValueThatIsNone) {
  const Model model = model_of(
      [](const Variables& in, const BlockContext&) {
        return Variables{in[0], Variable()};
      },
      squared_error);
  EXPECT_TRUE(contains(words_of(model, 2), "block one: gave no value as output 1")) << words_of(model, 2);
}

TEST(ModelErrors, LossesThatAreNoNumber) {
  const auto words = [](LossFunction loss) {
    const Model model = model_of(Forward(), std::move(loss));
    return words_of(model, 1);
  };
  EXPECT_TRUE(contains(words({}), "the model steps has no loss")) << words({});
  const auto none = words([](const Variables&, const Tensors&) { return Variable(); });
  EXPECT_TRUE(contains(none, "the loss of the model steps gives no number")) << none;
  const auto many = words([](const Variables& outputs, const Tensors&) { return outputs[0]; });
  EXPECT_TRUE(contains(many, "the loss of the model steps is one number, not of shape (2, 3)")) << many;
}

/// Losses made of ops: of no dimensions, and combined.
TEST(ModelErrors, LossesMadeOfOpsTrainAsTheirFusedForms) {
  const Model fused = model_of(Forward(), squared_error);
  const Model made = model_of(Forward(), [](const Variables& outputs, const Tensors& targets) {
    const Variable d = ops::sub(outputs[0], Variable(targets[0]));
    return ops::sum(ops::mul(d, d));  // ()
  });
  const Model halves = model_of(Forward(), [](const Variables& outputs, const Tensors& targets) {
    const Variable half = ops::mul(ops::cast(squared_error(outputs, targets), DType::f32), 0.5f);
    return ops::add(half, half);
  });
  const Outcome expected = train(training_of(fused, 1));
  for (const Model* model : {&made, &halves})
    for (const Index pp : {1, 2}) {
      const Outcome outcome = train(training_of(*model, pp));
      EXPECT_LT(relative_difference(expected.first_gradients, outcome.first_gradients), 1e-6);
      EXPECT_NEAR(outcome.steps[0].loss, expected.steps[0].loss, 1e-6);
    }
}

TEST(ModelErrors, AValueOfTheTrainingAloneDoesNotHoldUpTheEvaluation) {
  const Model model = model_of(
      [](const Variables& in, const BlockContext& c) {
        return c.mode == Mode::train ? Variables{in[0], in[0]} : in;
      },
      squared_error);
  EXPECT_TRUE(same_bits(train(training_of(model, 1)), train(training_of(model, 2))));
  run_ranks(
      2,
      [&](Communicator& pipeline) {
        RankContext context({.deadline_seconds = 20});
        const Training t = training_of(model, 2);
        std::vector<int> blocks{pipeline.rank()};
        WeightStore weights(context, model, blocks, {});
        weights.initialize(1);
        Executor executor({&context, &pipeline, &model, t.partition, &weights, 0});
        Points points;
        Plan plan = forward_plan(linear_placement(2), 2);
        plan = lower(plan);
        executor.run(plan, points, {.mode = Mode::evaluate, .micro_batch_size = 2});
      },
      30);
}

TEST(ModelErrors, ManyValuesPassBetweenBlocks) {
  const Model model =
      model_of([](const Variables& in, const BlockContext&) { return Variables(41, in[0]); }, squared_error);
  EXPECT_TRUE(same_bits(train(training_of(model, 1)), train(training_of(model, 2))));
}

/// The first use says how a tied parameter begins, on every rank.
TEST(ModelErrors, ATiedParameterThatIsDeclaredInTwoWays) {
  class Table final : public Block {
   public:
    Table(const std::string& name, float deviation) : Block(name), map_(scope("shared"), 3, 3, deviation) {}
    Variables forward(const Variables& in, const BlockContext& context) const override {
      return {map_(in[0], context)};
    }

   private:
    Linear map_;
  };
  std::vector<std::unique_ptr<Block>> blocks;
  blocks.push_back(std::make_unique<Table>("first", 0.3f));
  blocks.push_back(std::make_unique<Table>("last", 0.1f));
  const Model model("tied", std::move(blocks), squared_error);
  EXPECT_TRUE(same_bits(train(training_of(model, 1)), train(training_of(model, 2))));
}

}  // namespace
}  // namespace penstock::testing
