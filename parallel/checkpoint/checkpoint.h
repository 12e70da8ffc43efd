// Checkpoints: a directory a step, safetensors keyed by full parameter name, and a JSON manifest. A
// checkpoint is complete or not there: it is written under a temporary name and published by one rename.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "nn/weight_source.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/runtime/training_step.h"

namespace penstock {

/// What a checkpoint says of its run besides tensors.
struct CheckpointInfo {
  nlohmann::json model;      ///< ModelConfig's form
  nlohmann::json optimizer;  ///< {"name", ...settings}
  nlohmann::json data;       ///< {"tokens", "hash", "order", "batch", "sequence_length"}
  nlohmann::json plan;       ///< {"schedule", "pp", "micro_batches", "partition"}
  std::string tokenizer;     ///< --tokenizer
  std::uint64_t seed = 0;
  Index step = 0;
  Index updates = 0;
};

/// "step-00000010"
std::string checkpoint_name(Index step);

/// Steps of the complete checkpoints in a directory, ascending; empty when there is none or no directory.
std::vector<Index> list_checkpoints(const std::filesystem::path& directory);

/// Writes DIRECTORY/step-N with the values and optimizer state of all ranks; returns its path on every rank.
/// Collective. Throws IoError on every rank when one of them fails; what was there before stays as it was.
std::filesystem::path save_checkpoint(const std::filesystem::path& directory, const CheckpointInfo& info,
                                      TrainingStep& training, Communicator& world);

/// Removes the oldest complete checkpoints but the newest `keep` (0: none is removed).
void keep_newest(const std::filesystem::path& directory, Index keep);
/// Removes what interrupted saves left behind.
void clear_unfinished(const std::filesystem::path& directory);

/// An opened checkpoint.
class Checkpoint final : public WeightSource {
 public:
  /// `path` is a step's directory or the directory of steps (then the newest). Checks manifest, files and
  /// their sizes; throws IoError naming what is missing or damaged.
  static Checkpoint open(const std::filesystem::path& path);

  const CheckpointInfo& info() const { return info_; }
  const std::filesystem::path& path() const { return path_; }

  /// Reads the values of the store's blocks; throws IoError for a tensor that is missing or of another shape.
  void load_weights(const Model& model, WeightStore& weights) const override;
  /// The optimizer's buffers too. One of which the checkpoint has nothing at all stays as it is.
  void load_optimizer(const Model& model, const Optimizer& optimizer, WeightStore& weights) const;

 private:
  void load(const std::string& name, const Shape& shape, Tensor target) const;

  std::filesystem::path path_;
  CheckpointInfo info_;
  nlohmann::json tensors_;
};

}  // namespace penstock
