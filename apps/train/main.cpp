// penstock-train: trains a bundled model on text or token files, in any layout and schedule that is built.
#include <fmt/ranges.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "apps/common/agreement.h"
#include "apps/common/outputs.h"
#include "apps/common/ranks.h"
#include "apps/train/report.h"
#include "apps/train/session.h"
#include "apps/train/settings.h"
#include "core/file.h"
#include "parallel/checkpoint/dump.h"
#include "parallel/pipeline/schedule/render.h"

namespace penstock {
namespace {

std::atomic<int> signal_received = 0;
static_assert(std::atomic<int>::is_always_lock_free);  // a handler may touch it

/// The first signal ends the run after its step; a second one at once.
void on_signal(int signal) {
  if (signal_received.exchange(signal) != 0) _exit(128 + signal);
}

StopRequest stop_request() {
  const int signal = signal_received;
  if (signal == SIGINT) return StopRequest::interrupt;
  return signal == SIGTERM ? StopRequest::terminate : StopRequest::none;
}

/// Every output that a flag names can be written, before work starts. Leaves no trace.
void check_outputs(const TrainSettings& s) {
  std::vector<NamedPath> files, inputs;
  const auto file = [&](const char* flag, const std::optional<std::string>& path) {
    if (!path) return;
    require_writable_file(flag, *path);
    files.push_back({flag, *path});
  };
  const auto folder = [](const char* flag, const std::optional<std::string>& path) {
    if (path) require_writable_folder(flag, *path);
  };
  file("log", s.log);
  file("trace", s.trace);
  folder("dump-gradients", s.dump_gradients);
  folder("dump-parameters", s.dump_parameters);
  folder("checkpoint-dir", s.checkpoint_dir);
  for (const std::string& path : s.data) inputs.push_back({"data", path});
  if (s.model.ends_with(".toml")) inputs.push_back({"model", s.model});
  if (s.schedule.ends_with(".csv")) inputs.push_back({"schedule", s.schedule});
  if (const auto config = s.command->config_file()) inputs.push_back({"config", *config});
  if (s.valid_data) inputs.push_back({"valid-data", *s.valid_data});
  require_distinct(files, inputs);
}

int dry_run(const Frame& frame, const TrainSettings& settings, Ranks& ranks) {
  std::unique_ptr<Session> session;
  std::vector<Index> peaks;
  ranks.agree([&] {
    check_outputs(settings);
    session = prepare(settings, narrow<int>(settings.ranks.value_or(ranks.mpi_size())));
    peaks = predict_peak_bytes(session->training_setup(), *session->batches,
                               narrow<int>(settings.threads.value_or(1)));
  });
  if (settings.json)
    frame.print(describe_json(*session, peaks).dump(2) + "\n");
  else
    frame.print(describe(settings, *session, peaks, true));
  return kExitDone;
}

TrainerOptions trainer_options(const TrainSettings& settings, const Session& session) {
  TrainerOptions options;
  options.learning_rate = {parse_lr_decay(settings.lr_schedule), settings.lr, settings.min_lr,
                           settings.warmup, settings.steps};
  options.clip = settings.clip;
  options.seed = static_cast<std::uint64_t>(settings.seed);
  options.micro_batch_size = session.micro_batch;
  options.eval_every = settings.eval_every;
  if (settings.checkpoint_dir) options.checkpoint_directory = *settings.checkpoint_dir;
  options.save_every = settings.save_every;
  options.keep = settings.keep;
  options.checkpoint_info = session.checkpoint_info;
  return options;
}

/// What the leader tells of the run while it goes on.
TrainerCallbacks callbacks_of(Progress& progress, RunLog* log, Index every,
                              std::vector<EvalRecord>& evaluations) {
  TrainerCallbacks callbacks;
  callbacks.step = [&progress, log](const StepRecord& record) {
    progress.step(record);
    if (log) log->write(step_line(record));
  };
  callbacks.evaluation = [&progress, &evaluations, log, every](const EvalRecord& record) {
    evaluations.push_back(record);
    progress.note(fmt::format("held-out loss after step {}: {:.4f} (perplexity {:.2f})", record.step,
                              record.loss, record.perplexity));
    // The log has those that --eval-every names; the first and the last one are for the reader.
    if (log && record.step > 0 && record.step % every == 0) log->write(eval_line(record));
  };
  callbacks.checkpoint = [&progress, log](const CheckpointRecord& record) {
    progress.note(fmt::format("checkpoint {} in {:.2f} s", record.path.string(), record.seconds));
    if (log) log->write(checkpoint_line(record));
  };
  callbacks.warning = [&progress](const std::string& text) { progress.note(text); };
  return callbacks;
}

/// One rank of the run. Returns the exit status, the same on all ranks.
int train(Frame& frame, const TrainSettings& settings, Communicator& world, const std::string& host) {
  const bool leader = world.rank() == 0;
  std::unique_ptr<Session> session;
  agree(world, [&] {
    check_outputs(settings);
    session = prepare(settings, world.size());
  });
  require_same(world, host, fmt::format("--data {}", fmt::join(settings.data, " ")), session->data_seen);
  if (settings.checkpoint_dir)
    require_shared_directory(world, host, "checkpoint-dir", *settings.checkpoint_dir);
  const Index threads = settings.threads.value_or(default_threads(world, host));
  const std::vector<std::string> hosts = world.all_gather(host);
  std::optional<RunLog> log;
  agree(world, [&] {
    if (leader && settings.log) log.emplace(*settings.log, settings.resume);
  });
  frame.start_work();
  world.barrier();
  if (leader && settings.checkpoint_dir) clear_unfinished(*settings.checkpoint_dir);

  RankContext context({.device = {}, .threads = narrow<int>(threads), .deadline_seconds = settings.deadline});
  TrainingSetup setup = session->training_setup();
  setup.context = &context;
  setup.pipeline = &world;
  setup.stop_request = stop_request;
  std::optional<Trainer> trainer;
  const Index first_step = session->resume ? session->resume->info().step + 1 : 1;
  if (settings.dump_gradients)
    setup.on_gradients = [&](Index step, const WeightStore& weights) {
      if (step == first_step)
        dump_gradients(*settings.dump_gradients, session->model, weights, world, context,
                       [&](int block) { return trainer->step().rank_of_block(block); });
    };
  trainer.emplace(setup, world, *session->batches, trainer_options(settings, *session));
  if (session->evaluation) trainer->set_evaluation(*session->evaluation, session->eval_batches);
  if (session->resume)
    trainer->resume(*session->resume);
  else if (session->init_from)
    trainer->initialize_from(*session->init_from->weights);
  else
    trainer->initialize();

  Progress progress(frame, settings.steps);
  std::vector<EvalRecord> evaluations;
  if (leader) {
    const std::vector<std::string> devices(static_cast<std::size_t>(world.size()), "cpu");
    if (log) log->write(run_line(settings, *session, threads, hosts, devices));
    frame.note(describe(settings, *session, predict_peak_bytes(setup, *session->batches), false));
    if (session->resume) frame.note(fmt::format("resumed from {}\n", session->resume->path().string()));
  }
  const RunSummary summary =
      trainer->run(callbacks_of(progress, log ? &*log : nullptr, settings.eval_every, evaluations));
  if (settings.dump_parameters)
    dump_parameters(*settings.dump_parameters, session->model, trainer->step().weights(), world.rank());
  if (leader) {
    const nlohmann::ordered_json line = summary_line(summary);
    if (log) log->write(line);
    if (settings.trace) write_file(*settings.trace, chrome_trace(summary.measured));
    frame.print(settings.json ? line.dump(2) + "\n" : closing_report(*session, summary, evaluations));
  }
  world.barrier();
  if (!summary.saved) return kExitFailure;
  if (summary.stopped == StopRequest::interrupt) return 128 + SIGINT;
  if (summary.stopped == StopRequest::terminate) return 128 + SIGTERM;
  return kExitDone;
}

int body(Frame& frame, Ranks& ranks, int argc, char** argv) {
  TrainSettings settings;
  Program program("penstock-train", "Trains a GPT-style model through a pipeline of ranks.");
  settings.define(program.root());
  Parsed parsed;
  ranks.join([&]() -> Ranks::Wishes {
    parsed = program.parse(argc, argv);
    if (!parsed.print.empty()) return {};
    settings.check();
    return {settings.deadline, settings.ranks, [&] { return nlohmann::json(program.root().settings()); }};
  });
  if (!parsed.print.empty()) {
    frame.print(parsed.print);
    return kExitDone;
  }
  if (settings.dry_run) return dry_run(frame, settings, ranks);
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  std::atomic<int> status = kExitDone;
  ranks.run(settings.ranks, settings.deadline,
            [&](Communicator& world) { status = train(frame, settings, world, ranks.host_name()); });
  return status;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  return penstock::run_program("penstock-train", [&](penstock::Frame& frame, penstock::Ranks& ranks) {
    return penstock::body(frame, ranks, argc, argv);
  });
}
