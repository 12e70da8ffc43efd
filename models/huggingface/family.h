// The families of Hugging Face directories that are read: how each one's config.json becomes a ModelConfig,
// and what its files call the tensors. A new family is one more record in family.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/config.h"
#include "models/huggingface/config_reader.h"

namespace penstock {

struct HuggingFaceFamily {
  std::string model_type;                  ///< as config.json names it
  std::vector<std::string> architectures;  ///< classes whose files hold this model
  /// Prefix of the base model's tensors; files that were written from the base model alone leave it out.
  std::string base;
  /// Endings of names of buffers, which some files hold beside the parameters: masks and frequencies that
  /// follow from the sizes.
  std::vector<std::string> buffers;
  /// Fills family and sizes. Throws ValueError, naming file and key, for what is missing or wrong, and for an
  /// option that would change the result and that our blocks do not have.
  void (*read)(const ConfigReader& config, ModelConfig& model);

  bool is_buffer(std::string_view tensor) const;
};

/// The family that config.json is of; throws ValueError for one that is not read.
const HuggingFaceFamily& huggingface_family(const ConfigReader& config);

/// Sizes and options of a config.json; its dropout probabilities are settings of a training, and left out.
/// `where` names the file in messages. The model is named as its type. Throws ValueError, as the family's
/// `read` does.
ModelConfig read_huggingface_config(const nlohmann::json& json, const std::string& where);

/// Most layers that a config.json is believed to have.
inline constexpr Index largest_layer_count = 100'000;

/// GPT-2: n_embd, n_layer, ...
void read_gpt2_config(const ConfigReader& config, ModelConfig& model);
/// LLaMA and those of its descendants that differ in what LlamaConfig can say.
void read_llama_config(const ConfigReader& config, ModelConfig& model);
void read_mistral_config(const ConfigReader& config, ModelConfig& model);
void read_qwen2_config(const ConfigReader& config, ModelConfig& model);
void read_qwen3_config(const ConfigReader& config, ModelConfig& model);

}  // namespace penstock
