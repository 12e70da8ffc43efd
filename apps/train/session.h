// Session: what every rank makes of the settings before training starts: data, model, layout, plan. Nothing
// is written and no tensor is allocated; everything that is wrong with the input is found here.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "apps/common/source_directory.h"
#include "apps/train/settings.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/mesh/mesh.h"
#include "parallel/train/token_batches.h"

namespace penstock {

struct Session {
  ModelConfig model_config;
  Model model;
  Index sequence_length = 0;
  Index micro_batch = 1;
  MeshShape layout;
  Plan plan;  ///< lowered, with REDUCE_GRAD and STEP
  Partition partition;
  std::vector<Recompute> recompute;  ///< for each block
  DType compute = DType::f32;
  double weight_decay = 0;
  std::unique_ptr<TokenBatches> batches;
  std::unique_ptr<EvaluationBatches> evaluation;  ///< null: none
  Index eval_batches = 0;
  std::unique_ptr<Optimizer> optimizer;
  CheckpointInfo checkpoint_info;
  std::string data_seen;  ///< size and hash of the data, for people: what all ranks must find alike
  std::optional<Checkpoint> resume;
  std::optional<SourceDirectory> init_from;
  std::string tokenizer;  ///< "byte", or a file in the directory of --init-from

  TrainingSetup training_setup() const;
};

/// For a job of `ranks` ranks. Throws ValueError, ShapeError or IoError naming flag or file, value and rule.
std::unique_ptr<Session> prepare(const TrainSettings& settings, int ranks);

}  // namespace penstock
