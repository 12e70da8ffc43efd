// Runs a training on in-process ranks and keeps everything that must not depend on the layout, for comparing
// runs bit by bit.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/gpt2.h"
#include "parallel/comm/thread_group.h"
#include "parallel/pipeline/plan/recompute.h"
#include "parallel/pipeline/runtime/training_step.h"
#include "parallel/pipeline/schedule/generate.h"
#include "parallel/train/token_batches.h"

namespace penstock::testing {

using Values = std::map<std::string, std::vector<float>>;
using SourceMaker = std::function<std::unique_ptr<BatchSource>()>;
using OptimizerMaker = std::function<std::unique_ptr<Optimizer>()>;

/// One training. A source and an optimizer are made for each rank.
struct Training {
  const Model* model = nullptr;
  SourceMaker source;
  Plan plan;  // compute alone, or lowered; without REDUCE_GRAD and STEP
  Partition partition;
  Index micro_batch = 1;
  int threads = 1;
  std::vector<Index> steps = {1, 2};
  std::vector<double> rates = {};  // of the steps; empty: 0.01 each
  OptimizerMaker optimizer = {};   // empty: AdamW with its defaults
  double clip = 1.0;
  std::uint64_t seed = 7;
  DType compute = DType::f32;
  RecomputePolicy recompute = {};
  std::function<void(int rank, TrainingSetup&)> adjust = {};  // of the setup of each rank, on its thread
};

struct Outcome {
  std::vector<StepOutcome> steps;                      // of rank 0; all ranks were seen to agree
  Values first_gradients, last_gradients;              // summed, before clipping
  Values weights, moments;                             // after the last step; moments as "name/k"
  std::vector<Index> peaks;                            // bytes, per rank
  std::vector<std::vector<Index>> system_allocations;  // [rank][step]
  std::vector<MemoryCount> live_before, live_after;    // per rank: before the first step, after the last
  Index updates = 0;
};

/// Lowers and verifies the plan, runs it on plan.pp threads.
Outcome train(const Training& training);

/// The first difference in losses, norms, gradients, weights or moments; bits, not tolerances.
::testing::AssertionResult same_bits(const Outcome& a, const Outcome& b);
/// The same for weights, moments and the last step's gradients alone.
::testing::AssertionResult same_bits(const Values& a, const Values& b, const std::string& what);

/// Largest |a - b| / (largest |a| of the tensor + tiny) over all tensors.
double relative_difference(const Values& a, const Values& b);

/// lower + optimizer + proof.
Plan executable(const Plan& plan);

/// Small GPT-2 of 4 layers of 16, 2 heads, vocabulary 13, 8 positions.
Gpt2Config small_gpt2(float dropout = 0.0f, bool tied = true);
/// `count` ids below `vocabulary`, fixed for a seed.
std::vector<std::int32_t> random_ids(std::size_t count, std::int32_t vocabulary, std::uint32_t seed = 1);
/// Windows of `length` over random ids.
SourceMaker token_source(Index batch, Index length = 6, std::int32_t vocabulary = 13,
                         std::optional<std::int32_t> ignore_target = std::nullopt, std::size_t tokens = 400);

/// 4 layers (or the model's) over the stages as evenly as they go, more in front.
Partition even_partition(const Model& model, Index stages);

/// M micro-batches of two sequences, the last of one: always uneven, but for M = 1.
Training uneven_training(const Model& model, const Plan& plan);

/// A schedule of the library, not lowered.
Plan named_plan(const std::string& schedule, Index pp, Index micro_batches);
/// The rows of a foreign plan, as text.
Plan plan_of(const std::vector<std::string>& rows);

}  // namespace penstock::testing
