// A step against arithmetic of its own: the mean over valid targets, the norm, clipping, AdamW, steps that
// change nothing.
#include <cmath>
#include <mutex>

#include "kernels/cross_entropy.h"
#include "parallel/runtime/toy_model.h"

namespace penstock::testing {
namespace {

Training gpt_training(const Model& model, const std::string& schedule, Index pp, Index batch,
                      Index micro_batch, std::optional<std::int32_t> ignore = std::nullopt) {
  Training t;
  t.model = &model;
  t.micro_batch = micro_batch;
  t.source = token_source(batch, 6, 13, ignore);
  t.plan = named_plan(schedule, pp, div_up(batch, micro_batch));
  t.partition = even_partition(model, pp);
  t.steps = {1};
  return t;
}

TEST(Arithmetic, MicroBatchesDoNotChangeTheMean) {
  // Fault 12, the mean of means: with ignored targets the micro-batches have unequal numbers of valid ones.
  const Model model = make_gpt2("small", small_gpt2());
  for (const std::optional<std::int32_t> ignore :
       {std::optional<std::int32_t>(), std::optional<std::int32_t>(4)}) {
    const Outcome whole = train(gpt_training(model, "gpipe", 1, 9, 9, ignore));
    for (const Index micro_batch : {1, 2, 4, 5}) {
      for (const Index pp : {1, 3}) {
        const Outcome cut = train(gpt_training(model, "1f1b", pp, 9, micro_batch, ignore));
        EXPECT_NEAR(cut.steps[0].loss, whole.steps[0].loss, 1e-6);
        EXPECT_NEAR(cut.steps[0].grad_norm / whole.steps[0].grad_norm, 1, 1e-5);
        EXPECT_LT(relative_difference(whole.first_gradients, cut.first_gradients), 2e-5) << micro_batch;
      }
    }
  }
}

/// Sequences of six tokens in which all but a few targets are ignored, unevenly: sequence s counts s targets.
class UnevenTargets final : public BatchSource {
 public:
  Index batch(Index) override { return 4; }
  Index tokens(Index) override { return 24; }
  Index valid_targets(Index) override { return 0 + 1 + 2 + 3; }
  MicroBatch load(RankContext& context, Index, SequenceSpan sequences, bool inputs, bool targets) override {
    MicroBatch batch = micro_batch_of(context, sequences, 6);
    std::vector<std::int32_t> in, out;
    for (Index s = sequences.first; s < sequences.last; ++s) {
      const std::vector<std::int32_t> ids = random_ids(6, 13, static_cast<std::uint32_t>(s) + 5);
      in.insert(in.end(), ids.begin(), ids.end());
      for (Index t = 0; t < 6; ++t)
        out.push_back(t < s ? static_cast<std::int32_t>((7 * s + t) % 13) : kernels::ignored_target);
    }
    const Shape shape{sequences.size(), 6};
    if (inputs) batch.inputs = {Tensor::from(context, shape, in)};
    if (targets) batch.targets = {Tensor::from(context, shape, out)};
    return batch;
  }
};

TEST(Arithmetic, LossIsTheMeanOverValidTargetsOfItsOwnSoftmax) {
  const Model model = make_gpt2("small", small_gpt2());
  UnevenTargets source;
  // The logits of a forward of everything, and a softmax in double.
  double sum = 0;
  run_ranks(1, [&](Communicator& pipeline) {
    RankContext context;
    WeightStore weights(context, model, {0, 1, 2, 3, 4, 5}, {});
    weights.initialize(7);
    Executor executor({&context, &pipeline, &model, even_partition(model, 1), &weights, 7});
    const MicroBatch batch = source.load(context, 1, {0, 4}, false, true);
    const std::vector<std::int32_t> targets = batch.targets[0].to_vector<std::int32_t>();
    const auto on_output = [&](Index, const Variables& outputs) {
      const std::vector<float> logits = outputs[0].tensor().to_vector<float>();
      for (std::size_t row = 0; row < targets.size(); ++row) {
        if (targets[row] == kernels::ignored_target) continue;
        double total = 0;
        for (std::size_t v = 0; v < 13; ++v) total += std::exp(static_cast<double>(logits[row * 13 + v]));
        sum +=
            std::log(total) - static_cast<double>(logits[row * 13 + static_cast<std::size_t>(targets[row])]);
      }
    };
    Plan plan = plan_of({"0F0"});
    plan.lowered = plan.forward_only = true;
    executor.run(plan, source, {.mode = Mode::evaluate, .micro_batch_size = 4, .on_output = on_output});
  });
  for (const Index micro_batch : {1, 2, 3, 4}) {
    Training t = gpt_training(model, "1f1b", 2, 4, micro_batch);
    t.source = [] { return std::make_unique<UnevenTargets>(); };
    const Outcome o = train(t);
    EXPECT_NEAR(o.steps[0].loss, sum / 6, 1e-6) << micro_batch;
  }
}

TEST(Arithmetic, NormClippingAndAdamWAreTheDefinitions) {
  for (const double clip : {0.0, 0.5, 1e6}) {
    const Model model = make_gpt2("small", small_gpt2(0.1f, true));
    Training t = gpt_training(model, "1f1b", 2, 5, 2);
    t.clip = clip;
    t.optimizer = [] { return std::make_unique<AdamW>(kernels::AdamWSettings{0.8, 0.9, 1e-4, 0.3}); };
    Training start = t;
    start.rates = {0.0};  // the weights before: a step at rate 0 changes none
    const Values before = train(start).weights;
    const Outcome o = train(t);

    double squares = 0;  // of every parameter once, the tied one too
    for (const auto& [name, g] : o.first_gradients)
      for (const float v : g) squares += static_cast<double>(v) * static_cast<double>(v);
    const double norm = std::sqrt(squares);
    EXPECT_NEAR(o.steps[0].grad_norm / norm, 1, 1e-12);
    EXPECT_FALSE(o.first_gradients.contains("lm_head.weight"));

    const double scale = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0;
    for (const auto& [name, p] : before) {
      const bool decays = model.parameters()[0].decays && name.find("bias") == std::string::npos &&
                          name.find("ln_") == std::string::npos;
      for (std::size_t i = 0; i < p.size(); ++i) {
        // First update: bias correction gives back g and g^2.
        const double g = scale * static_cast<double>(o.first_gradients.at(name)[i]);
        double w = static_cast<double>(p[i]) * (decays ? 1 - 0.01 * 0.3 : 1.0);
        w -= 0.01 * g / (std::abs(g) + 1e-4);
        ASSERT_NEAR(o.weights.at(name)[i], w, 3e-6) << name << " " << i << " clip " << clip;
        ASSERT_NEAR(o.moments.at(name + "/0")[i], 0.2 * g, 1e-6);
        ASSERT_NEAR(o.moments.at(name + "/1")[i], 0.1 * g * g, 1e-6);
      }
    }
  }
}

TEST(Arithmetic, AllTargetsIgnoredIsAZeroGradientAndNoMore) {
  // As torch does with a gradient of zeros: no loss, norm 0, weights of two dimensions decay, moments shrink,
  // the update counts.
  const Model model = make_gpt2("small", small_gpt2(0.0f, true));
  Training t = gpt_training(model, "1f1b", 2, 3, 1);
  const TokenRow row(std::vector<std::int32_t>(50, 4));
  t.source = [row] {
    return std::make_unique<TokenBatches>(Sampler(
        row,
        {.sequence_length = 6, .batch = 3, .order = DataOrder::sequential, .seed = 0, .ignore_target = 4}));
  };
  t.optimizer = [] { return std::make_unique<AdamW>(kernels::AdamWSettings{0.9, 0.99, 1e-8, 0.5}); };
  Training start = t;
  start.rates = {0.0};
  const Values before = train(start).weights;
  const Outcome o = train(t);
  EXPECT_EQ(o.steps[0].loss, 0.0);
  EXPECT_EQ(o.steps[0].grad_norm, 0.0);
  EXPECT_FALSE(o.steps[0].skipped);
  EXPECT_EQ(o.updates, 1);
  for (const auto& [name, p] : before) {
    const bool decays = name.find("bias") == std::string::npos && name.find("ln_") == std::string::npos;
    for (std::size_t i = 0; i < p.size(); ++i)
      ASSERT_NEAR(o.weights.at(name)[i], p[i] * (decays ? 1 - 0.01f * 0.5f : 1.0f), 1e-7) << name;
  }
}

TEST(Arithmetic, AStepThatIsNotFiniteChangesNothing) {
  const Model model = make_toy();
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 1e30f}) {
    for (const Index pp : {1, 2, 4}) {
      Training t = toy_training(model, named_plan("1f1b", pp, 3));
      // The last sequence of step 2 is bad. 1e30: the gradient alone overflows, in fp32; the loss is a finite
      // fp64.
      t.source = [bad] {
        return std::make_unique<ToySource>(5, [bad](Index step, SequenceSpan s, std::vector<float>& x) {
          if (step == 2 && s.last == 5) x.back() = bad;
        });
      };
      t.steps = {1, 3};
      const Outcome without = train(t);
      t.steps = {1, 2, 3};
      const Outcome with = train(t);
      EXPECT_FALSE(with.steps[0].skipped);
      EXPECT_TRUE(with.steps[1].skipped) << bad;
      EXPECT_FALSE(with.steps[2].skipped);
      EXPECT_EQ(with.updates, 2);
      EXPECT_TRUE(same_bits(without.weights, with.weights, "weights")) << bad << " pp " << pp;
      EXPECT_TRUE(same_bits(without.moments, with.moments, "moments")) << bad << " pp " << pp;
      EXPECT_EQ(without.steps[1].loss, with.steps[2].loss);
    }
  }
}

TEST(Arithmetic, StopRequestsOfAnyRankReachAll) {
  const Model model = make_toy();
  run_ranks(3, [&](Communicator& pipeline) {
    RankContext context;
    ToySource source(4);
    AdamW optimizer{kernels::AdamWSettings{}};
    TrainingSetup setup{.context = &context,
                        .pipeline = &pipeline,
                        .model = &model,
                        .plan = executable(named_plan("1f1b", 3, 2)),
                        .partition = even_partition(model, 3),
                        .optimizer = &optimizer,
                        .micro_batch_size = 2};
    StopRequest wish = StopRequest::none;
    setup.stop_request = [&] { return wish; };
    TrainingStep training(setup);
    training.weights().initialize(1);
    EXPECT_EQ(training.run(source, 1, 0.01).stop, StopRequest::none);
    if (pipeline.rank() == 1) wish = StopRequest::terminate;
    EXPECT_EQ(training.run(source, 2, 0.01).stop, StopRequest::terminate);
    if (pipeline.rank() == 2) wish = StopRequest::interrupt;
    EXPECT_EQ(training.run(source, 3, 0.01).stop, StopRequest::interrupt);
  });
}

}  // namespace
}  // namespace penstock::testing
