// Trainer: the library's training loop. It takes blocks, a loss, a batch source and callbacks, and owns
// steps, evaluation, checkpoints and the measurements of the run. Programs only parse and print.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/lr_schedule.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/pipeline/runtime/training_step.h"
#include "parallel/pipeline/schedule/simulate.h"

namespace penstock {

/// What the loop is to do.
struct TrainerOptions {
  LrSchedule learning_rate;  ///< its `steps` is the number of the last step
  double clip = 1.0;
  std::uint64_t seed = 0;
  Index micro_batch_size = 1;
  Index eval_every = 0;  ///< 0: none
  std::optional<std::filesystem::path> checkpoint_directory;
  Index save_every = 0;  ///< 0: after the last step alone
  Index keep = 2;        ///< newest checkpoints that stay; 0: all
  CheckpointInfo checkpoint_info;
  Index most_skipped_in_a_row = 10;
};

struct StepRecord {
  Index step = 0;
  double loss = 0, grad_norm = 0, lr = 0;
  Index tokens = 0;
  double seconds = 0, tokens_per_second = 0;
  bool skipped = false;
};

struct EvalRecord {
  Index step = 0;
  double loss = 0, perplexity = 0;
  Index tokens = 0;
};

struct CheckpointRecord {
  Index step = 0;
  std::filesystem::path path;
  double seconds = 0;
};

struct RunSummary {
  StopRequest stopped = StopRequest::none;  ///< the run ended early
  bool saved = true;                        ///< false: the run's last save failed
  Index steps = 0, tokens = 0;
  double seconds = 0, tokens_per_second = 0;
  double bubble_measured = 0;   ///< idle share of the pipeline part of the steady steps
  double bubble_simulated = 0;  ///< the plan's, with the measured time of each stage and of the link
  std::vector<Index> peak_bytes, peak_bytes_predicted;  ///< per rank
  std::vector<double> stage_seconds;                    ///< busy time within the steps, per rank
  Timeline measured, simulated;                         ///< last step, in milliseconds
};

/// Called on rank 0 alone.
struct TrainerCallbacks {
  std::function<void(const StepRecord&)> step = {};
  std::function<void(const EvalRecord&)> evaluation = {};
  std::function<void(const CheckpointRecord&)> checkpoint = {};
  std::function<void(const std::string&)> warning =
      {};  ///< what failed and does not end the run, such as a save
};

class Trainer {
 public:
  /// `setup` says model, plan and layout; its clip, seed and micro-batch size are taken from `options`.
  /// `evaluation` may be null. Everything outlives the trainer.
  Trainer(TrainingSetup setup, Communicator& world, BatchSource& source, TrainerOptions options);

  /// Initial weights from the seed, or weights, moments and step of a checkpoint.
  void initialize();
  void resume(const Checkpoint& checkpoint);
  /// Weights alone, of a checkpoint or another source.
  void initialize_from(const WeightSource& source);

  /// What is evaluated: batches 1 .. `batches` of the source.
  void set_evaluation(BatchSource& source, Index batches);

  /// Trains to the last step; returns the summary on every rank (timelines on rank 0). Throws Error when
  /// `most_skipped_in_a_row` steps had a loss or gradient that was not finite.
  RunSummary run(const TrainerCallbacks& callbacks);

  /// Mean loss of the current weights over the evaluation batches.
  EvalRecord evaluate();

  TrainingStep& step() { return training_; }
  Index last_step() const { return last_step_; }

 private:
  /// False, after a warning, when it failed; the same on every rank.
  bool save(const TrainerCallbacks& callbacks);
  double measure_hop();

  TrainingSetup setup_;
  Communicator& world_;
  BatchSource& source_;
  TrainerOptions options_;
  TrainingStep training_;
  BatchSource* eval_source_ = nullptr;
  Index eval_batches_ = 0;
  Index last_step_ = 0;  // done so far
  Index saved_step_ = -1;
};

/// Mean loss over batches 1 .. `batches`, forward-only through the pipeline. Collective.
EvalRecord evaluate(Executor& executor, Communicator& pipeline, const Placement& placement,
                    BatchSource& source, Index batches, Index micro_batch_size);

}  // namespace penstock
