// ModelConfig: presets, overrides, JSON.
#include "models/config.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace penstock {

std::vector<std::string> model_names() { return gpt2_preset_names(); }

ModelConfig configure_model(const std::string& name, const ModelOverrides& o) {
  for (const char* later : {"llama-tiny", "moe-tiny"})
    require<ValueError>(name != later, "--model {}: this family is not yet built; one of {}", name, fmt::join(model_names(), ", "));
  const std::vector<std::string> names = model_names();
  require<ValueError>(std::find(names.begin(), names.end(), name) != names.end(), "--model {}: no such model; one of {}", name,
                      fmt::join(names, ", "));
  ModelConfig config{name, gpt2_preset(name)};
  Gpt2Config& c = config.gpt2;
  if (o.layers) c.layers = *o.layers;
  if (o.hidden) c.hidden = *o.hidden;
  if (o.heads) c.heads = *o.heads;
  if (o.ffn) c.ffn = *o.ffn;
  if (o.vocabulary) c.vocabulary = *o.vocabulary;
  if (o.sequence_length) c.positions = *o.sequence_length;
  if (o.dropout) c.dropout = static_cast<float>(*o.dropout);
  if (o.tied_embeddings) c.tied_embeddings = *o.tied_embeddings;
  require<ValueError>(!o.kv_heads || *o.kv_heads == c.heads, "--kv-heads {}: a GPT-2 has as many as heads, {}",
                      o.kv_heads.value_or(0), c.heads);
  require<ValueError>(c.hidden % c.heads == 0, "--hidden {}: does not divide into --heads {}", c.hidden, c.heads);
  return config;
}

nlohmann::json ModelConfig::to_json() const {
  return {{"name", name}, {"family", "gpt2"}, {"layers", gpt2.layers}, {"hidden", gpt2.hidden}, {"heads", gpt2.heads},
          {"ffn", gpt2.ffn_size()}, {"vocabulary", gpt2.vocabulary}, {"positions", gpt2.positions}, {"dropout", gpt2.dropout},
          {"layer_norm_eps", gpt2.layer_norm_eps}, {"tied_embeddings", gpt2.tied_embeddings}};
}

ModelConfig ModelConfig::from_json(const nlohmann::json& json, const std::string& where) {
  try {
    require<ValueError>(json.at("family") == "gpt2", "family '{}' is not yet built", json.at("family").get<std::string>());
    ModelConfig config;
    config.name = json.at("name").get<std::string>();
    Gpt2Config& c = config.gpt2;
    json.at("layers").get_to(c.layers);
    json.at("hidden").get_to(c.hidden);
    json.at("heads").get_to(c.heads);
    json.at("ffn").get_to(c.ffn);
    json.at("vocabulary").get_to(c.vocabulary);
    json.at("positions").get_to(c.positions);
    json.at("dropout").get_to(c.dropout);
    json.at("layer_norm_eps").get_to(c.layer_norm_eps);
    json.at("tied_embeddings").get_to(c.tied_embeddings);
    return config;
  } catch (const nlohmann::json::exception& e) {
    throw ValueError("{}: the model's description is damaged: {}", where, e.what());
  } catch (Error& e) {
    e.add_context(where);
    throw;
  }
}

}  // namespace penstock
