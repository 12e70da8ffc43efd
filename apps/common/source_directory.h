// The directories that --from and --init-from name: Penstock checkpoints and Hugging Face directories.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "models/config.h"
#include "parallel/checkpoint/checkpoint.h"

namespace penstock {

/// A directory that was opened: a model's shape and weights.
struct SourceDirectory {
  std::string path;  ///< of the checkpoint itself, where a directory of steps was named
  ModelConfig model = {};
  std::string tokenizer = "byte";  ///< what --tokenizer is where it is not given
  std::shared_ptr<const WeightSource> weights = {};
};

/// Opens a Penstock checkpoint (a step's directory, or the directory of steps: then the newest) or a Hugging
/// Face directory. Throws IoError or ValueError naming the flag for what is missing, damaged or not
/// supported.
SourceDirectory open_source(const std::string& flag, const std::string& directory);

/// The same for what must be a checkpoint.
Checkpoint open_checkpoint(const std::string& flag, const std::string& directory);

/// Whether every path is a token file (`.bin`), which needs no tokenizer.
bool all_token_files(const std::vector<std::string>& paths);

/// The tokenizer for reading `data`; null where it is a file, which is not yet read, and all of the data are
/// token files. Throws ValueError where it is wanted.
std::unique_ptr<Tokenizer> tokenizer_of_data(const std::string& tokenizer,
                                             const std::vector<std::string>& data);

}  // namespace penstock
