// penstock-train: trains a bundled model on text or token files, in any layout and schedule that is built.
#include <atomic>
#include <csignal>

#include "apps/common/ranks.h"
#include "apps/train/report.h"
#include "apps/train/session.h"
#include "apps/train/settings.h"
#include "core/file.h"
#include "parallel/checkpoint/dump.h"
#include "parallel/pipeline/schedule/render.h"

namespace penstock {
namespace {

volatile std::sig_atomic_t signal_received = 0;

/// The first signal ends the run after its step; a second one at once.
void on_signal(int signal) {
  if (signal_received != 0) std::_Exit(128 + signal);
  signal_received = signal;
}

StopRequest stop_request() {
  if (signal_received == SIGINT) return StopRequest::interrupt;
  return signal_received == SIGTERM ? StopRequest::terminate : StopRequest::none;
}

/// Every output that a flag names can be written, before work starts. Leaves no trace.
void check_outputs(const TrainSettings& s) {
  const auto folder_of = [](const std::string& flag, const std::string& file) {
    const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
    require<IoError>(std::filesystem::is_directory(folder), "--{} {}: there is no directory {}", flag, file, folder.string());
    require<IoError>(!std::filesystem::is_directory(file), "--{} {}: is a directory", flag, file);
  };
  if (s.log) folder_of("log", *s.log);
  if (s.trace) folder_of("trace", *s.trace);
}

int dry_run(const Frame& frame, const TrainSettings& settings, int ranks) {
  const std::unique_ptr<Session> session = prepare(settings, ranks);
  const std::vector<Index> peaks = predict_peak_bytes(session->training_setup(), *session->batches);
  if (settings.json)
    frame.print(describe_json(*session, peaks).dump(2) + "\n");
  else
    frame.print(describe(settings, *session, peaks, true));
  return kExitDone;
}

/// One rank of the run. Returns the exit status, the same on all ranks.
int train(Frame& frame, const TrainSettings& settings, Communicator& world, const std::string& host) {
  const bool leader = world.rank() == 0;
  std::unique_ptr<Session> session;
  agree(world, [&] {
    check_outputs(settings);
    session = prepare(settings, world.size());
  });
  const Index threads = settings.threads.value_or(default_threads(world, host));
  const std::vector<std::string> hosts = world.all_gather(host);
  std::optional<RunLog> log;
  agree(world, [&] {
    if (leader && settings.log) log.emplace(*settings.log, settings.resume);
  });
  if (leader) frame.start_work();
  world.barrier();

  RankContext context({.device = {}, .threads = narrow<int>(threads), .deadline_seconds = settings.deadline});
  TrainingSetup setup = session->training_setup();
  setup.context = &context;
  setup.pipeline = &world;
  setup.stop_request = stop_request;
  TrainerOptions options;
  options.learning_rate = {parse_lr_decay(settings.lr_schedule), settings.lr, settings.min_lr, settings.warmup, settings.steps};
  options.clip = settings.clip;
  options.seed = static_cast<std::uint64_t>(settings.seed);
  options.micro_batch_size = session->micro_batch;
  options.eval_every = settings.eval_every;
  if (settings.checkpoint_dir) {
    options.checkpoint_directory = *settings.checkpoint_dir;
    if (leader) clear_unfinished(*settings.checkpoint_dir);
  }
  options.save_every = settings.save_every;
  options.keep = settings.keep;
  options.checkpoint_info = session->checkpoint_info;
  std::optional<Trainer> trainer;
  if (settings.dump_gradients)
    setup.on_gradients = [&](Index step, const WeightStore& weights) {
      if (step == 1)
        dump_gradients(*settings.dump_gradients, session->model, weights, world, context, [&](int block) { return trainer->step().rank_of_block(block); });
    };
  trainer.emplace(setup, world, *session->batches, options);
  if (session->evaluation) trainer->set_evaluation(*session->evaluation, session->eval_batches);
  if (session->resume)
    trainer->resume(*session->resume);
  else if (session->init_from)
    trainer->initialize_from(*session->init_from);
  else
    trainer->initialize();

  Progress progress(frame, settings.steps);
  std::vector<EvalRecord> evaluations;
  if (leader) {
    if (log) log->write(run_line(settings, *session, threads, hosts, std::vector<std::string>(static_cast<std::size_t>(world.size()), "cpu")));
    frame.note(describe(settings, *session, predict_peak_bytes(setup, *session->batches), false));
    if (session->resume) frame.note(fmt::format("resumed from {}\n", session->resume->path().string()));
  }
  TrainerCallbacks callbacks;
  callbacks.step = [&](const StepRecord& record) {
    progress.step(record);
    if (log) log->write(step_line(record));
  };
  callbacks.evaluation = [&](const EvalRecord& record) {
    evaluations.push_back(record);
    progress.note(fmt::format("held-out loss after step {}: {:.4f} (perplexity {:.2f})", record.step, record.loss, record.perplexity));
    if (log) log->write(eval_line(record));
  };
  callbacks.checkpoint = [&](const CheckpointRecord& record) {
    progress.note(fmt::format("checkpoint {} in {:.2f} s", record.path.string(), record.seconds));
    if (log) log->write(checkpoint_line(record));
  };
  const RunSummary summary = trainer->run(callbacks);
  if (settings.dump_parameters) dump_parameters(*settings.dump_parameters, session->model, trainer->step().weights(), world.rank());
  if (leader) {
    if (log) log->write(summary_line(summary));
    if (settings.trace) write_file(*settings.trace, chrome_trace(summary.measured));
    frame.print(closing_report(*session, summary, evaluations));
  }
  world.barrier();
  if (summary.stopped == StopRequest::interrupt) return 128 + SIGINT;
  if (summary.stopped == StopRequest::terminate) return 128 + SIGTERM;
  return kExitDone;
}

int body(Frame& frame, int argc, char** argv) {
  Ranks ranks(frame);
  TrainSettings settings;
  Program program("penstock-train", "Trains a GPT-style model through a pipeline of ranks.");
  settings.define(program.root());
  const Parsed parsed = program.parse(argc, argv);
  if (!parsed.print.empty()) {
    frame.print(parsed.print);
    return kExitDone;
  }
  settings.check();
  if (settings.dry_run) return dry_run(frame, settings, narrow<int>(settings.ranks.value_or(ranks.mpi_size())));
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  std::atomic<int> status = kExitDone;
  ranks.run(settings.ranks, settings.deadline, [&](Communicator& world) { status = train(frame, settings, world, ranks.host_name()); });
  return status;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  return penstock::run_program("penstock-train", [&](penstock::Frame& frame) { return penstock::body(frame, argc, argv); });
}
