// What generation and evaluation share: a directory's model over the ranks of a forward-only pipeline.
#pragma once

#include <optional>
#include <string>

#include "apps/common/command_line.h"
#include "apps/common/source_directory.h"
#include "parallel/pipeline/runtime/executor.h"

namespace penstock {

/// Flags of both programs.
struct InferenceFlags {
  std::optional<std::string> from, tokenizer;
  std::optional<Index> pp, ranks, threads;
  std::string dtype = "fp32";
  double deadline = 300;
  bool json = false;
  std::optional<std::string> logits;

  void define(Command& root);
  void check() const;
};

/// A model with the weights of a directory, cut into one stage a rank.
class InferenceModel {
 public:
  /// Throws IoError or ValueError for a directory that holds no model that can be read, or ranks that do not
  /// fit.
  InferenceModel(const InferenceFlags& flags, int ranks);

  const ModelConfig& config() const { return config_; }
  /// Throws ValueError where the directory's tokenizer is a file, which is not yet read.
  const Tokenizer& tokenizer() const;
  /// The name of the tokenizer: "byte", or a file.
  const std::string& tokenizer_name() const { return tokenizer_name_; }
  /// Text of ids, an id that the tokenizer has not as U+FFFD; nothing where the tokenizer is not yet read.
  std::optional<std::string> text_of(std::span<const std::int32_t> ids) const;
  const Placement& placement() const { return placement_; }

  /// Loads this rank's weights. Collective only in that every rank does it.
  Executor& load(RankContext& context, Communicator& pipeline);

 private:
  SourceDirectory source_;
  ModelConfig config_;
  Model model_;
  std::string tokenizer_name_;
  std::unique_ptr<Tokenizer> tokenizer_;  // null: a file
  Placement placement_;
  Partition partition_;
  DType compute_;
  std::optional<WeightStore> weights_;
  std::optional<Executor> executor_;
};

/// The threads that were asked for, or this rank's share of the CPUs. Collective.
int inference_threads(const InferenceFlags& flags, Communicator& world, const std::string& host);

/// One tensor `logits` (T, vocabulary) in fp32. Throws IoError.
void write_logits(const std::string& path, const std::vector<float>& logits, Index vocabulary);

}  // namespace penstock
