// Who is told when a gradient is complete: each parameter once a step, with the gradient that the step uses,
// in every schedule, half and cut.
#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "autograd/ops/arithmetic.h"
#include "parallel/runtime/toy_model.h"

namespace penstock::testing {
namespace {

/// Trains with hooks; checks that what was told is what on_gradients sees later, of each parameter that a
/// rank holds.
void expect_told_once(Training t, const std::string& what) {
  SCOPED_TRACE(what);
  const Outcome plain = train(t);
  std::mutex mutex;
  std::map<int, std::map<std::string, std::vector<float>>> told;  // by rank: this step's
  std::map<int, int> steps;
  t.adjust = [&](int rank, TrainingSetup& setup) {
    setup.on_parameter_gradient = [&, rank](int block, int parameter, const Tensor& gradient) {
      const Parameter& p = t.model->block(block).parameters()[static_cast<std::size_t>(parameter)];
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(told[rank].emplace(p.name, gradient.to_vector<float>()).second)
          << p.name << " twice, rank " << rank;
    };
    setup.on_gradients = [&, rank, kept = setup.on_gradients](Index step, const WeightStore& weights) {
      kept(step, weights);
      const std::lock_guard lock(mutex);
      std::set<std::string> held;
      for (const ParameterRecord& p : t.model->parameters()) {
        for (const auto& use : p.uses) {
          if (p.frozen || !weights.holds(use.block)) continue;
          held.insert(p.name);
          EXPECT_TRUE(told[rank].contains(p.name)) << p.name << " on rank " << rank;
          EXPECT_EQ(told[rank][p.name], weights.gradient_of(use.block, use.parameter).to_vector<float>())
              << p.name << " on rank " << rank;
          break;
        }
      }
      EXPECT_EQ(told[rank].size(), held.size()) << "rank " << rank;
      told[rank].clear();
      ++steps[rank];
    };
  };
  const Outcome hooked = train(t);
  EXPECT_TRUE(same_bits(plain, hooked)) << "watching changes nothing";
  EXPECT_EQ(static_cast<Index>(steps.size()), t.plan.pp);
  for (const auto& [rank, count] : steps) EXPECT_EQ(count, static_cast<int>(t.steps.size())) << rank;
}

const std::vector<std::vector<std::string>> foreign = {
    {"0F0 0F1 0F2 0I0 0I1 0W0 0I2 0W1 0W2", "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"},  // W's late
    {"0F0 0F1 0F2 0I0 0W0 0B1 0I2 0W2", "1F0 1B0 1F1 1I1 1F2 1W1 1B2"},  // full and split ones mixed
    {"0F0 0F1 3F0 3B0 0F2 3F1 3B1 0B0 3F2 3B2 0B1 0B2", "1F0 2F0 1F1 2F1 2B0 1B0 1F2 2F2 2B1 1B1 2B2 1B2"},
};

TEST(GradientHooks, OnceAStepInEverySchedule) {
  for (const bool tied : {true, false}) {
    Model model = make_gpt2("small", small_gpt2(0.1f, tied));
    for (const char* schedule : {"gpipe", "1f1b"})
      for (Index pp = 1; pp <= 3; ++pp)
        expect_told_once(uneven_training(model, named_plan(schedule, pp, 4)),
                         fmt::format("{} pp {} tied {}", schedule, pp, tied));
    for (const auto& rows : foreign) expect_told_once(uneven_training(model, plan_of(rows)), rows[0]);
  }
}

TEST(GradientHooks, WithRecomputedLayersFrozenParametersAndStagesWithoutBlocks) {
  Model model = make_gpt2("small", small_gpt2(0.1f, true));
  Training t = uneven_training(model, named_plan("1f1b", 3, 4));
  t.recompute = {RecomputePolicy::Kind::full, 0};
  expect_told_once(t, "full recompute");
  t = uneven_training(model, plan_of(foreign[0]));
  t.recompute = {RecomputePolicy::Kind::layers, 1};
  expect_told_once(t, "one layer, W's late");
  t = uneven_training(model, named_plan("gpipe", 4, 3));
  t.partition = partition_by_layers(model, {0, 0, 4, 0}, 4);
  expect_told_once(t, "empty stages");
  model.freeze("transformer.h.1.*");
  model.freeze("*bias");
  expect_told_once(uneven_training(model, named_plan("1f1b", 2, 4)), "frozen");
}

TEST(GradientHooks, AUsersModelWithUnusedParameters) {
  const Model model = make_toy();  // begin.dead has no gradient
  for (Index pp = 1; pp <= 5; ++pp)
    expect_told_once(toy_training(model, named_plan("1f1b", pp, 3)), fmt::format("pp {}", pp));
  for (const auto& rows : foreign) expect_told_once(toy_training(model, plan_of(rows)), rows[0]);
}

/// Uses its second parameter for some micro-batches alone.
class Sometimes final : public Block {
 public:
  Sometimes()
      : Block("sometimes"),
        always_(scope("").declare("always", Shape{5}, Initializer::ones())),
        rare_(scope("").declare("rare", Shape{5}, Initializer::ones())) {}
  Variables forward(const Variables& in, const BlockContext& context) const override {
    Variable h = ops::mul(in[0], context.weight(always_));
    if (context.rank->device().kind != DeviceKind::meta && *context.sequence_ids.data_as<std::int64_t>() == 0)
      h = ops::mul(h, context.weight(rare_));
    return {h};
  }

 private:
  const Parameter &always_, &rare_;
};

TEST(GradientHooks, AParameterThatTheLastMicroBatchDoesNotUse) {
  std::vector<std::unique_ptr<Block>> blocks;
  blocks.push_back(std::make_unique<Sometimes>());
  const Model model("sometimes", std::move(blocks), [](const Variables& outputs, const Tensors& targets) {
    return squared_error_sum(outputs[0], Variable(targets[0]));
  });
  expect_told_once(toy_training(model, named_plan("gpipe", 1, 3)), "gpipe");
  expect_told_once(toy_training(model, plan_of({"0F0 0I0 0F1 0I1 0W0 0F2 0W1 0I2 0W2"})), "W's late");
}

// Buckets of a data-parallel reduction want gradients as early as they are complete, the last layer's first.
TEST(GradientHooks, ComeDuringTheLastBackwardLastLayersFirst) {
  const Model model = make_gpt2("small", small_gpt2(0.0f, false));
  Training t = uneven_training(model, named_plan("gpipe", 1, 3));
  t.steps = {1};
  std::vector<int> blocks;
  std::vector<Index> live;  // bytes of activations at each call
  t.adjust = [&](int, TrainingSetup& setup) {
    setup.on_parameter_gradient = [&, context = setup.context](int block, int, const Tensor&) {
      blocks.push_back(block);
      live.push_back(context->allocator().live()[MemoryKind::activation]);
    };
  };
  train(t);
  EXPECT_TRUE(std::is_sorted(blocks.rbegin(), blocks.rend()));
  EXPECT_EQ(blocks.size(), model.parameters().size());
  EXPECT_GT(live.front(), 4 * live.back()) << "while the earlier layers still wait for their backward";
}

}  // namespace
}  // namespace penstock::testing
