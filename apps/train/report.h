// What penstock-train tells: progress on stderr, the JSONL log, the closing report on stdout.
#pragma once

#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

#include "apps/common/frame.h"
#include "apps/train/session.h"
#include "parallel/train/trainer.h"

namespace penstock {

/// One JSON object a line, flushed; written by rank 0.
class RunLog {
 public:
  /// Appends or begins anew. Throws IoError when the file cannot be opened.
  RunLog(const std::string& path, bool append);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  void write(const nlohmann::ordered_json& line);
  /// Non-zero once a line could not be written.
  bool failed() const { return failed_; }

 private:
  std::string path_;
  std::FILE* file_;
  bool failed_ = false;
};

/// NaN and infinity are null.
nlohmann::ordered_json json_number(double value);

/// The `run` line.
nlohmann::ordered_json run_line(const TrainSettings& settings, const Session& session, Index threads,
                                const std::vector<std::string>& hosts,
                                const std::vector<std::string>& devices);
nlohmann::ordered_json step_line(const StepRecord& record);
nlohmann::ordered_json eval_line(const EvalRecord& record);
nlohmann::ordered_json checkpoint_line(const CheckpointRecord& record);
nlohmann::ordered_json summary_line(const RunSummary& summary);

/// The line that is redrawn on a terminal, and printed about once a second elsewhere.
class Progress {
 public:
  Progress(const Frame& frame, Index last_step);
  void step(const StepRecord& record);
  /// A line that stays.
  void note(const std::string& text);

 private:
  const Frame& frame_;
  Index last_step_;
  bool terminal_;
  bool open_ = false;  // a redrawn line stands
  double average_ = 0;
  Index counted_ = 0;
  double last_print_ = -1;
};

/// "12.3k", "4.56M"
std::string human(double value);
/// "12.3 MiB"
std::string human_bytes(Index bytes);

/// Plan, memory and schedule before the run: --dry-run, and the head of every run.
std::string describe(const TrainSettings& settings, const Session& session,
                     const std::vector<Index>& predicted_peak, bool drawing);
nlohmann::ordered_json describe_json(const Session& session, const std::vector<Index>& predicted_peak);
/// The closing report: losses on held-out text, measured beside simulated timeline.
std::string closing_report(const Session& session, const RunSummary& summary,
                           const std::vector<EvalRecord>& evaluations);

}  // namespace penstock
