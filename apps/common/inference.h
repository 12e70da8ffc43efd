// What generation and evaluation share: a checkpoint's model over the ranks of a forward-only pipeline.
#pragma once

#include <optional>
#include <string>

#include "apps/common/command_line.h"
#include "data/tokenizer/tokenizer.h"
#include "models/config.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/pipeline/runtime/executor.h"

namespace penstock {

/// Flags of both programs.
struct InferenceFlags {
  std::optional<std::string> from, tokenizer;
  std::optional<Index> pp, ranks, threads;
  double deadline = 300;
  bool json = false;
  std::optional<std::string> logits;

  void define(Command& root);
  void check() const;
};

/// A model with the weights of a checkpoint, cut into one stage a rank.
class InferenceModel {
 public:
  /// Throws IoError or ValueError for a directory that holds no checkpoint, or ranks that do not fit.
  InferenceModel(const InferenceFlags& flags, int ranks);

  const ModelConfig& config() const { return config_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const Placement& placement() const { return placement_; }

  /// Loads this rank's weights. Collective only in that every rank does it.
  Executor& load(RankContext& context, Communicator& pipeline);

 private:
  Checkpoint checkpoint_;
  ModelConfig config_;
  Model model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Placement placement_;
  Partition partition_;
  std::optional<WeightStore> weights_;
  std::optional<Executor> executor_;
};

/// The threads that were asked for, or this rank's share of the CPUs. Collective.
int inference_threads(const InferenceFlags& flags, Communicator& world, const std::string& host);

/// One tensor `logits` (T, vocabulary) in fp32. Throws IoError.
void write_logits(const std::string& path, const std::vector<float>& logits, Index vocabulary);

}  // namespace penstock
