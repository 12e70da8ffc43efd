// open_source and what belongs to it.
#include "apps/common/source_directory.h"

#include <algorithm>

#include "models/huggingface/directory.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// Runs `open`, and puts the flag in front of what it throws.
template <class Open>
auto with_flag(const std::string& flag, Open&& open) {
  try {
    return open();
  } catch (Error& e) {
    e.add_context("--" + flag);
    throw;
  }
}

/// The tokenizer's file in a Hugging Face directory, else "byte".
std::string tokenizer_in(const fs::path& directory) {
  std::error_code error;
  for (const char* name : {"tokenizer.json", "vocab.json", "tokenizer.model"})
    if (fs::exists(directory / name, error)) return (directory / name).string();
  return "byte";
}

}  // namespace

SourceDirectory open_source(const std::string& flag, const std::string& directory) {
  return with_flag(flag, [&]() -> SourceDirectory {
    if (HuggingFaceDirectory::is_one(directory)) {
      auto opened = std::make_shared<HuggingFaceDirectory>(HuggingFaceDirectory::open(directory));
      return {directory, opened->config(), tokenizer_in(directory), opened};
    }
    std::error_code error;
    require<IoError>(
        !fs::is_directory(directory, error) || fs::exists(fs::path(directory) / "manifest.json", error) ||
            !list_checkpoints(directory).empty(),
        "{}: holds neither a complete Penstock checkpoint (manifest.json, or step-N directories with "
        "one) nor a Hugging Face model (config.json)",
        directory);
    auto checkpoint = std::make_shared<Checkpoint>(Checkpoint::open(directory));
    const std::string path = checkpoint->path().string();
    return {path, ModelConfig::from_json(checkpoint->info().model, path), checkpoint->info().tokenizer,
            checkpoint};
  });
}

Checkpoint open_checkpoint(const std::string& flag, const std::string& directory) {
  return with_flag(flag, [&] { return Checkpoint::open(directory); });
}

bool all_token_files(const std::vector<std::string>& paths) {
  return std::all_of(paths.begin(), paths.end(),
                     [](const std::string& path) { return fs::path(path).extension() == ".bin"; });
}

std::unique_ptr<Tokenizer> tokenizer_of_data(const std::string& tokenizer,
                                             const std::vector<std::string>& data) {
  if (tokenizer != "byte" && all_token_files(data)) return nullptr;
  return load_tokenizer(tokenizer);
}

}  // namespace penstock
