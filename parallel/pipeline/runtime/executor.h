// Executor: runs one rank's part of a lowered plan, for any schedule. Receives are posted ahead with exact
// sizes, sends complete in the background, and compute waits only for what has not arrived.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/weight_store.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/plan/partition.h"
#include "parallel/pipeline/plan/profile.h"
#include "parallel/pipeline/runtime/batch_source.h"
#include "parallel/pipeline/schedule/plan.h"
#include "parallel/pipeline/schedule/timeline.h"

namespace penstock {

/// What crosses in front of block 0, 1, ... and behind the last, by the shapes of the batch's geometry.
using EdgeTable = std::map<std::vector<Index>, std::vector<std::vector<TensorSpec>>>;

/// What a rank's executor works with. All of it outlives the executor.
struct ExecutorSetup {
  RankContext* context = nullptr;
  Communicator* pipeline = nullptr;  ///< the ranks of this pipeline: rank r runs row r of a plan
  const Model* model = nullptr;
  Partition partition;  ///< blocks of each stage
  WeightStore* weights = nullptr;
  std::uint64_t seed = 0;
  std::vector<Recompute> recompute = {};  ///< for each block of the model; empty: nothing
  std::shared_ptr<EdgeTable> edges = {};  ///< null: a table of its own
};

struct PassResult {
  /// Sum of the loss over each micro-batch; only on the rank of the last stage (elsewhere empty).
  std::vector<double> loss_sums;
  /// Compute actions of this rank, in seconds of the rank's steady clock.
  std::vector<TimedAction> actions;
};

/// One pass over a plan.
struct PassOptions {
  Mode mode = Mode::train;
  Index step = 1;
  Index micro_batch_size = 1;
  StepState state = {};  ///< copied to the device before the pass
  /// What REDUCE_GRAD and STEP do; the losses are known by then.
  std::function<void(const Action&, const PassResult&)> optimizer_action = {};
  /// Sees the last block's outputs.
  std::function<void(Index micro_batch, const Variables& outputs)> on_output = {};
  /// Sees the gradient of each use of a parameter on this rank, frozen ones aside, exactly once a pass: as
  /// soon as no backward of the rank's row will add to it, be it a B or a W, and also where nothing was added
  /// (zeros). Within the last backward of a stage they come one by one, as that backward is done with them.
  /// Uses of a tied parameter come apart.
  std::function<void(int block, int parameter, const Tensor& gradient)> on_gradient = {};
  bool loss = true;  ///< false: generation has no targets
};

class Executor {
 public:
  explicit Executor(const ExecutorSetup& setup);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs this rank's row. `plan` is lowered and verified, for as many micro-batches as the batch has. Throws
  /// CommError naming rank, stage, micro-batch and action for a wait that failed; after an exception `reset`
  /// makes the executor usable again, where the communicator is.
  PassResult run(const Plan& plan, BatchSource& source, const PassOptions& options);

  /// Drops everything of a pass that failed. Every rank of the pipeline calls it, as often as the others.
  void reset();

  const DeviceStepState& state() const { return state_; }

 private:
  struct Flight {  // a micro-batch in a stage between F and its last backward
    std::unique_ptr<Tape> tape;
    Variables inputs, outputs;
  };
  struct Boundary {  // values at the edge in front of a stage (forward) or behind it (backward)
    Tensors tensors;
    std::vector<Work> works;
  };
  struct Sent {  // a SEND and its messages, which hold their memory until they are waited for, whatever the
                 // transport does with it
    Action action;
    Tensors tensors;
    std::vector<Work> works;
  };
  struct Key {
    int direction;
    Index stage, micro_batch;
    auto operator<=>(const Key&) const = default;
  };
  struct Pass;

  void collect_losses(Pass& pass);
  void run_optimizer(Pass& pass, const Action& action);
  void forward(Pass& pass, const Action& action);
  void backward(Pass& pass, const Action& action);
  void run_backward(Pass& pass, Flight& flight, const Action& action, const Tensors& gradients);
  void hand_on(Pass& pass, int direction, Index stage, Index micro_batch, Tensors values);
  void post_receive(Pass& pass, const Action& receive);
  Tensors take(Pass& pass, int direction, Index stage, Index micro_batch);
  void send(Pass& pass, const Action& action);
  void finish(Sent& sent);
  const std::vector<TensorSpec>& edge(Pass& pass, Index stage, Index micro_batch);
  void check_outputs(Pass& pass, const Action& action, const Tensors& outputs);
  std::string waiter(const Action& action) const;
  double now() const;

  ExecutorSetup setup_;
  DeviceStepState state_;
  const Action* running_ = nullptr;  // of a pass
  std::map<Key, Boundary> boundaries_;
  std::map<std::pair<Index, Index>, Flight> flights_;
  std::map<std::pair<Index, int>, std::deque<Sent>> sends_;  // under way, by rank and direction
  Index attempt_ = 0;                                        // passes that failed
  std::shared_ptr<EdgeTable> edges_;
};

}  // namespace penstock
