// config.json of LLaMA and its descendants: what differs between them is which options they have and what an
// absent key means (transformers' configuration classes).
#include <algorithm>

#include "models/huggingface/family.h"

namespace penstock {
namespace {

/// Rotary positions, in the older form (rope_theta, rope_scaling) or the newer one (rope_parameters).
ops::RopeOptions read_rope(const ConfigReader& c) {
  ops::RopeOptions rope;
  rope.theta = c.positive("rope_theta", 10000);
  const bool newer = c.has("rope_parameters");
  if (newer && c.has("rope_scaling"))
    c.refuse("rope_scaling", "stands beside rope_parameters; one of them is wanted");
  if (!newer && !c.has("rope_scaling")) return rope;
  const ConfigReader r = c.below(newer ? "rope_parameters" : "rope_scaling");
  const double theta = r.positive("rope_theta", rope.theta);
  if (c.has("rope_theta") && theta != rope.theta)
    r.refuse("rope_theta", fmt::format("contradicts rope_theta {} beside it", rope.theta));
  rope.theta = theta;
  r.only("partial_rotary_factor", {nullptr, 1});
  const std::string key = r.has("rope_type") || !r.has("type") ? "rope_type" : "type";
  const std::string type = r.text(key, "default");
  const auto wanted = [&](const char* name) {
    if (!r.has(name)) r.refuse(name, fmt::format("a {} of {} needs it", key, type));
    return r.positive(name, 1);
  };
  if (type == "default") return rope;
  if (type == "linear") {
    rope.scaling = ops::RopeScaling::linear;
    rope.factor = wanted("factor");
  } else if (type == "llama3") {
    rope.scaling = ops::RopeScaling::llama3;
    rope.factor = wanted("factor");
    rope.low_frequency = wanted("low_freq_factor");
    rope.high_frequency = wanted("high_freq_factor");
    rope.original_positions = r.size("original_max_position_embeddings");
  } else {
    r.refuse(key, "this scaling is not supported; one of default, linear, llama3 is wanted");
  }
  return rope;
}

void read_common(const ConfigReader& c, ModelConfig& model) {
  model.family = ModelFamily::llama;
  LlamaConfig& l = model.llama;
  l.layers = c.size("num_hidden_layers", largest_layer_count);
  l.hidden = c.size("hidden_size");
  l.heads = c.size("num_attention_heads");
  l.head_size = c.size_or("head_dim", 0);
  l.ffn = c.size("intermediate_size");
  l.vocabulary = c.size("vocab_size");
  l.positions = c.size("max_position_embeddings");
  l.rms_norm_eps = static_cast<float>(c.positive("rms_norm_eps", 1e-6));
  l.tied_embeddings = c.truth("tie_word_embeddings", false);
  l.rope = read_rope(c);
  c.only("hidden_act", {"silu", "swish"});
  if (l.head_size == 0 && l.hidden % l.heads != 0)
    c.refuse("hidden_size", fmt::format("does not divide into num_attention_heads {}", l.heads));
}

void check_kv_heads(const ConfigReader& c, const LlamaConfig& l) {
  if (l.kv_heads > l.heads || l.heads % l.kv_heads != 0)
    c.refuse("num_key_value_heads", fmt::format("does not divide num_attention_heads {}", l.heads));
}

/// The window of layers that are all alike: `window` where they slide, 0 where they see everything. `slides`
/// says what an absent layer_types means.
Index window_of_all_layers(const ConfigReader& c, const LlamaConfig& l, Index window, bool slides) {
  if (!c.has("layer_types")) return slides ? window : 0;
  const std::vector<std::string> types = c.texts("layer_types");
  const auto count = [&](const char* type) { return std::count(types.begin(), types.end(), type); };
  if (static_cast<Index>(types.size()) != l.layers)
    c.refuse("layer_types", fmt::format("one for each of num_hidden_layers {} is wanted", l.layers));
  if (count("full_attention") == l.layers) return 0;
  if (count("sliding_attention") != l.layers || window == 0)
    c.refuse("layer_types", "layers of different attention are not supported");
  return window;
}

/// Qwen's windows are off unless use_sliding_window, and then begin at layer max_window_layers.
Index read_qwen_window(const ConfigReader& c, const LlamaConfig& l) {
  if (!c.truth("use_sliding_window", false)) return window_of_all_layers(c, l, 0, false);
  const Index window = c.size_or("sliding_window", 4096);
  if (c.has("layer_types")) return window_of_all_layers(c, l, window, true);
  c.only("max_window_layers", {0});
  if (!c.has("max_window_layers")) c.refuse("max_window_layers", "use_sliding_window needs it");
  return window;
}

}  // namespace

void read_llama_config(const ConfigReader& c, ModelConfig& model) {
  read_common(c, model);
  LlamaConfig& l = model.llama;
  l.kv_heads = c.size_or("num_key_value_heads", l.heads);
  check_kv_heads(c, l);
  l.qkv_bias = l.output_bias = c.truth("attention_bias", false);
  l.ffn_bias = c.truth("mlp_bias", false);
  c.only("sliding_window", {nullptr});
  window_of_all_layers(c, l, 0, false);
}

void read_mistral_config(const ConfigReader& c, ModelConfig& model) {
  read_common(c, model);
  LlamaConfig& l = model.llama;
  l.kv_heads = c.size("num_key_value_heads");
  check_kv_heads(c, l);
  c.only("attention_bias", {false});
  c.only("mlp_bias", {false});
  if (!c.mentions("sliding_window"))
    c.refuse("sliding_window", "null or an integer is wanted: programs differ in what its absence means");
  l.window = window_of_all_layers(c, l, c.size_or("sliding_window", 0), true);
}

void read_qwen2_config(const ConfigReader& c, ModelConfig& model) {
  read_common(c, model);
  LlamaConfig& l = model.llama;
  l.kv_heads = c.size("num_key_value_heads");
  check_kv_heads(c, l);
  l.qkv_bias = true;
  c.only("attention_bias", {true});
  c.only("mlp_bias", {false});
  l.window = read_qwen_window(c, l);
}

void read_qwen3_config(const ConfigReader& c, ModelConfig& model) {
  read_common(c, model);
  LlamaConfig& l = model.llama;
  l.head_size = c.size("head_dim");
  l.kv_heads = c.size("num_key_value_heads");
  check_kv_heads(c, l);
  l.qkv_bias = l.output_bias = c.truth("attention_bias", false);
  l.qk_norm = true;
  c.only("mlp_bias", {false});
  l.window = read_qwen_window(c, l);
}

}  // namespace penstock
