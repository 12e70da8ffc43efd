// TrainingRun: everything that one rank needs to train a model of one's own through a pipeline, made from a
// few settings: context, optimizer, plan, partition, trainer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/pipeline/plan/recompute.h"
#include "parallel/train/trainer.h"

namespace penstock {

/// The choices besides the loop's; each has a usual value.
struct TrainingRunOptions {
  TrainerOptions trainer = {};                ///< rates, steps, micro-batch size, clipping, seed, checkpoints
  std::string schedule = "1f1b";              ///< a name that `generate` knows
  std::vector<Index> layers_per_stage = {};   ///< empty: balanced by cost
  std::shared_ptr<Optimizer> optimizer = {};  ///< null: AdamW with PyTorch's defaults
  RecomputePolicy recompute = {};             ///< what is run again in the backward; nothing
  /// Sees each parameter's gradient once a step, and all of a step's before clipping: see TrainingSetup.
  std::function<void(int block, int parameter, const Tensor& gradient)> on_parameter_gradient = {};
  std::function<void(Index step, const WeightStore&)> on_gradients = {};
  DType compute = DType::f32;                      ///< of activations and of weights in use: fp32 or bf16
  int threads = 0;                                 ///< compute threads; 0: this rank's share of the CPUs
  std::function<StopRequest()> stop_request = {};  ///< asked on each rank after each step, e.g. of a signal
};

/// One rank of a training.
class TrainingRun {
 public:
  /// A pipeline over all ranks of `world`, with initial weights from the seed. Collective; the options are
  /// the same on all ranks. Model, source and communicator outlive the run. Throws ValueError for a schedule,
  /// partition or micro-batch size that does not fit, and what a block's forward throws.
  TrainingRun(Communicator& world, const Model& model, BatchSource& source,
              const TrainingRunOptions& options);

  /// The loop: `run` trains, `resume` or `initialize_from` give it other weights first.
  Trainer& trainer() { return *trainer_; }
  /// The rank's memory, threads and stream.
  RankContext& context() { return *context_; }

 private:
  std::unique_ptr<RankContext> context_;
  std::shared_ptr<Optimizer> optimizer_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace penstock
