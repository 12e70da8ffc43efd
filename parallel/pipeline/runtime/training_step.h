// TrainingStep: one optimizer step of a rank: its actions, the sum of tied gradients, the norm, clipping and
// the update.
#pragma once

#include <memory>
#include <vector>

#include "nn/optimizer.h"
#include "parallel/pipeline/runtime/executor.h"

namespace penstock {

/// What ends a run early.
enum class StopRequest : std::uint8_t { none, interrupt, terminate };

struct TrainingSetup {
  RankContext* context = nullptr;
  Communicator* pipeline = nullptr;
  const Model* model = nullptr;
  Plan plan;  ///< lowered, with REDUCE_GRAD and STEP
  Partition partition;
  Optimizer* optimizer = nullptr;
  Index micro_batch_size = 1;
  std::uint64_t seed = 0;
  double clip = 1.0;  ///< largest gradient norm; 0: off
  /// Boundaries that are known already, shared by executors of one model, partition and dtype; null: its own.
  std::shared_ptr<EdgeTable> edges = {};
  DType compute = DType::f32;  ///< of activations and of the weights as blocks see them: fp32 or bf16
  /// Whether this rank was asked to stop after the running step; every rank learns of it with the norm.
  std::function<StopRequest()> stop_request = {};
  /// Sees the step's gradients, summed and before clipping.
  std::function<void(Index step, const WeightStore&)> on_gradients = {};
  /// Sees each parameter of this rank that is not frozen exactly once a step, when its gradient is complete:
  /// all micro-batches, halves and uses. (block, parameter) is its first use on this rank, which has the
  /// gradient. A parameter that one use alone has comes during the last backward of its stage, a tied one
  /// when its uses are added.
  std::function<void(int block, int parameter, const Tensor& gradient)> on_parameter_gradient = {};
  std::vector<Recompute> recompute = {};  ///< for each block of the model; empty: nothing
};

struct StepOutcome {
  double loss = 0;       ///< mean over the valid targets of the global batch; the same on all ranks
  double grad_norm = 0;  ///< before clipping
  bool skipped = false;  ///< loss or gradient not finite: nothing was changed
  StopRequest stop = StopRequest::none;  ///< of any rank
  std::vector<TimedAction> actions;
};

class TrainingStep {
 public:
  /// Allocates weights, gradients and optimizer state of the rank's blocks; values are not set yet (see
  /// `weights`). Throws ValueError for a plan with several copies of the model, or with more than one update.
  explicit TrainingStep(const TrainingSetup& setup);

  /// Runs a step at a learning rate. All ranks take part.
  StepOutcome run(BatchSource& source, Index step, double learning_rate);

  WeightStore& weights() { return weights_; }
  Executor& executor() { return executor_; }
  const TrainingSetup& setup() const { return setup_; }
  /// Updates made so far (skipped steps do not count).
  Index updates() const { return updates_; }
  void set_updates(Index updates) { updates_ = updates; }
  int rank_of_block(int block) const;

 private:
  void reduce_gradients();
  void tell_tied_gradients() const;
  /// Loss, norm, clip factor and stop requests, agreed by all ranks; then the update, unless something is not
  /// finite.
  void finish_step(StepState state, const std::vector<double>& loss_sums, Index valid, StepOutcome& outcome);

  TrainingSetup setup_;
  WeightStore weights_;
  Executor executor_;
  DeviceStepState update_state_;
  Index updates_ = 0;
};

/// Blocks of a rank under a plan and a partition, ascending.
std::vector<int> blocks_of_rank(const Plan& plan, const Partition& partition, Index rank);

/// Throws ValueError, with the words 'not yet', for a plan that this runtime cannot execute so far: copies of
/// the model, several updates, or actions that it does not know.
void require_executable(const Plan& plan);

/// Peak bytes of every rank, found by running one training step of each on the meta device. Nothing is
/// allocated. `threads`: compute threads of a rank; 0: those of the setup's context.
std::vector<Index> predict_peak_bytes(const TrainingSetup& like, BatchSource& source, int threads = 0);

}  // namespace penstock
