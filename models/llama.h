// LLaMA-style models (Touvron et al., 2023): RMS norms, rotary positions, grouped-query attention, SwiGLU.
#pragma once

#include <string>
#include <vector>

#include "autograd/ops/rope.h"
#include "nn/model.h"

namespace penstock {

struct LlamaConfig {
  Index layers = 4, hidden = 128, heads = 4;
  Index kv_heads = 0;   ///< 0: as many as heads
  Index head_size = 0;  ///< 0: hidden / heads; may differ from it
  Index ffn = 344;
  Index vocabulary = 256, positions = 128;  ///< positions: the longest sequence
  float dropout = 0.0f;                     ///< of the two residual branches
  float rms_norm_eps = 1e-5f;
  float deviation = 0.02f;  ///< of initial weights; residual projections have deviation / sqrt(2 layers)
  bool tied_embeddings = false;
  bool qkv_bias = false, output_bias = false, ffn_bias = false;
  bool qk_norm = false;  ///< RMS norms of each head's queries and keys, before they are turned
  Index window = 0;      ///< 0: none; else the positions that attention looks back over, its own among them
  ops::RopeOptions rope = {};

  Index kv_head_count() const { return kv_heads ? kv_heads : heads; }
  Index head_width() const { return head_size ? head_size : hidden / heads; }
};

/// Names: llama-tiny (4 layers of 128, 4 heads, 2 key/value heads, 128 positions).
const std::vector<std::string>& llama_preset_names();
/// Throws ValueError for an unknown name.
LlamaConfig llama_preset(const std::string& name);

/// Blocks: embedding, layers, final norm and head. Inputs: token ids (B, T) int32; targets (B, T) int32; the
/// loss is cross- entropy. Parameters are named as in Hugging Face's LlamaForCausalLM, projections are (out,
/// in); q and k norms as Qwen3's. Throws ValueError for sizes that do not fit.
Model make_llama(const std::string& name, const LlamaConfig& config);

}  // namespace penstock
