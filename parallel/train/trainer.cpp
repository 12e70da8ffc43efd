// Trainer: the step loop.
#include "parallel/train/trainer.h"

#include <chrono>
#include <cstring>

#include "parallel/train/measurements.h"

namespace penstock {
namespace {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

TrainingSetup with_options(TrainingSetup setup, const TrainerOptions& options) {
  setup.clip = options.clip;
  setup.seed = options.seed;
  setup.micro_batch_size = options.micro_batch_size;
  return setup;
}

}  // namespace

Trainer::Trainer(TrainingSetup setup, Communicator& world, BatchSource& source, TrainerOptions options)
    : setup_(with_options(std::move(setup), options)),
      world_(world),
      source_(source),
      options_(std::move(options)),
      training_(setup_) {}

void Trainer::initialize() { training_.weights().initialize(options_.seed); }

void Trainer::initialize_from(const WeightSource& source) {
  source.load_weights(*setup_.model, training_.weights());
}

void Trainer::resume(const Checkpoint& checkpoint) {
  checkpoint.load_weights(*setup_.model, training_.weights());
  checkpoint.load_optimizer(*setup_.model, *setup_.optimizer, training_.weights());
  training_.set_updates(checkpoint.info().updates);
  last_step_ = saved_step_ = checkpoint.info().step;
}

void Trainer::set_evaluation(BatchSource& source, Index batches) {
  eval_source_ = &source;
  eval_batches_ = batches;
}

EvalRecord Trainer::evaluate() {
  require<ValueError>(eval_source_ != nullptr, "the trainer has no evaluation data");
  EvalRecord record = penstock::evaluate(training_.executor(), *setup_.pipeline, setup_.plan.placement,
                                         *eval_source_, eval_batches_, options_.micro_batch_size);
  record.step = last_step_;
  return record;
}

bool Trainer::save(const TrainerCallbacks& callbacks) {
  const Stopwatch watch;
  const bool leader = world_.rank() == 0;
  CheckpointInfo info = options_.checkpoint_info;
  info.step = last_step_;
  info.updates = training_.updates();
  info.seed = options_.seed;
  const std::filesystem::path& directory = *options_.checkpoint_directory;
  std::filesystem::path path;
  try {
    path = save_checkpoint(directory, info, training_, world_);
  } catch (const IoError& error) {
    if (leader && callbacks.warning)
      callbacks.warning(
          fmt::format("the checkpoint of step {} could not be saved: {}", last_step_, error.what()));
    return false;
  }
  saved_step_ = last_step_;
  if (!leader) return true;
  if (callbacks.checkpoint) callbacks.checkpoint({last_step_, path, watch.seconds()});
  try {
    keep_newest(directory, options_.keep);
  } catch (const std::filesystem::filesystem_error& error) {
    if (callbacks.warning)
      callbacks.warning(fmt::format("an old checkpoint could not be removed: {}", error.what()));
  }
  return true;
}

/// One way of a round trip between neighbouring ranks with a message of the size of a boundary, the slowest
/// pair's.
double Trainer::measure_hop() {
  Communicator& pipeline = *setup_.pipeline;
  if (pipeline.size() == 1) return 0;
  RankContext& context = *setup_.context;
  const auto profiles =
      profile_blocks(*setup_.model, source_, last_step_ + 1,
                     micro_batch_span(source_.batch(last_step_ + 1), options_.micro_batch_size, 0),
                     {.compute = setup_.compute});
  constexpr int tag = (1 << 28) - 1, rounds = 5;
  double hop = 0;
  for (std::size_t stage = 1; stage < setup_.partition.size(); ++stage) {
    const TensorSpec& spec = profiles[static_cast<std::size_t>(setup_.partition[stage].begin - 1)].outputs[0];
    const int a = static_cast<int>(setup_.plan.rank_of(static_cast<Index>(stage) - 1, 0));
    const int b = static_cast<int>(setup_.plan.rank_of(static_cast<Index>(stage), 0));
    pipeline.barrier();
    if (a == b || (pipeline.rank() != a && pipeline.rank() != b)) continue;
    const bool first = pipeline.rank() == a;
    const Tensor message = Tensor::zeros(context, spec.shape, spec.dtype, MemoryKind::communication);
    const std::string waiter =
        fmt::format("rank {}: measuring the link between ranks {} and {}", pipeline.rank(), a, b);
    double best = 1e9;
    for (int round = 0; round < rounds; ++round) {
      const Stopwatch watch;
      for (const bool sends : {first, !first}) {
        Work work = sends ? pipeline.send(message, first ? b : a, tag, {}, context.stream())
                          : pipeline.recv(message, first ? b : a, tag, {}, context.stream());
        work.host_wait(context.deadline_seconds(), waiter);
      }
      best = std::min(best, watch.seconds() / 2);
    }
    hop = std::max(hop, best);
  }
  std::vector<double> slowest{hop};
  pipeline.all_reduce_max(std::span<double>(slowest));
  return slowest[0];
}

RunSummary Trainer::run(const TrainerCallbacks& callbacks) {
  const bool leader = world_.rank() == 0;
  if (options_.checkpoint_directory && saved_step_ < 0)
    require<ValueError>(list_checkpoints(*options_.checkpoint_directory).empty(),
                        "{}: holds checkpoints of another run; resume from them, or name another directory",
                        options_.checkpoint_directory->string());
  RunSummary summary;
  const double hop = measure_hop();
  Measurements measurements(setup_.plan, *setup_.pipeline);
  Index skipped_in_a_row = 0;
  const auto run_evaluation = [&] {
    const EvalRecord record = evaluate();
    if (leader && callbacks.evaluation) callbacks.evaluation(record);
  };
  const Index last = options_.learning_rate.steps;
  if (eval_source_ && options_.eval_every > 0 && last_step_ == 0 && last > 0) run_evaluation();
  while (last_step_ < last) {
    const Index step = last_step_ + 1;
    const Stopwatch watch;
    StepRecord record;
    record.step = step;
    record.lr = options_.learning_rate.rate(step);
    const StepOutcome outcome = training_.run(source_, step, record.lr);
    record.seconds = watch.seconds();
    record.loss = outcome.loss;
    record.grad_norm = outcome.grad_norm;
    record.skipped = outcome.skipped;
    record.tokens = source_.tokens(step);
    record.tokens_per_second = static_cast<double>(record.tokens) / record.seconds;
    last_step_ = step;
    measurements.add(outcome.actions);
    ++summary.steps;
    summary.tokens += record.tokens;
    summary.seconds += record.seconds;
    if (leader && callbacks.step) callbacks.step(record);
    skipped_in_a_row = outcome.skipped ? skipped_in_a_row + 1 : 0;
    require<Error>(skipped_in_a_row < options_.most_skipped_in_a_row,
                   "step {}: loss or gradient was not finite in {} steps in a row; a lower --lr, more "
                   "--warmup or --clip may help",
                   step, skipped_in_a_row);
    if (eval_source_ && options_.eval_every > 0 && (step % options_.eval_every == 0 || step == last))
      run_evaluation();
    if (options_.checkpoint_directory && options_.save_every > 0 && step % options_.save_every == 0)
      save(callbacks);
    summary.stopped = outcome.stop;
    if (outcome.stop != StopRequest::none) break;
  }
  if (options_.checkpoint_directory && saved_step_ != last_step_ && summary.steps > 0)
    summary.saved = save(callbacks);

  summary.tokens_per_second =
      summary.seconds > 0 ? static_cast<double>(summary.tokens) / summary.seconds : 0.0;
  std::vector<double> peaks(static_cast<std::size_t>(world_.size()), 0.0);
  peaks[static_cast<std::size_t>(world_.rank())] =
      static_cast<double>(setup_.context->allocator().peak_total());
  world_.all_reduce_sum(std::span<double>(peaks));
  for (const double p : peaks) summary.peak_bytes.push_back(static_cast<Index>(p));
  summary.peak_bytes_predicted = predict_peak_bytes(setup_, source_);
  summary.stage_seconds.assign(static_cast<std::size_t>(world_.size()), 0.0);
  if (summary.steps > 0) {
    Measurements::Result measured = measurements.summarize(hop);
    summary.bubble_measured = measured.bubble_measured;
    summary.bubble_simulated = measured.bubble_simulated;
    summary.stage_seconds = std::move(measured.stage_seconds);
    summary.measured = std::move(measured.measured);
    summary.simulated = std::move(measured.simulated);
  }
  return summary;
}

}  // namespace penstock
