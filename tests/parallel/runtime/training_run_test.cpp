// TrainingRun and the usual layout: the same training as one that is put together by hand.
#include "parallel/train/training_run.h"

#include <mutex>

#include "parallel/pipeline/schedule/lower.h"
#include "parallel/runtime/run_trainer.h"
#include "parallel/runtime/toy_model.h"
#include "parallel/train/layout.h"

namespace penstock::testing {
namespace {

constexpr Index batch = 5, steps = 4;

TrainerOptions options(Index micro_batch) {
  TrainerOptions result;
  result.learning_rate = {.decay = LrDecay::linear, .lr = 0.02, .min_lr = 0.001, .warmup = 1, .steps = steps};
  result.seed = 11;
  result.micro_batch_size = micro_batch;
  return result;
}

struct Result {
  std::vector<StepRecord> steps;
  Values weights;
};

Result run(const Model& model, Index ranks, TrainingRunOptions run_options) {
  Result result;
  std::mutex mutex;
  run_ranks(
      narrow<int>(ranks),
      [&](Communicator& world) {
        ToySource source(batch);
        TrainingRun training(world, model, source, run_options);
        training.trainer().run({.step = [&](const StepRecord& r) { result.steps.push_back(r); }});
        const std::lock_guard lock(mutex);
        const WeightStore& weights = training.trainer().step().weights();
        for (const ParameterRecord& p : model.parameters())
          for (const auto& use : p.uses)
            if (weights.holds(use.block))
              result.weights[p.name] = weights.value(use.block, use.parameter).to_vector<float>();
      },
      60);
  return result;
}

/// The same by hand, with `run_loop`.
LoopOutcome by_hand(const Model& model, Index ranks, Index micro_batch, const std::string& schedule,
                    OptimizerMaker optimizer = {}) {
  LoopRun loop;
  loop.model = &model;
  loop.source = [] { return std::make_unique<ToySource>(batch); };
  loop.pp = ranks;
  loop.micro_batch = micro_batch;
  loop.micro_batches = div_up(batch, micro_batch);
  loop.schedule = schedule;
  loop.options = options(micro_batch);
  loop.optimizer = std::move(optimizer);
  return run_loop(loop);
}

void expect_same(const Result& a, const LoopOutcome& b) {
  ASSERT_EQ(a.steps.size(), static_cast<std::size_t>(steps));
  ASSERT_EQ(b.steps.size(), a.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << i;
    EXPECT_EQ(a.steps[i].grad_norm, b.steps[i].grad_norm) << i;
    EXPECT_EQ(a.steps[i].lr, b.steps[i].lr) << i;
  }
  EXPECT_TRUE(same_bits(a.weights, b.weights, "weights"));
}

TEST(TrainingRun, DoesWhatItsPartsDo) {
  const Model model = make_toy();
  for (const Index ranks : {1, 2, 3}) {
    SCOPED_TRACE(ranks);
    expect_same(run(model, ranks, {.trainer = options(2)}), by_hand(model, ranks, 2, "1f1b"));
  }
}

TEST(TrainingRun, TakesTheChoicesThatItIsGiven) {
  const Model model = make_toy();
  const auto sgd = [] {
    return std::make_unique<Sgd>(kernels::SgdSettings{.momentum = 0.9, .weight_decay = 0.1});
  };
  TrainingRunOptions chosen{.trainer = options(1), .schedule = "gpipe", .threads = 2};
  chosen.optimizer = sgd();
  expect_same(run(model, 2, chosen), by_hand(model, 2, 1, "gpipe", sgd));
  // AdamW, or other micro-batches, would be another training.
  const Result other = run(model, 2, {.trainer = options(1)});
  EXPECT_NE(other.steps.back().loss, by_hand(model, 2, 1, "gpipe", sgd).steps.back().loss);
}

TEST(TrainingRun, RecomputesAndRoundsAsItIsTold) {
  const Model model = make_gpt2("small", small_gpt2());  // embedding, four layers, head
  run_ranks(2, [&](Communicator& world) {
    const auto source = token_source(4)();
    const auto setup = [&](const TrainingRunOptions& wanted) {
      return TrainingRun(world, model, *source, wanted).trainer().step().setup();
    };
    const Recompute no = Recompute::nothing, yes = Recompute::block;
    EXPECT_EQ(setup({.trainer = options(2)}).recompute, std::vector<Recompute>(6, no));
    EXPECT_EQ(setup({.trainer = options(2)}).compute, DType::f32);
    TrainingRunOptions chosen{.trainer = options(2)};
    chosen.layers_per_stage = {1, 3};
    chosen.recompute = parse_recompute("2");
    chosen.compute = DType::bf16;
    EXPECT_EQ(setup(chosen).recompute, (std::vector<Recompute>{no, yes, yes, yes, no, no}));
    EXPECT_EQ(setup(chosen).compute, DType::bf16);
  });
}

TEST(TrainingRun, EndsWhenOneRankIsAskedTo) {
  const Model model = make_toy();
  run_ranks(2, [&](Communicator& world) {
    ToySource source(batch);
    Index asked = 0;
    TrainingRunOptions stopping{.trainer = options(2)};
    stopping.stop_request = [&] {
      return world.rank() == 1 && ++asked == 2 ? StopRequest::interrupt : StopRequest::none;
    };
    TrainingRun training(world, model, source, stopping);
    const RunSummary summary = training.trainer().run({});
    EXPECT_EQ(summary.steps, 2);
    EXPECT_EQ(summary.stopped, StopRequest::interrupt);
  });
}

TEST(TrainingRun, CutsTheModelAsItIsTold) {
  const Model model = make_toy();  // five layers
  for (const std::vector<Index>& layers : {std::vector<Index>{4, 1}, std::vector<Index>{1, 4}})
    run_ranks(2, [&](Communicator& world) {
      ToySource source(batch);
      TrainingRun training(world, model, source, {.trainer = options(2), .layers_per_stage = layers});
      const int first = static_cast<int>(layers[0]);
      EXPECT_EQ(training.trainer().step().rank_of_block(first - 1), 0);
      EXPECT_EQ(training.trainer().step().rank_of_block(first), 1);
    });
}

TEST(TrainingRun, RefusesWhatDoesNotFit) {
  const Model model = make_toy();
  const auto refuse = [&](TrainingRunOptions wrong, const std::string& words) {
    try {
      run(model, 2, std::move(wrong));
      FAIL() << "accepted: " << words;
    } catch (const ValueError& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refuse({.trainer = options(0)}, "micro-batches of 0 sequences: 1 .. 5");
  refuse({.trainer = options(6)}, "micro-batches of 6 sequences: 1 .. 5");
  refuse({.trainer = options(2), .schedule = "1f2b"}, "1f2b");
  refuse({.trainer = options(2), .layers_per_stage = {2, 2}}, "2,2");
  refuse({.trainer = options(2), .layers_per_stage = {5}}, "5");
}

TEST(Layout, MicroBatchesAreTwiceTheStages) {
  EXPECT_EQ(default_micro_batch_size(32, 4), 4);
  EXPECT_EQ(default_micro_batch_size(9, 2), 2);
  EXPECT_EQ(default_micro_batch_size(5, 2), 1);
  EXPECT_EQ(default_micro_batch_size(3, 8), 1);
  EXPECT_EQ(default_micro_batch_size(8, 1), 4);
}

TEST(Layout, AHeavyHeadTakesLayersFromTheLastStage) {
  const auto layers = [](Index vocabulary) {
    Gpt2Config config = small_gpt2();
    config.vocabulary = vocabulary;
    const Model model = make_gpt2("small", config);
    const auto source = token_source(4)();
    return layers_per_stage(model, balanced_partition(model, *source, 2, 2));
  };
  EXPECT_EQ(layers(13), (std::vector<Index>{2, 2}));
  EXPECT_EQ(layers(20000), (std::vector<Index>{4, 0}));
}

TEST(Layout, APlanIsProvedLoweredAndGivenItsOptimizer) {
  const Plan compute = named_plan("1f1b", 2, 3);
  const Plan whole = executable_plan(compute);
  EXPECT_TRUE(whole.lowered);
  EXPECT_EQ(whole.rows, add_optimizer(lower(compute)).rows);
  EXPECT_EQ(executable_plan(lower(compute)).rows, whole.rows);
  Plan broken = compute;
  broken.rows[1].pop_back();  // the last backward of the last stage
  EXPECT_THROW(executable_plan(broken), ValueError);
}

}  // namespace
}  // namespace penstock::testing
