// TOML to ModelOverrides.
#include "apps/common/model_file.h"

#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "apps/common/value.h"
#include "core/file.h"
#include "parallel/pipeline/schedule/nearest.h"

namespace penstock {
namespace {

/// What a key does with its value; throws ValueError with a message that continues "KEY VALUE: ".
using Setter = std::function<void(const toml::node& node)>;

template <class T, class Value>
void set_checked(T& target, const Value* value, const Range<T>& range, const char* type) {
  require<ValueError>(value != nullptr, "{} is wanted", type);
  require<ValueError>(range.contains(value->get()), "allowed is {}", to_text(range));
  target = value->get();
}

Setter integer(std::optional<Index>& target, Index low, Index high = model_limits::ids) {
  return [&target, low, high](const toml::node& node) {
    set_checked(target.emplace(), node.as_integer(), between(low, high), "an integer");
  };
}

Setter number(std::optional<double>& target, const NumberRange& range) {
  return [&target, range](const toml::node& node) {
    if (const auto* whole = node.as_integer()) {
      const toml::value<double> value(static_cast<double>(whole->get()));
      return set_checked(target.emplace(), &value, range, "a number");
    }
    set_checked(target.emplace(), node.as_floating_point(), range, "a number");
  };
}

Setter truth(std::optional<bool>& target) {
  return [&target](const toml::node& node) {
    require<ValueError>(node.is_boolean(), "true or false is wanted");
    target = node.as_boolean()->get();
  };
}

Setter word(std::optional<std::string>& target, std::vector<std::string> words) {
  return [&target, words = std::move(words)](const toml::node& node) {
    require<ValueError>(
        node.is_string() && std::find(words.begin(), words.end(), node.as_string()->get()) != words.end(),
        "one of {} is wanted, as a text", fmt::join(words, ", "));
    target = node.as_string()->get();
  };
}

std::map<std::string, Setter> setters(std::optional<std::string>& base, ModelOverrides& o) {
  const Setter later = [](const toml::node&) { throw ValueError("is not yet built; leave it out"); };
  const NumberRange positive = more_than(0.0);
  return {{"model", word(base, model_names())},
          {"layers", integer(o.layers, 1, model_limits::layers)},
          {"hidden", integer(o.hidden, 1, model_limits::width)},
          {"heads", integer(o.heads, 1, model_limits::width)},
          {"kv-heads", integer(o.kv_heads, 1, model_limits::width)},
          {"head-size", integer(o.head_size, 1, model_limits::width)},
          {"ffn", integer(o.ffn, 1, model_limits::ffn)},
          {"vocab", integer(o.vocabulary, 1)},
          {"seq-len", integer(o.sequence_length, 1)},
          {"dropout", number(o.dropout, from_below(0.0, 1.0))},
          {"tied-embeddings", truth(o.tied_embeddings)},
          {"norm-eps", number(o.norm_eps, positive)},
          {"window", integer(o.window, 0)},
          {"qkv-bias", truth(o.qkv_bias)},
          {"output-bias", truth(o.output_bias)},
          {"ffn-bias", truth(o.ffn_bias)},
          {"qk-norm", truth(o.qk_norm)},
          {"rope-theta", number(o.rope_theta, positive)},
          {"rope-scaling", word(o.rope_scaling, {"none", "linear", "llama3"})},
          {"rope-factor", number(o.rope_factor, positive)},
          {"rope-low-frequency", number(o.rope_low_frequency, positive)},
          {"rope-high-frequency", number(o.rope_high_frequency, positive)},
          {"rope-original-positions", integer(o.rope_original_positions, 1)},
          {"experts", later},
          {"experts-per-token", later}};
}

std::string text_of(const toml::node& node) {
  std::ostringstream out;
  node.visit([&](const auto& value) { out << value; });
  std::string text = out.str();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

ModelFile read_model_file(const std::string& path) {
  toml::table table;
  try {
    table = toml::parse(MappedFile(path).text(), path);
  } catch (const toml::parse_error& error) {
    throw ValueError("{}, line {}: {}", path, error.source().begin.line, error.description());
  }
  ModelFile file;
  std::optional<std::string> base;
  const std::map<std::string, Setter> known = setters(base, file.overrides);
  std::set<std::string> seen;
  for (const auto& [written, node] : table) {
    const std::string where = fmt::format("{}, line {}", path, node.source().begin.line);
    std::string key(written.str());
    std::replace(key.begin(), key.end(), '_', '-');
    const auto setter = known.find(key);
    if (setter == known.end()) {
      std::vector<std::string_view> names;
      for (const auto& [name, set] : known) names.push_back(name);
      throw ValueError("{}: {}: no such key of a model; the nearest is {}", where, written.str(),
                       nearest_name(key, names));
    }
    require<ValueError>(seen.insert(key).second, "{}: {} stands there twice", where, key);
    try {
      setter->second(node);
    } catch (Error& e) {
      e.add_context(fmt::format("{}: {} {}", where, key, text_of(node)));
      throw;
    }
  }
  if (base) file.base = *base;
  return file;
}

ModelConfig choose_named_model(const std::string& model, const ModelOverrides& overrides,
                               Index follows_vocabulary) {
  ModelFile file;
  const bool is_file = model.ends_with(".toml");
  if (is_file) {
    try {
      file = read_model_file(model);
    } catch (Error& e) {
      e.add_context("--model");
      throw;
    }
  } else {
    file.base = model;
  }
  file.overrides.override_with(overrides);
  if (!file.overrides.vocabulary && follows_vocabulary > 0) file.overrides.vocabulary = follows_vocabulary;
  if (!is_file) return configure_model(model, file.overrides);
  try {
    ModelConfig config = configure_model(file.base, file.overrides);
    config.name = std::filesystem::path(model).stem().string();
    return config;
  } catch (Error& e) {
    e.add_context("--model " + model);
    throw;
  }
}

}  // namespace penstock
