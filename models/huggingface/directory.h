// A Hugging Face directory: config.json and weights in safetensors, one file or shards with an index.
#pragma once

#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/safetensors.h"
#include "models/config.h"
#include "models/huggingface/family.h"
#include "nn/weight_source.h"

namespace penstock {

class HuggingFaceDirectory final : public WeightSource {
 public:
  /// Whether the directory has a config.json and no manifest.json of a Penstock checkpoint.
  static bool is_one(const std::filesystem::path& path);

  /// Reads config.json, the index and the headers of the weight files, which are mapped. Throws ValueError
  /// for a family or an option that our blocks do not compute; IoError for a file that is missing or damaged,
  /// an index that does not match its files, a tensor that is missing, surplus, of another shape or of a type
  /// that is no floating-point type of at most 32 bits, and for a stored head that differs from the table
  /// that it is tied to.
  static HuggingFaceDirectory open(const std::filesystem::path& path);

  const ModelConfig& config() const { return config_; }
  const std::filesystem::path& path() const { return path_; }

  /// Values are converted to fp32, which holds those of bf16 and fp16 exactly.
  void load_weights(const Model& model, WeightStore& weights) const override;

 private:
  struct Stored {
    const SafetensorsEntry* entry = nullptr;
    const SafetensorsFile* file = nullptr;
  };

  void open_files();
  void open_shards(const std::filesystem::path& index);
  void assign(const HuggingFaceFamily& family, const Model& model);
  void check_head(const Model& model, const Stored& head) const;

  std::filesystem::path path_;
  ModelConfig config_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, Stored> parameters_;  // by the model's names
};

}  // namespace penstock
