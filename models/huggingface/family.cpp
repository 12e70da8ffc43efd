// The table of families, and GPT-2's config.json.
#include "models/huggingface/family.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace penstock {
namespace {

HuggingFaceFamily llama_like(const std::string& type, const std::string& name,
                             void (*read)(const ConfigReader&, ModelConfig&)) {
  return {type, {name + "ForCausalLM", name + "Model"}, "model.", {".rotary_emb.inv_freq"}, read};
}

const std::vector<HuggingFaceFamily>& families() {
  static const std::vector<HuggingFaceFamily> all{
      {"gpt2",
       {"GPT2LMHeadModel", "GPT2Model"},
       "transformer.",
       {".attn.bias", ".attn.masked_bias"},
       read_gpt2_config},
      llama_like("llama", "Llama", read_llama_config),
      llama_like("mistral", "Mistral", read_mistral_config),
      llama_like("qwen2", "Qwen2", read_qwen2_config),
      llama_like("qwen3", "Qwen3", read_qwen3_config),
  };
  return all;
}

/// Options that no family has in the form that our blocks compute.
void refuse_foreign_options(const ConfigReader& c) {
  c.only("quantization_config", {nullptr});
  c.only("is_encoder_decoder", {false});
  c.only("add_cross_attention", {false});
  c.only("pruned_heads", {nullptr, nlohmann::json::object()});
  c.only("attn_logit_softcapping", {nullptr});
  c.only("final_logit_softcapping", {nullptr});
  c.only("partial_rotary_factor", {nullptr, 1});
  c.only("rope_interleaved", {false});
  c.only("use_mrope", {false});
}

}  // namespace

bool HuggingFaceFamily::is_buffer(std::string_view tensor) const {
  return std::any_of(buffers.begin(), buffers.end(),
                     [&](const std::string& ending) { return tensor.ends_with(ending); });
}

const HuggingFaceFamily& huggingface_family(const ConfigReader& config) {
  std::vector<std::string> types;
  for (const HuggingFaceFamily& family : families()) types.push_back(family.model_type);
  const std::string known = fmt::format("one of {} is wanted", fmt::join(types, ", "));
  if (!config.has("model_type")) config.refuse("model_type", known);
  const std::string type = config.text("model_type", "");
  for (const HuggingFaceFamily& family : families()) {
    if (family.model_type != type) continue;
    for (const std::string& name : config.texts("architectures"))
      if (std::find(family.architectures.begin(), family.architectures.end(), name) ==
          family.architectures.end())
        config.refuse("architectures", fmt::format("of model type {} are read: {}", type,
                                                   fmt::join(family.architectures, ", ")));
    return family;
  }
  config.refuse("model_type", "this family is not read; " + known);
}

ModelConfig read_huggingface_config(const nlohmann::json& json, const std::string& where) {
  const ConfigReader config(json, where);
  const HuggingFaceFamily& family = huggingface_family(config);
  refuse_foreign_options(config);
  ModelConfig model{.name = family.model_type};
  family.read(config, model);
  return model;
}

void read_gpt2_config(const ConfigReader& c, ModelConfig& model) {
  model.family = ModelFamily::gpt2;
  Gpt2Config& g = model.gpt2;
  g.layers = c.size("n_layer", largest_layer_count);
  g.hidden = c.size("n_embd");
  g.heads = c.size("n_head");
  g.ffn = c.size_or("n_inner", 0);
  g.vocabulary = c.size("vocab_size");
  g.positions = c.has("n_positions") || !c.has("n_ctx") ? c.size("n_positions") : c.size("n_ctx");
  g.layer_norm_eps = static_cast<float>(c.positive("layer_norm_epsilon", 1e-5));
  g.tied_embeddings = c.truth("tie_word_embeddings", true);
  if (g.hidden % g.heads != 0) c.refuse("n_embd", fmt::format("does not divide into n_head {}", g.heads));
  c.only("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  c.only("scale_attn_weights", {true});
  c.only("scale_attn_by_inverse_layer_idx", {false});
  c.only("reorder_and_upcast_attn", {false});
}

}  // namespace penstock
