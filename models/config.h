// Which model: a bundled preset with overrides, as flags, TOML files and checkpoints describe it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "models/gpt2.h"
#include "models/llama.h"

namespace penstock {

/// What --model and its overrides say; an absent one keeps the preset's value. Flags and keys of a model's
/// file have these names in kebab case; vocabulary and sequence_length are --vocab and --seq-len.
struct ModelOverrides {
  std::optional<Index> layers = {}, hidden = {}, heads = {}, kv_heads = {}, ffn = {}, vocabulary = {},
                       sequence_length = {};
  std::optional<double> dropout = {};
  std::optional<bool> tied_embeddings = {};
  std::optional<double> norm_eps = {};
  // Of the LLaMA family alone.
  std::optional<Index> head_size = {}, window = {};
  std::optional<bool> qkv_bias = {}, output_bias = {}, ffn_bias = {}, qk_norm = {};
  std::optional<double> rope_theta = {}, rope_factor = {}, rope_low_frequency = {}, rope_high_frequency = {};
  std::optional<Index> rope_original_positions = {};
  std::optional<std::string> rope_scaling = {};  ///< none, linear, llama3

  /// Those of `over` where it says something.
  void override_with(const ModelOverrides& over);
};

enum class ModelFamily : std::uint8_t { gpt2, llama };

struct ModelConfig {
  std::string name;        ///< of the preset
  Gpt2Config gpt2 = {};    ///< counts where the family is gpt2
  LlamaConfig llama = {};  ///< counts where the family is llama
  ModelFamily family = ModelFamily::gpt2;

  /// Positions: the default, and the most, for --seq-len.
  Index sequence_length() const;
  Index vocabulary() const;
  Index layers() const;
  Index hidden() const;
  Index heads() const;
  Index kv_heads() const;
  Index ffn() const;  ///< width of the feed-forward layer
  float dropout() const;
  void set_dropout(float probability);
  bool tied_embeddings() const;

  /// Throws ValueError for sizes that do not fit.
  Model build() const;
  nlohmann::json to_json() const;
  /// Throws ValueError naming what is missing or wrong; `where` begins the message.
  static ModelConfig from_json(const nlohmann::json& json, const std::string& where);
};

/// Names that --model knows.
std::vector<std::string> model_names();

/// Throws ValueError, naming the flag, for an unknown name, one whose family is not yet built, options that
/// its family does not have, or values that contradict.
ModelConfig configure_model(const std::string& name, const ModelOverrides& overrides);

}  // namespace penstock
