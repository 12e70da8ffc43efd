// A user's model through every cut: the same bits as on one rank, whatever crosses the boundaries.
#include "parallel/runtime/toy_model.h"

namespace penstock::testing {
namespace {

TEST(ToyModel, EveryCutGivesTheBitsOfOneRank) {
  const Model model = make_toy();
  for (Index m = 1; m <= 5; m += 2) {
    const Outcome one = train(toy_training(model, named_plan("gpipe", 1, m)));
    for (Index pp = 2; pp <= 5; ++pp) {
      for (const char* schedule : {"gpipe", "1f1b"}) {
        EXPECT_TRUE(same_bits(one, train(toy_training(model, named_plan(schedule, pp, m)))))
            << schedule << " pp " << pp << " m " << m;
      }
    }
  }
}

TEST(ToyModel, StagesWithoutBlocksPassEverythingOn) {
  const Model model = make_toy();
  const Outcome one = train(toy_training(model, named_plan("gpipe", 1, 3)));
  for (const std::vector<Index>& layers :
       {std::vector<Index>{0, 5}, {5, 0}, {2, 0, 3}, {0, 2, 3, 0}, {0, 0, 5}}) {
    const auto stages = static_cast<Index>(layers.size());
    Training t = toy_training(model, named_plan("1f1b", stages, 3));
    t.partition = partition_by_layers(model, layers, stages);
    EXPECT_TRUE(same_bits(one, train(t))) << layers[0] << " of " << stages;
  }
}

TEST(ToyModel, SplitBackwardsAndLocalHandOver) {
  const Model model = make_toy();
  const Outcome one = train(toy_training(model, named_plan("gpipe", 1, 3)));
  const std::vector<std::vector<std::string>> plans = {
      {"0F0 0I0 0F1 0I1 0W0 0F2 0I2 0W1 0W2"},
      {"0F0 1F0 1I0 0I0 0F1 1F1 1I1 1W0 0I1 0W0 0F2 1F2 1I2 0I2 1W1 1W2 0W1 0W2"},
      {"0F0 0F1 0F2 0I0 0I1 0W0 0I2 0W1 0W2", "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"},
      {"0F0 0F1 3F0 3I0 0F2 3F1 3I1 3W0 0I0 3F2 3I2 0W0 0I1 3W1 0W1 0I2 3W2 0W2",
       "1F0 2F0 1F1 2F1 2I0 1I0 1F2 2F2 2I1 2W0 1I1 1W0 2I2 2W1 1W1 1I2 2W2 1W2"},
      {"0F0 1F0 2F0 3F0 4F0 4B0 3B0 2B0 1B0 0B0 0F1 1F1 2F1 3F1 4F1 4B1 3B1 2B1 1B1 0B1 0F2 1F2 2F2 3F2 4F2 "
       "4B2 3B2 2B2 1B2 0B2"},
  };
  for (const auto& rows : plans)
    EXPECT_TRUE(same_bits(one, train(toy_training(model, plan_of(rows))))) << rows[0];
}

/// The same sequences in every step.
class OneBatch final : public BatchSource {
 public:
  Index batch(Index) override { return 5; }
  Index tokens(Index) override { return 5; }
  Index valid_targets(Index) override { return 5 * ToySource::width; }
  MicroBatch load(RankContext& context, Index, SequenceSpan s, bool inputs, bool targets) override {
    return source_.load(context, 1, s, inputs, targets);
  }

 private:
  ToySource source_{5};
};

TEST(ToyModel, GradientsAreThoseOfTheLoss) {
  // A small step down the gradient lowers the loss by rate |g|^2. Both steps are number 1, so dropout draws
  // the same masks.
  const Model model = make_toy();
  Training t = toy_training(model, named_plan("1f1b", 3, 3));
  t.optimizer = [] { return std::make_unique<Sgd>(kernels::SgdSettings{}); };
  t.clip = 0;
  t.source = [] { return std::make_unique<OneBatch>(); };
  t.steps = {1, 1};
  t.rates = {1e-4, 1e-4};
  const Outcome o = train(t);
  EXPECT_NEAR((o.steps[0].loss - o.steps[1].loss) / (1e-4 * o.steps[0].grad_norm * o.steps[0].grad_norm), 1.0,
              0.02);
}

}  // namespace
}  // namespace penstock::testing
