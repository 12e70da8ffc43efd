// ModelConfig: presets, overrides, JSON.
#include "models/config.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace penstock {
namespace {

/// Calls `use` on the sizes of the family that counts.
template <class Config, class Use>
decltype(auto) of_family(Config& config, Use&& use) {
  return config.family == ModelFamily::gpt2 ? use(config.gpt2) : use(config.llama);
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const char* name_of(ops::RopeScaling scaling) {
  switch (scaling) {
    case ops::RopeScaling::linear:
      return "linear";
    case ops::RopeScaling::llama3:
      return "llama3";
    case ops::RopeScaling::none:
      break;
  }
  return "none";
}

ops::RopeScaling parse_rope_scaling(const std::string& text) {
  for (const auto scaling : {ops::RopeScaling::none, ops::RopeScaling::linear, ops::RopeScaling::llama3})
    if (text == name_of(scaling)) return scaling;
  throw ValueError("rope scaling '{}' is none of none, linear, llama3", text);
}

nlohmann::json to_json(const ops::RopeOptions& rope) {
  nlohmann::json json{{"theta", rope.theta}, {"scaling", name_of(rope.scaling)}};
  if (rope.scaling != ops::RopeScaling::none) json["factor"] = rope.factor;
  if (rope.scaling == ops::RopeScaling::llama3) {
    json["low_frequency"] = rope.low_frequency;
    json["high_frequency"] = rope.high_frequency;
    json["original_positions"] = rope.original_positions;
  }
  return json;
}

ops::RopeOptions rope_from_json(const nlohmann::json& json) {
  ops::RopeOptions rope;
  json.at("theta").get_to(rope.theta);
  rope.scaling = parse_rope_scaling(json.at("scaling").get<std::string>());
  if (rope.scaling != ops::RopeScaling::none) json.at("factor").get_to(rope.factor);
  if (rope.scaling == ops::RopeScaling::llama3) {
    json.at("low_frequency").get_to(rope.low_frequency);
    json.at("high_frequency").get_to(rope.high_frequency);
    json.at("original_positions").get_to(rope.original_positions);
  }
  return rope;
}

/// Name of an option that is given and that only the LLaMA family has; null: none.
const char* option_of_llama(const ModelOverrides& o) {
  const std::pair<bool, const char*> options[] = {
      {o.head_size.has_value(), "head-size"},
      {o.window.has_value(), "window"},
      {o.qkv_bias.has_value(), "qkv-bias"},
      {o.output_bias.has_value(), "output-bias"},
      {o.ffn_bias.has_value(), "ffn-bias"},
      {o.qk_norm.has_value(), "qk-norm"},
      {o.rope_theta.has_value(), "rope-theta"},
      {o.rope_scaling.has_value(), "rope-scaling"},
      {o.rope_factor.has_value(), "rope-factor"},
      {o.rope_low_frequency.has_value(), "rope-low-frequency"},
      {o.rope_high_frequency.has_value(), "rope-high-frequency"},
      {o.rope_original_positions.has_value(), "rope-original-positions"},
  };
  for (const auto& [given, key] : options)
    if (given) return key;
  return nullptr;
}

template <class To, class From>
void set_if(To& to, const std::optional<From>& from) {
  if (from) to = static_cast<To>(*from);
}

void apply(const ModelOverrides& o, LlamaConfig& c) {
  set_if(c.kv_heads, o.kv_heads);
  set_if(c.rms_norm_eps, o.norm_eps);
  set_if(c.head_size, o.head_size);
  set_if(c.window, o.window);
  set_if(c.qkv_bias, o.qkv_bias);
  set_if(c.output_bias, o.output_bias);
  set_if(c.ffn_bias, o.ffn_bias);
  set_if(c.qk_norm, o.qk_norm);
  set_if(c.rope.theta, o.rope_theta);
  if (o.rope_scaling) c.rope.scaling = parse_rope_scaling(*o.rope_scaling);
  set_if(c.rope.factor, o.rope_factor);
  set_if(c.rope.low_frequency, o.rope_low_frequency);
  set_if(c.rope.high_frequency, o.rope_high_frequency);
  set_if(c.rope.original_positions, o.rope_original_positions);
  const std::string scaling = name_of(c.rope.scaling);
  require<ValueError>(!o.rope_factor || c.rope.scaling != ops::RopeScaling::none,
                      "rope-factor {}: belongs to rope-scaling linear or llama3, which is {}",
                      o.rope_factor.value_or(0), scaling);
  require<ValueError>(!(o.rope_low_frequency || o.rope_high_frequency || o.rope_original_positions) ||
                          c.rope.scaling == ops::RopeScaling::llama3,
                      "rope-low-frequency, rope-high-frequency and rope-original-positions: belong to "
                      "rope-scaling llama3, which is {}",
                      scaling);
}

void check_overridden(const LlamaConfig& c) {
  require<ValueError>(c.heads >= 1 && (c.head_size || c.hidden % c.heads == 0),
                      "--hidden {}: does not divide into --heads {}", c.hidden, c.heads);
  require<ValueError>(c.kv_head_count() >= 1 && c.heads % c.kv_head_count() == 0,
                      "--kv-heads {}: does not divide --heads {}; each key/value head serves as many heads",
                      c.kv_head_count(), c.heads);
  require<ValueError>(c.head_size || c.head_width() % 2 == 0,
                      "--hidden {}: gives heads of {}; rotary positions need an even number", c.hidden,
                      c.head_width());
  ops::rope_frequencies(c.head_width(), c.rope);  // throws for what it cannot turn
}

}  // namespace

void ModelOverrides::override_with(const ModelOverrides& over) {
  const auto take = [&](auto member) {
    if (over.*member) this->*member = over.*member;
  };
  for (const auto member :
       {&ModelOverrides::layers, &ModelOverrides::hidden, &ModelOverrides::heads, &ModelOverrides::kv_heads,
        &ModelOverrides::ffn, &ModelOverrides::vocabulary, &ModelOverrides::sequence_length,
        &ModelOverrides::head_size, &ModelOverrides::window, &ModelOverrides::rope_original_positions})
    take(member);
  for (const auto member : {&ModelOverrides::dropout, &ModelOverrides::norm_eps, &ModelOverrides::rope_theta,
                            &ModelOverrides::rope_factor, &ModelOverrides::rope_low_frequency,
                            &ModelOverrides::rope_high_frequency})
    take(member);
  for (const auto member :
       {&ModelOverrides::tied_embeddings, &ModelOverrides::qkv_bias, &ModelOverrides::output_bias,
        &ModelOverrides::ffn_bias, &ModelOverrides::qk_norm})
    take(member);
  take(&ModelOverrides::rope_scaling);
}

Index ModelConfig::sequence_length() const {
  return of_family(*this, [](const auto& c) { return c.positions; });
}
Index ModelConfig::vocabulary() const {
  return of_family(*this, [](const auto& c) { return c.vocabulary; });
}
Index ModelConfig::layers() const {
  return of_family(*this, [](const auto& c) { return c.layers; });
}
Index ModelConfig::hidden() const {
  return of_family(*this, [](const auto& c) { return c.hidden; });
}
Index ModelConfig::heads() const {
  return of_family(*this, [](const auto& c) { return c.heads; });
}
Index ModelConfig::kv_heads() const {
  return family == ModelFamily::gpt2 ? gpt2.heads : llama.kv_head_count();
}
Index ModelConfig::ffn() const { return family == ModelFamily::gpt2 ? gpt2.ffn_size() : llama.ffn; }
float ModelConfig::dropout() const {
  return of_family(*this, [](const auto& c) { return c.dropout; });
}
void ModelConfig::set_dropout(float probability) {
  of_family(*this, [&](auto& c) { c.dropout = probability; });
}
bool ModelConfig::tied_embeddings() const {
  return of_family(*this, [](const auto& c) { return c.tied_embeddings; });
}

Model ModelConfig::build() const {
  return family == ModelFamily::gpt2 ? make_gpt2(name, gpt2) : make_llama(name, llama);
}

std::vector<std::string> model_names() {
  std::vector<std::string> names = gpt2_preset_names();
  names.insert(names.end(), llama_preset_names().begin(), llama_preset_names().end());
  return names;
}

ModelConfig configure_model(const std::string& name, const ModelOverrides& o) {
  require<ValueError>(name != "moe-tiny", "--model {}: this family is not yet built; one of {}", name,
                      fmt::join(model_names(), ", "));
  require<ValueError>(contains(model_names(), name), "--model {}: no such model; one of {}", name,
                      fmt::join(model_names(), ", "));
  ModelConfig config{.name = name};
  if (contains(llama_preset_names(), name)) {
    config.family = ModelFamily::llama;
    config.llama = llama_preset(name);
  } else {
    config.gpt2 = gpt2_preset(name);
  }
  of_family(config, [&](auto& c) {
    if (o.layers) c.layers = *o.layers;
    if (o.hidden) c.hidden = *o.hidden;
    if (o.heads) c.heads = *o.heads;
    if (o.ffn) c.ffn = *o.ffn;
    if (o.vocabulary) c.vocabulary = *o.vocabulary;
    if (o.sequence_length) c.positions = *o.sequence_length;
    if (o.dropout) c.dropout = static_cast<float>(*o.dropout);
    if (o.tied_embeddings) c.tied_embeddings = *o.tied_embeddings;
  });
  if (config.family == ModelFamily::llama) {
    apply(o, config.llama);
    check_overridden(config.llama);
    return config;
  }
  if (o.norm_eps) config.gpt2.layer_norm_eps = static_cast<float>(*o.norm_eps);
  if (const char* key = option_of_llama(o))
    throw ValueError("--model {}: a GPT-2 has no {}; models of the LLaMA family have", name, key);
  const Gpt2Config& c = config.gpt2;
  require<ValueError>(!o.kv_heads || *o.kv_heads == c.heads,
                      "--kv-heads {}: a GPT-2 has as many as heads, {}", o.kv_heads.value_or(0), c.heads);
  require<ValueError>(c.heads >= 1 && c.hidden % c.heads == 0, "--hidden {}: does not divide into --heads {}",
                      c.hidden, c.heads);
  return config;
}

nlohmann::json ModelConfig::to_json() const {
  nlohmann::json json{{"name", name},
                      {"layers", layers()},
                      {"hidden", hidden()},
                      {"heads", heads()},
                      {"ffn", ffn()},
                      {"vocabulary", vocabulary()},
                      {"positions", sequence_length()},
                      {"dropout", dropout()},
                      {"tied_embeddings", tied_embeddings()}};
  if (family == ModelFamily::gpt2) {
    json["family"] = "gpt2";
    json["layer_norm_eps"] = gpt2.layer_norm_eps;
    return json;
  }
  json["family"] = "llama";
  json["kv_heads"] = kv_heads();
  json["head_size"] = llama.head_width();
  json["rms_norm_eps"] = llama.rms_norm_eps;
  json["qkv_bias"] = llama.qkv_bias;
  json["output_bias"] = llama.output_bias;
  json["ffn_bias"] = llama.ffn_bias;
  json["qk_norm"] = llama.qk_norm;
  json["window"] = llama.window;
  json["rope"] = penstock::to_json(llama.rope);
  return json;
}

ModelConfig ModelConfig::from_json(const nlohmann::json& json, const std::string& where) {
  try {
    const auto family_name = json.at("family").get<std::string>();
    require<ValueError>(family_name == "gpt2" || family_name == "llama", "family '{}' is not yet built",
                        family_name);
    ModelConfig config{.name = json.at("name").get<std::string>()};
    config.family = family_name == "gpt2" ? ModelFamily::gpt2 : ModelFamily::llama;
    of_family(config, [&](auto& c) {
      json.at("layers").get_to(c.layers);
      json.at("hidden").get_to(c.hidden);
      json.at("heads").get_to(c.heads);
      json.at("ffn").get_to(c.ffn);
      json.at("vocabulary").get_to(c.vocabulary);
      json.at("positions").get_to(c.positions);
      json.at("dropout").get_to(c.dropout);
      json.at("tied_embeddings").get_to(c.tied_embeddings);
    });
    if (config.family == ModelFamily::gpt2) {
      json.at("layer_norm_eps").get_to(config.gpt2.layer_norm_eps);
      return config;
    }
    LlamaConfig& c = config.llama;
    json.at("kv_heads").get_to(c.kv_heads);
    json.at("head_size").get_to(c.head_size);
    json.at("rms_norm_eps").get_to(c.rms_norm_eps);
    json.at("qkv_bias").get_to(c.qkv_bias);
    json.at("output_bias").get_to(c.output_bias);
    json.at("ffn_bias").get_to(c.ffn_bias);
    json.at("qk_norm").get_to(c.qk_norm);
    json.at("window").get_to(c.window);
    c.rope = rope_from_json(json.at("rope"));
    return config;
  } catch (const nlohmann::json::exception& e) {
    throw ValueError("{}: the model's description is damaged: {}", where, e.what());
  } catch (Error& e) {
    e.add_context(where);
    throw;
  }
}

}  // namespace penstock
