// The training loop: records, rates, skipped steps, evaluation, and the windows that perplexity is measured
// on.
#include "parallel/train/trainer.h"

#include <cmath>
#include <set>

#include "kernels/cross_entropy.h"
#include "parallel/runtime/run_trainer.h"
#include "parallel/runtime/toy_model.h"
#include "parallel/train/window_batches.h"
#include "support/temp_folder.h"

namespace penstock::testing {
namespace {

LoopRun toy_loop(const Model& model, Index pp, Index steps, ToySource::Change change = {}) {
  LoopRun run;
  run.model = &model;
  run.source = [change] { return std::make_unique<ToySource>(4, change); };
  run.pp = pp;
  run.micro_batches = 2;
  run.micro_batch = 2;
  run.options.learning_rate = {
      .decay = LrDecay::linear, .lr = 0.01, .min_lr = 0, .warmup = 2, .steps = steps};
  return run;
}

TEST(TrainingLoop, RecordsStepsAndSummary) {
  const Model model = make_toy();
  const LoopOutcome outcome = run_loop(toy_loop(model, 2, 8));
  ASSERT_EQ(outcome.steps.size(), 8u);
  for (std::size_t i = 0; i < 8; ++i) {
    const StepRecord& r = outcome.steps[i];
    EXPECT_EQ(r.step, static_cast<Index>(i) + 1);
    EXPECT_EQ(r.tokens, 4);
    EXPECT_GT(r.seconds, 0);
    EXPECT_NEAR(r.lr,
                i < 2 ? 0.005 * (static_cast<double>(i) + 1) : 0.01 * (1 - (static_cast<double>(i) - 1) / 6),
                1e-12);
    EXPECT_FALSE(r.skipped);
  }
  EXPECT_EQ(outcome.summary.steps, 8);
  EXPECT_EQ(outcome.summary.tokens, 32);
  EXPECT_EQ(outcome.summary.stopped, StopRequest::none);
  EXPECT_EQ(outcome.summary.stage_seconds.size(), 2u);
  ASSERT_EQ(outcome.summary.peak_bytes.size(), 2u);
  for (const double bubble : {outcome.summary.bubble_measured, outcome.summary.bubble_simulated}) {
    EXPECT_GE(bubble, 0);
    EXPECT_LT(bubble, 1);
  }
  ASSERT_EQ(outcome.summary.measured.ranks.size(), 2u);
  for (const auto& rank : outcome.summary.measured.ranks) EXPECT_EQ(rank.size(), 4u);
}

TEST(TrainingLoop, TheSummarysPeakIsThePredictedOne) {
  const Model model = make_gpt2("small", small_gpt2(0.1f));
  LoopRun run;
  run.model = &model;
  run.source = token_source(7);
  run.pp = 3;
  run.micro_batches = 4;
  run.micro_batch = 2;
  run.options.learning_rate.steps = 3;
  const LoopOutcome outcome = run_loop(run);
  EXPECT_EQ(outcome.summary.peak_bytes, outcome.summary.peak_bytes_predicted);
}

TEST(TrainingLoop, NineBadStepsAreSkippedAndTenEndTheRun) {
  const Model model = make_toy();
  const auto bad_until = [](Index last) {
    return [last](Index step, SequenceSpan, std::vector<float>& x) {
      if (step > 1 && step <= last) x[0] = std::numeric_limits<float>::quiet_NaN();
    };
  };
  const LoopOutcome nine = run_loop(toy_loop(model, 2, 12, bad_until(10)));
  ASSERT_EQ(nine.steps.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(nine.steps[i].skipped, i >= 1 && i < 10) << i;
  EXPECT_EQ(nine.updates, 3);
  const std::string words = message_of<Error>([&] { run_loop(toy_loop(model, 2, 12, bad_until(11))); });
  EXPECT_NE(words.find("step 11: loss or gradient was not finite in 10 steps in a row"), std::string::npos)
      << words;
}

TEST(TrainingLoop, ABadStepInBetweenStartsTheCountAnew) {
  const Model model = make_toy();
  LoopRun run = toy_loop(model, 1, 30, [](Index step, SequenceSpan, std::vector<float>& x) {
    if (step % 6 != 0) x[0] = std::numeric_limits<float>::infinity();
  });
  EXPECT_EQ(run_loop(run).updates, 5);
}

TEST(TrainingLoop, EvaluatesWhenItShould) {
  const Model model = make_toy();
  LoopRun run = toy_loop(model, 2, 7);
  run.evaluation = [] { return std::make_unique<ToySource>(3); };
  run.evaluation_batches = 2;
  run.options.eval_every = 3;
  const LoopOutcome outcome = run_loop(run);
  std::vector<Index> steps;
  for (const EvalRecord& r : outcome.evaluations) {
    steps.push_back(r.step);
    EXPECT_EQ(r.tokens, 2 * 3 * ToySource::width);
    EXPECT_DOUBLE_EQ(r.perplexity, std::exp(r.loss));
  }
  EXPECT_EQ(steps, (std::vector<Index>{0, 3, 6, 7}));
}

TEST(TrainingLoop, EvaluationDoesNotChangeTheRun) {
  const Model model = make_gpt2("small", small_gpt2(0.1f));
  LoopRun run;
  run.model = &model;
  run.source = token_source(5);
  run.pp = 2;
  run.micro_batches = 3;
  run.micro_batch = 2;
  run.options.learning_rate.steps = 4;
  const LoopOutcome without = run_loop(run);
  run.evaluation = token_source(7);
  run.evaluation_batches = 2;
  run.options.eval_every = 1;
  EXPECT_TRUE(same_bits(without.weights, run_loop(run).weights, "weights"));
}

TEST(TrainingLoop, AStopIsAfterTheStepAndIsSaved) {
  const Model model = make_toy();
  TempFolder folder;
  LoopRun run = toy_loop(model, 3, 100);
  run.stop_after = 3;
  run.options.checkpoint_directory = folder.path();
  const LoopOutcome outcome = run_loop(run);
  EXPECT_EQ(outcome.steps.size(), 3u);
  EXPECT_EQ(outcome.summary.stopped, StopRequest::terminate);
  EXPECT_EQ(list_checkpoints(folder.path()), (std::vector<Index>{3}));
}

/// Mean loss of a model over a source's batches on a pipeline.
EvalRecord evaluate_on(const Model& model, Index pp, const SourceMaker& maker, Index batches,
                       Index micro_batch) {
  EvalRecord result;
  const Partition partition = even_partition(model, pp);
  run_ranks(narrow<int>(pp), [&](Communicator& pipeline) {
    RankContext context;
    std::vector<int> blocks;
    const BlockRange mine = partition[static_cast<std::size_t>(pipeline.rank())];
    for (int b = mine.begin; b < mine.end; ++b) blocks.push_back(b);
    WeightStore weights(context, model, blocks, {});
    weights.initialize(3);
    Executor executor({&context, &pipeline, &model, partition, &weights, 0});
    const auto source = maker();
    const EvalRecord record =
        evaluate(executor, pipeline, linear_placement(pp), *source, batches, micro_batch);
    EXPECT_EQ(context.allocator().live()[MemoryKind::activation], 0);
    EXPECT_EQ(context.allocator().live()[MemoryKind::communication], 0);
    if (pipeline.rank() == 0) result = record;
  });
  return result;
}

SourceMaker window_source(Index tokens, Index length, Index stride, Index per_batch,
                          std::optional<std::int32_t> ignore = std::nullopt) {
  const TokenRow row(random_ids(static_cast<std::size_t>(tokens), 13));
  return [=] { return std::make_unique<WindowBatches>(row, length, stride, per_batch, ignore); };
}

TEST(Evaluate, HasTheSameBitsOnEveryPipeline) {
  for (const bool tied : {true, false}) {
    const Model model = make_gpt2("small", small_gpt2(0.3f, tied));
    const SourceMaker maker = window_source(60, 8, 3, 5);
    const Index batches = WindowBatches(TokenRow(random_ids(60, 13)), 8, 3, 5, std::nullopt).batches();
    const EvalRecord one = evaluate_on(model, 1, maker, batches, 2);
    EXPECT_EQ(one.tokens, 59);
    EXPECT_GT(one.loss, 1);
    for (Index pp = 2; pp <= 4; ++pp) {
      const EvalRecord many = evaluate_on(model, pp, maker, batches, 2);
      EXPECT_EQ(one.loss, many.loss) << pp;
      EXPECT_EQ(one.tokens, many.tokens);
    }
    // The cut into micro-batches is no more than a matter of rounding.
    EXPECT_NEAR(evaluate_on(model, 2, maker, batches, 5).loss, one.loss, 1e-6);
  }
}

TEST(Evaluate, EvaluationBatchesTakeEveryWindowOnce) {
  const TokenRow row(random_ids(50, 13));
  EvaluationBatches source(Sampler(row, {.sequence_length = 6,
                                         .batch = 3,
                                         .order = DataOrder::sequential,
                                         .seed = 0,
                                         .ignore_target = std::nullopt}));
  ASSERT_EQ(source.batches(), 3);  // floor(49 / 6) = 8 windows
  std::vector<std::int32_t> expected(48), got;
  row.copy(0, 48, expected.data());
  RankContext context;
  for (Index b = 1; b <= 3; ++b) {
    EXPECT_EQ(source.batch(b), b < 3 ? 3 : 2);
    EXPECT_EQ(source.valid_targets(b), source.batch(b) * 6);
    const std::vector<std::int32_t> part =
        source.load(context, b, {0, source.batch(b)}, true, false).inputs[0].to_vector<std::int32_t>();
    got.insert(got.end(), part.begin(), part.end());
  }
  EXPECT_EQ(got, expected);
  EXPECT_THROW(source.batch(4), ValueError);
  EXPECT_THROW(source.batch(0), ValueError);
}

TEST(WindowBatches, ScoreEveryTokenButTheFirstOnceWithTheContextOfItsWindow) {
  RankContext context;
  int cases = 0;
  for (Index tokens = 2; tokens <= 23; ++tokens) {
    const std::vector<std::int32_t> ids =
        random_ids(static_cast<std::size_t>(tokens), 1000, static_cast<std::uint32_t>(tokens));
    for (const Index length : {1, 2, 5, 8}) {
      for (Index stride = 1; stride <= length; ++stride) {
        for (const Index per_batch : {1, 3}) {
          WindowBatches source(TokenRow(ids), length, stride, per_batch, std::nullopt);
          std::multiset<Index> scored;  // places of tokens
          Index window = 0;
          for (Index b = 1; b <= source.batches(); ++b) {
            const Index size = source.batch(b);
            ASSERT_GE(size, 1);
            ASSERT_LE(size, per_batch);
            const MicroBatch batch = source.load(context, b, {0, size}, true, true);
            const Index T = batch.inputs[0].shape()[1];
            EXPECT_EQ(source.tokens(b), size * T);
            const auto in = batch.inputs[0].to_vector<std::int32_t>(),
                       out = batch.targets[0].to_vector<std::int32_t>();
            Index valid = 0;
            for (Index w = 0; w < size; ++w, ++window) {
              for (Index t = 0; t < T; ++t) {
                const Index place = window * stride + t;
                ASSERT_EQ(in[static_cast<std::size_t>(w * T + t)], ids[static_cast<std::size_t>(place)]);
                const std::int32_t target = out[static_cast<std::size_t>(w * T + t)];
                if (target == kernels::ignored_target) continue;
                ++valid;
                ASSERT_EQ(target, ids[static_cast<std::size_t>(place + 1)]);
                scored.insert(place + 1);
                // In the first window that has it as a target: the one before ended in front of it.
                EXPECT_TRUE(window == 0 || place + 1 > (window - 1) * stride + length);
              }
            }
            EXPECT_EQ(source.valid_targets(b), valid);
          }
          ASSERT_EQ(static_cast<Index>(scored.size()), tokens - 1)
              << tokens << " " << length << " " << stride;
          ASSERT_EQ(std::set<Index>(scored.begin(), scored.end()).size(), scored.size());
          ++cases;
        }
      }
    }
  }
  EXPECT_EQ(cases, 22 * (1 + 2 + 5 + 8) * 2);
}

TEST(WindowBatches, IgnoredTargetsCountNowhere) {
  const std::vector<std::int32_t> ids = {1, 2, 7, 3, 7, 7, 4};
  WindowBatches source(TokenRow(ids), 4, 2, 1, 7);
  Index valid = 0;
  for (Index b = 1; b <= source.batches(); ++b) valid += source.valid_targets(b);
  EXPECT_EQ(valid, 3);
}

TEST(WindowBatches, RefusesWhatHasNoWindows) {
  const TokenRow row(random_ids(10, 5));
  EXPECT_THROW(WindowBatches(TokenRow(random_ids(1, 5)), 4, 2, 1, std::nullopt), ValueError);
  EXPECT_THROW(WindowBatches(row, 4, 0, 1, std::nullopt), ValueError);
  EXPECT_THROW(WindowBatches(row, 4, 5, 1, std::nullopt), ValueError);
  EXPECT_THROW(WindowBatches(row, 4, 2, 0, std::nullopt), ValueError);
}

}  // namespace
}  // namespace penstock::testing
