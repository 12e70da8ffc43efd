// TrainingStep: the optimizer's part of a step.
#include "parallel/pipeline/runtime/training_step.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "parallel/pipeline/runtime/meta_communicator.h"
#include "parallel/pipeline/runtime/tied_gradients.h"

namespace penstock {

std::vector<int> blocks_of_rank(const Plan& plan, const Partition& partition, Index rank) {
  std::vector<int> blocks;
  for (const Index stage : plan.stages_of(rank))
    for (int b = partition[static_cast<std::size_t>(stage)].begin;
         b < partition[static_cast<std::size_t>(stage)].end; ++b)
      blocks.push_back(b);
  std::sort(blocks.begin(), blocks.end());
  return blocks;
}

void require_executable(const Plan& plan) {
  require<ValueError>(plan.placement.size() == 1,
                      "plan {} has {} copies of the model; such plans are not yet run", plan.schedule,
                      plan.placement.size());
  require<ValueError>(plan.micro_batches_per_update == plan.micro_batches,
                      "plan {} updates after every {} of its {} micro-batches; such plans are not yet run",
                      plan.schedule, plan.micro_batches_per_update, plan.micro_batches);
  for (const auto& row : plan.rows)
    for (const Cell& cell : row) {
      if (!cell) continue;
      for (const ActionKind kind : {ActionKind::RECOMPUTE, ActionKind::OFFLOAD, ActionKind::PREFETCH})
        require<ValueError>(cell->kind != kind, "plan {} has {}; this action is not yet run", plan.schedule,
                            to_text(*cell));
    }
}

namespace {

const TrainingSetup& checked(const TrainingSetup& setup) {
  require_executable(setup.plan);
  return setup;
}

}  // namespace

TrainingStep::TrainingStep(const TrainingSetup& setup)
    : setup_(checked(setup)),
      weights_(
          *setup.context, *setup.model, blocks_of_rank(setup.plan, setup.partition, setup.pipeline->rank()),
          {.gradients = true, .optimizer_buffers = setup.optimizer->buffers(), .compute = setup.compute}),
      executor_({setup.context, setup.pipeline, setup.model, setup.partition, &weights_, setup.seed,
                 setup.recompute, setup.edges}),
      update_state_(*setup.context) {}

int TrainingStep::rank_of_block(int block) const {
  for (std::size_t s = 0; s < setup_.partition.size(); ++s)
    if (setup_.partition[s].begin <= block && block < setup_.partition[s].end)
      return static_cast<int>(setup_.plan.rank_of(static_cast<Index>(s), 0));
  throw ValueError("block {} is in no stage", block);
}

void TrainingStep::reduce_gradients() {
  weights_.finish_gradients();
  reduce_tied_gradients(*setup_.context, *setup_.pipeline, *setup_.model, weights_,
                        [this](int block) { return rank_of_block(block); });
  if (setup_.on_parameter_gradient) tell_tied_gradients();
}

void TrainingStep::tell_tied_gradients() const {
  for (const ParameterRecord& p : setup_.model->parameters()) {
    if (p.uses.size() < 2 || p.frozen) continue;
    for (const ParameterRecord::Use& use : p.uses) {
      if (!weights_.holds(use.block)) continue;
      setup_.on_parameter_gradient(use.block, use.parameter, weights_.gradient_of(use.block, use.parameter));
      break;
    }
  }
}

void TrainingStep::finish_step(StepState state, const std::vector<double>& loss_sums, Index valid,
                               StepOutcome& outcome) {
  RankContext& context = *setup_.context;
  if (setup_.on_gradients) setup_.on_gradients(state.step, weights_);
  // One number a parameter, each from the rank of its first use and 0 elsewhere; the loss comes from the last
  // stage alone.
  std::vector<double> table = gradient_norm_table(context, weights_, *setup_.model);
  const std::size_t parameters = table.size();
  double loss_sum = 0;
  for (const double sum : loss_sums) loss_sum += sum;
  const StopRequest stop = setup_.stop_request ? setup_.stop_request() : StopRequest::none;
  table.insert(table.end(), {loss_sum, stop == StopRequest::interrupt ? 1.0 : 0.0,
                             stop == StopRequest::terminate ? 1.0 : 0.0});
  if (context.device().kind != DeviceKind::meta) setup_.pipeline->all_reduce_sum(std::span<double>(table));
  loss_sum = table[parameters];
  if (table[parameters + 2] > 0) outcome.stop = StopRequest::terminate;
  if (table[parameters + 1] > 0) outcome.stop = StopRequest::interrupt;
  double squares = 0;
  for (std::size_t i = 0; i < parameters; ++i) squares += table[i];
  outcome.grad_norm = std::sqrt(squares);
  outcome.loss = valid > 0 ? loss_sum / static_cast<double>(valid) : 0.0;
  outcome.skipped = !std::isfinite(outcome.grad_norm) || !std::isfinite(outcome.loss);
  if (outcome.skipped) return;
  state.clip_factor =
      setup_.clip > 0 ? static_cast<float>(std::min(1.0, setup_.clip / (outcome.grad_norm + 1e-6))) : 1.0f;
  state.updates = ++updates_;
  update_state_.set(state);
  setup_.optimizer->step(context, weights_, update_state_.get());
}

StepOutcome TrainingStep::run(BatchSource& source, Index step, double learning_rate) {
  StepOutcome outcome;
  const Index valid = source.valid_targets(step);
  StepState state{.step = step, .updates = updates_, .learning_rate = static_cast<float>(learning_rate)};
  state.loss_seed = valid > 0 ? static_cast<float>(1.0 / static_cast<double>(valid)) : 0.0f;
  weights_.begin_step();
  PassOptions options{
      .mode = Mode::train, .step = step, .micro_batch_size = setup_.micro_batch_size, .state = state};
  // The global norm needs every gradient of the rank: in a synchronous plan all REDUCE_GRADs and STEPs of a
  // row stand at its end, so the first of each does the work of all.
  bool reduced = false, stepped = false;
  options.optimizer_action = [&](const Action& action, const PassResult& so_far) {
    if (action.kind == ActionKind::REDUCE_GRAD && !std::exchange(reduced, true)) reduce_gradients();
    if (action.kind == ActionKind::STEP && !std::exchange(stepped, true))
      finish_step(state, so_far.loss_sums, valid, outcome);
  };
  if (setup_.on_parameter_gradient) {
    std::set<std::pair<int, int>> tied;
    for (const ParameterRecord& p : setup_.model->parameters())
      for (const ParameterRecord::Use& use : p.uses)
        if (p.uses.size() > 1) tied.emplace(use.block, use.parameter);
    options.on_gradient = [this, tied](int block, int parameter, const Tensor& gradient) {
      if (!tied.contains({block, parameter})) setup_.on_parameter_gradient(block, parameter, gradient);
    };
  }
  outcome.actions = executor_.run(setup_.plan, source, options).actions;
  require<ValueError>(reduced && stepped, "plan {} has no REDUCE_GRAD or STEP on rank {}",
                      setup_.plan.schedule, setup_.pipeline->rank());
  return outcome;
}

std::vector<Index> predict_peak_bytes(const TrainingSetup& like, BatchSource& source, int threads) {
  if (threads == 0) threads = like.context ? like.context->pool().threads() : 1;
  const auto edges = std::make_shared<EdgeTable>();
  std::vector<Index> peaks;
  for (Index rank = 0; rank < like.plan.pp; ++rank) {
    RankContext meta({.device = {DeviceKind::meta, 0}, .threads = threads});
    MetaCommunicator pipeline(static_cast<int>(rank), static_cast<int>(like.plan.pp));
    TrainingSetup setup = like;
    setup.edges = edges;
    setup.context = &meta;
    setup.pipeline = &pipeline;
    setup.stop_request = {};
    setup.on_gradients = {};
    setup.on_parameter_gradient = {};
    TrainingStep step(setup);
    step.run(source, 1, 0.0);
    peaks.push_back(meta.allocator().peak_total());
  }
  return peaks;
}

}  // namespace penstock
