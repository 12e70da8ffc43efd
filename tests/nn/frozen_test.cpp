// Frozen parameters: values and nothing else.
#include <gtest/gtest.h>

#include <map>

#include "core/step_state.h"
#include "nn/optimizer.h"
#include "nn/small_model.h"
#include "support/temp_folder.h"

namespace penstock::testing {
namespace {

using Floats = std::vector<float>;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> frozen(const Model& model) {
  std::vector<std::string> names;
  for (const ParameterRecord& p : model.parameters()) {
    if (p.frozen) names.push_back(p.name);
    for (const auto& use : p.uses)
      EXPECT_EQ(model.block(use.block).parameters()[static_cast<std::size_t>(use.parameter)].frozen, p.frozen)
          << p.name;
  }
  return names;
}

TEST(Freeze, PatternsOfNames) {
  using Names = std::vector<std::string>;
  const auto after = [](const std::string& pattern, int count) {
    Model model = small_model();  // scale, table (tied), w, b, v, gain
    EXPECT_EQ(model.freeze(pattern), count) << pattern;
    return frozen(model);
  };
  EXPECT_EQ(after("w", 1), Names{"w"});
  EXPECT_EQ(after("table", 1), Names{"table"}) << "all its uses";
  EXPECT_EQ(after("*a*", 3), (Names{"scale", "table", "gain"}));
  EXPECT_EQ(after("*le", 2), (Names{"scale", "table"}));
  EXPECT_EQ(after("s*e", 1), Names{"scale"});
  EXPECT_EQ(after("*w*", 1), Names{"w"}) << "* stands for nothing too";
  EXPECT_EQ(after("*", 6).size(), 6u);
  Model model = small_model();
  EXPECT_TRUE(frozen(model).empty());
  for (const char* none : {"", "W", "scal", "scale.*", "*x*"})
    EXPECT_TRUE(
        contains(message_of<ValueError>([&] { model.freeze(none); }), fmt::format("freeze '{}'", none)));
  EXPECT_TRUE(frozen(model).empty());
  model.freeze("w");
  model.freeze("b");
  EXPECT_EQ(frozen(model), (Names{"w", "b"}));
}

class FrozenStore : public ::testing::Test {
 protected:
  FrozenStore() : model(small_model()) {
    model.freeze("w");
    model.freeze("table");
  }

  mutable RankContext context{RankContext::Options{.poison = true}};
  Model model;
};

TEST_F(FrozenStore, TakesNoMemoryForGradientsAndMoments) {
  // Elements in 16s: scale, b, v (8), gain are updated; table and w are not. The tied table is stored once.
  const WeightStore weights(context, model, {0, 1, 2}, {.gradients = true, .optimizer_buffers = 2});
  const MemoryCount live = context.allocator().live();
  constexpr Index unit = 16 * sizeof(float);
  EXPECT_EQ(live[MemoryKind::parameter], 6 * unit);
  EXPECT_EQ(live[MemoryKind::gradient], 4 * unit);
  EXPECT_EQ(live[MemoryKind::optimizer], 8 * unit);
}

TEST_F(FrozenStore, HasValuesApartFromAllOthers) {
  WeightStore weights(context, model, {0, 1, 2}, {.gradients = true, .optimizer_buffers = 1});
  weights.initialize(3);
  RankContext other_context({.poison = true});
  const Model plain = small_model();
  WeightStore other(other_context, plain, {0, 1, 2}, {.gradients = true});
  other.initialize(3);
  for (const ParameterRecord& p : model.parameters())
    for (const auto& use : p.uses)
      EXPECT_EQ(weights.value(use.block, use.parameter).to_vector<float>(),
                other.value(use.block, use.parameter).to_vector<float>())
          << p.name;
  EXPECT_EQ(weights.value(0, 1).data(), weights.value(2, 1).data()) << "still tied";
}

TEST_F(FrozenStore, HasNoGradientAndNoState) {
  WeightStore weights(context, model, {0, 1, 2}, {.gradients = true, .optimizer_buffers = 1});
  const auto refused = [](auto&& call) { return message_of<ValueError>(call); };
  EXPECT_TRUE(contains(refused([&] { weights.gradient_of(1, 0); }), "w: is frozen and has no gradient"));
  EXPECT_TRUE(contains(refused([&] { weights.gradient({1, 0, 0}); }), "w: is frozen"));
  EXPECT_TRUE(contains(refused([&] { weights.finished_gradient(2, 1); }), "table: is frozen"));
  EXPECT_TRUE(
      contains(refused([&] { weights.optimizer_state(0, 0, 1); }), "table: is frozen and has no optimizer"));
}

TEST_F(FrozenStore, IsNotUpdatedDecayedOrCountedInTheNorm) {
  WeightStore weights(context, model, {0, 1, 2}, {.gradients = true, .optimizer_buffers = 2});
  weights.initialize(3);
  const auto all_values = [&] {
    std::map<std::string, Floats> values;
    for (const ParameterRecord& p : model.parameters())
      values[p.name] = weights.value(p.uses[0].block, p.uses[0].parameter).to_vector<float>();
    return values;
  };
  const auto before = all_values();
  weights.begin_step();
  for (const ParameterRecord& p : model.parameters()) {
    if (p.frozen) continue;
    const GradientTarget target = weights.gradient({p.uses[0].block, p.uses[0].parameter, 0});
    Tensor(target.tensor)
        .copy_from_host(Floats(static_cast<std::size_t>(p.shape.numel()), 2.0f).data(),
                        target.tensor.bytes());
  }
  weights.finish_gradients();
  const std::vector<double> table = gradient_norm_table(context, weights, model);
  EXPECT_EQ(table, (std::vector<double>{12, 0, 0, 16, 32, 12})) << "4 an element of scale, b, v, gain";
  DeviceStepState state(context);
  state.set({.step = 1, .updates = 1, .learning_rate = 0.1f});
  AdamW adamw(kernels::AdamWSettings{.weight_decay = 0.5f});
  adamw.step(context, weights, state.get());
  Sgd sgd(kernels::SgdSettings{.momentum = 0.5f, .weight_decay = 0.5f});
  sgd.step(context, weights, state.get());
  const auto after = all_values();
  for (const ParameterRecord& p : model.parameters()) {
    if (p.frozen)
      EXPECT_EQ(after.at(p.name), before.at(p.name)) << p.name;
    else
      for (std::size_t i = 0; i < after.at(p.name).size(); ++i)
        EXPECT_NE(after.at(p.name)[i], before.at(p.name)[i]);
  }
}

TEST(FrozenModel, AllFrozenLeavesNothingToUpdate) {
  Model model = small_model();
  model.freeze("*");
  RankContext context({.poison = true});
  WeightStore weights(context, model, {0, 1, 2}, {.gradients = true, .optimizer_buffers = 2});
  EXPECT_EQ(context.allocator().live()[MemoryKind::gradient], 0);
  EXPECT_EQ(context.allocator().live()[MemoryKind::optimizer], 0);
  EXPECT_TRUE(weights.runs().empty());
  weights.begin_step();
  weights.finish_gradients();
  for (const double squares : gradient_norm_table(context, weights, model)) EXPECT_EQ(squares, 0.0);
}

}  // namespace
}  // namespace penstock::testing
