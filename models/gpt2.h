// GPT-2 (Radford et al., 2019): learned positions, pre-norm layers, GELU, head tied to the embedding.
#pragma once

#include <string>
#include <vector>

#include "nn/model.h"

namespace penstock {

struct Gpt2Config {
  Index layers = 4, hidden = 128, heads = 4;
  Index ffn = 0;  ///< 0: 4 x hidden
  Index vocabulary = 256, positions = 128;
  float dropout = 0.0f;
  float layer_norm_eps = 1e-5f;
  float deviation = 0.02f;  ///< of initial weights; residual projections have deviation / sqrt(2 layers)
  bool tied_embeddings = true;

  Index ffn_size() const { return ffn ? ffn : 4 * hidden; }
};

/// Names: gpt2-tiny (4 layers of 128, 4 heads, 128 positions), gpt2, gpt2-medium, gpt2-large, gpt2-xl, and
/// gpt3-small to gpt3-175b.
const std::vector<std::string>& gpt2_preset_names();
/// Throws ValueError for an unknown name.
Gpt2Config gpt2_preset(const std::string& name);

/// Blocks: embedding, layers, final norm and head. Inputs: token ids (B, T) int32; targets (B, T) int32; the
/// loss is cross- entropy. Parameters are named as in Hugging Face's GPT2LMHeadModel. Throws ValueError for
/// sizes that do not fit.
Model make_gpt2(const std::string& name, const Gpt2Config& config);

}  // namespace penstock
