// Progress, log and closing report of penstock-train.
#include "apps/train/report.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>

#include "apps/common/terminal.h"
#include "apps/common/version.h"
#include "parallel/pipeline/schedule/render.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

RenderOptions render_options() {
  const Terminal terminal = terminal_at(STDOUT_FILENO);
  RenderOptions options;
  options.width = terminal.columns;
  options.colour = terminal.interactive;
  return options;
}

std::string duration(double seconds) {
  const auto s = static_cast<Index>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

/// The plan with each stage's cost in proportion to its floating-point operations, in GFLOP.
Simulation simulate_by_flops(const Session& session) {
  const auto profiles = profile_blocks(session.model, *session.batches, 1,
                                       micro_batch_span(session.batches->batch(1), session.micro_batch, 0),
                                       {.recompute = session.recompute});
  CostModel costs;
  costs.f.clear();
  costs.i.clear();
  costs.w.clear();
  for (const BlockRange& stage : session.partition) {
    double f = 0, i = 0, w = 0;
    for (int b = stage.begin; b < stage.end; ++b) {
      const BlockProfile& p = profiles[static_cast<std::size_t>(b)];
      f += p.forward_flops;
      i += p.input_flops;
      w += p.weight_flops;
    }
    costs.f.push_back(f / 1e9);
    costs.i.push_back(i / 1e9);
    costs.w.push_back(w / 1e9);
  }
  return simulate(session.plan, costs);
}

}  // namespace

RunLog::RunLog(const std::string& path, bool append)
    : path_(path), file_(std::fopen(path.c_str(), append ? "a+" : "w")) {
  require<IoError>(file_ != nullptr, "--log {}: {}", path, std::strerror(errno));
  // A run that was killed may have left half a line.
  if (!append || std::fseek(file_, -1, SEEK_END) != 0) return;
  const bool whole = std::fgetc(file_) == '\n';
  std::fseek(file_, 0, SEEK_END);
  if (!whole) std::fputc('\n', file_);
}

RunLog::~RunLog() { std::fclose(file_); }

void RunLog::write(const Json& line) {
  // A path may hold bytes that are no UTF-8.
  const std::string text = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (failed_) return;
  if (std::fwrite(text.data(), 1, text.size(), file_) == text.size() && std::fflush(file_) == 0) return;
  failed_ = true;
  std::fputs(fmt::format("penstock-train: --log {}: {}; training goes on without the log\n", path_,
                         std::strerror(errno))
                 .c_str(),
             stderr);
}

Json json_number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json run_line(const TrainSettings& settings, const Session& session, Index threads,
              const std::vector<std::string>& hosts, const std::vector<std::string>& devices) {
  Json line{{"type", "run"}};
  line.update(settings.command->settings());
  const ModelConfig& model = session.model_config;
  line["model"] = model.name;
  line["layers"] = model.layers();
  line["hidden"] = model.hidden();
  line["heads"] = model.heads();
  line["kv_heads"] = model.kv_heads();
  line["ffn"] = model.ffn();
  line["vocab"] = model.vocabulary();
  line["seq_len"] = session.sequence_length;
  line["dropout"] = std::stod(fmt::format("{}", model.dropout()));  // 0.1, not the float's further digits
  line["tied_embeddings"] = model.tied_embeddings();
  line["tokenizer"] = session.checkpoint_info.tokenizer;
  line["micro_batch"] = session.micro_batch;
  line["weight_decay"] = session.weight_decay;
  line["threads"] = threads;
  line["pp"] = session.layout.pp;
  line.update(describe_json(session, {}));
  line.erase("peak_bytes_predicted");
  line.erase("bubble_simulated");
  line["devices"] = devices;
  line["hosts"] = hosts;
  line["version"] = kVersion;
  return line;
}

Json step_line(const StepRecord& r) {
  Json line{{"type", "step"},
            {"step", r.step},
            {"loss", json_number(r.loss)},
            {"grad_norm", json_number(r.grad_norm)},
            {"lr", r.lr},
            {"tokens", r.tokens},
            {"seconds", r.seconds},
            {"tokens_per_second", json_number(r.tokens_per_second)}};
  if (r.skipped) line["skipped"] = true;
  return line;
}

Json eval_line(const EvalRecord& r) {
  return {{"type", "eval"},
          {"step", r.step},
          {"loss", json_number(r.loss)},
          {"perplexity", json_number(r.perplexity)},
          {"tokens", r.tokens}};
}

Json checkpoint_line(const CheckpointRecord& r) {
  return {{"type", "checkpoint"}, {"step", r.step}, {"path", r.path.string()}, {"seconds", r.seconds}};
}

Json summary_line(const RunSummary& s) {
  return {{"type", "summary"},
          {"steps", s.steps},
          {"tokens", s.tokens},
          {"seconds", s.seconds},
          {"tokens_per_second", json_number(s.tokens_per_second)},
          {"bubble_measured", json_number(s.bubble_measured)},
          {"bubble_simulated", json_number(s.bubble_simulated)},
          {"peak_bytes", s.peak_bytes},
          {"peak_bytes_predicted", s.peak_bytes_predicted},
          {"stage_seconds", s.stage_seconds},
          {"rollbacks", 0}};
}

std::string human(double value) {
  if (value >= 1e9) return fmt::format("{:.2f}G", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.2f}M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.1f}k", value / 1e3);
  return fmt::format("{:.0f}", value);
}

std::string human_bytes(Index bytes) {
  const auto b = static_cast<double>(bytes);
  if (b >= 1024.0 * 1024 * 1024) return fmt::format("{:.2f} GiB", b / (1024.0 * 1024 * 1024));
  if (b >= 1024.0 * 1024) return fmt::format("{:.1f} MiB", b / (1024.0 * 1024));
  return fmt::format("{:.1f} KiB", b / 1024.0);
}

Progress::Progress(const Frame& frame, Index last_step)
    : frame_(frame), last_step_(last_step), terminal_(terminal_at(STDERR_FILENO).interactive) {}

void Progress::step(const StepRecord& r) {
  // The first step (warm-up) stays out of the average.
  if (++counted_ > 1) average_ += (r.seconds - average_) / static_cast<double>(counted_ - 1);
  const double seconds = counted_ > 1 ? average_ : r.seconds;
  const double now = seconds_now();
  if (r.skipped)
    note(fmt::format("step {}: loss or gradient is not finite; the step is skipped and nothing changed",
                     r.step));
  if (now - last_print_ < (terminal_ ? 0.1 : 1.0) && r.step != last_step_) return;
  last_print_ = now;
  const std::string text = fmt::format(
      "step {}/{}  loss {:.4f}  norm {:.3f}  lr {:.3g}  {:.1f} ms  {} tok/s  left {}", r.step, last_step_,
      r.loss, r.grad_norm, r.lr, 1e3 * r.seconds, human(static_cast<double>(r.tokens) / seconds),
      duration(seconds * static_cast<double>(last_step_ - r.step)));
  frame_.note(terminal_ ? fmt::format("\r\x1b[K{}", text) : text + "\n");
  open_ = terminal_;
  if (open_ && r.step == last_step_) {
    frame_.note("\n");
    open_ = false;
  }
}

void Progress::note(const std::string& text) {
  frame_.note(fmt::format("{}{}\n", open_ ? "\r\x1b[K" : "", text));
  open_ = false;
}

Json describe_json(const Session& session, const std::vector<Index>& predicted_peak) {
  const MeshShape& l = session.layout;
  Json json{{"parameters", session.model.parameter_count()},
            {"layout", {{"pp", l.pp}, {"tp", l.tp}, {"dp", l.dp}, {"cp", l.cp}, {"ep", l.ep}}},
            {"partition", layers_per_stage(session.model, session.partition)},
            {"peak_bytes_predicted", predicted_peak}};
  json["bubble_simulated"] = simulate_by_flops(session).bubble_total;
  return json;
}

std::string describe(const TrainSettings& s, const Session& session, const std::vector<Index>& predicted_peak,
                     bool drawing) {
  const ModelConfig& m = session.model_config;
  const RowFingerprint row = session.batches->sampler().row().fingerprint();
  std::string text =
      fmt::format("model     {}: {} parameters, {} layers of {}, {} heads, vocabulary {}, sequences of {}\n",
                  session.model_config.name, human(static_cast<double>(session.model.parameter_count())),
                  m.layers(), m.hidden(), m.heads(), m.vocabulary(), session.sequence_length);
  text += fmt::format("data      {} tokens, {} windows, {}\n", human(static_cast<double>(row.tokens)),
                      session.batches->sampler().windows(), s.data_order);
  text += fmt::format("batch     {} sequences in {} micro-batches of {}; {} steps, {} lr {:g}\n", s.batch,
                      session.plan.micro_batches, session.micro_batch, s.steps, s.optimizer, s.lr);
  text += fmt::format("pipeline  {} over {} rank{}, layers per stage {}\n", session.plan.schedule,
                      session.plan.pp, session.plan.pp == 1 ? "" : "s",
                      fmt::join(layers_per_stage(session.model, session.partition), ","));
  if (!predicted_peak.empty()) {
    std::vector<std::string> peaks;
    for (const Index bytes : predicted_peak) peaks.push_back(human_bytes(bytes));
    text += fmt::format("memory    predicted peak per rank: {}\n", fmt::join(peaks, ", "));
  }
  if (!drawing) return text;
  const Simulation simulation = simulate_by_flops(session);
  Timeline timeline = simulation.timeline;
  timeline.unit = "GFLOP";
  return text + "\n" +
         render(timeline,
                fmt::format("{}, {} micro-batches, simulated by flops: bubble {:.1f} %",
                            session.plan.schedule, session.plan.micro_batches, 100 * simulation.bubble_total),
                render_options());
}

std::string closing_report(const Session& session, const RunSummary& summary,
                           const std::vector<EvalRecord>& evaluations) {
  std::string text;
  if (!evaluations.empty()) {
    text += "\nloss on held-out text\n";
    for (const EvalRecord& e : evaluations)
      text += fmt::format("  after step {:>6}   {:.4f} nats a token   perplexity {:.2f}\n", e.step, e.loss,
                          e.perplexity);
  }
  if (summary.steps == 0) return text + "\nno step was left to do\n";
  const std::string& name = session.plan.schedule;
  text += "\n" + render({{fmt::format("{}, last step, measured (bubble over the steady steps {:.1f} %)", name,
                                      100 * summary.bubble_measured),
                          summary.measured},
                         {fmt::format("{}, simulated with the measured stage times (bubble {:.1f} %)", name,
                                      100 * summary.bubble_simulated),
                          summary.simulated}},
                        render_options());
  std::vector<std::string> peaks, predicted;
  for (const Index bytes : summary.peak_bytes) peaks.push_back(human_bytes(bytes));
  for (const Index bytes : summary.peak_bytes_predicted) predicted.push_back(human_bytes(bytes));
  text +=
      fmt::format("\n{} steps, {} tokens in {:.1f} s: {} tokens/s\npeak memory per rank {} (predicted {})\n",
                  summary.steps, human(static_cast<double>(summary.tokens)), summary.seconds,
                  human(summary.tokens_per_second), fmt::join(peaks, ", "), fmt::join(predicted, ", "));
  return text;
}

}  // namespace penstock
