// A run of the library's training loop on in-process ranks, for tests of checkpoints, resuming and the loop
// itself.
#pragma once

#include <filesystem>

#include "parallel/runtime/support.h"
#include "parallel/train/trainer.h"

namespace penstock::testing {

struct LoopRun {
  const Model* model = nullptr;
  SourceMaker source;
  Index pp = 1, micro_batches = 1, micro_batch = 1;
  std::string schedule = "1f1b";
  TrainerOptions options;
  bool resume = false;   // from the newest checkpoint in the options' directory
  Index stop_after = 0;  // a rank asks to stop in this step; 0: none does
  SourceMaker evaluation = {};
  Index evaluation_batches = 0;
  OptimizerMaker optimizer = {};
};

struct LoopOutcome {
  std::vector<StepRecord> steps;
  std::vector<EvalRecord> evaluations;
  std::vector<CheckpointRecord> checkpoints;
  std::vector<std::string> warnings;
  RunSummary summary;  // of rank 0
  Values weights, moments;
  Index updates = 0;
};

/// Throws what the loop throws.
LoopOutcome run_loop(const LoopRun& run);

}  // namespace penstock::testing
