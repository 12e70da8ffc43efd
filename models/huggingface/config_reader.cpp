// ConfigReader.
#include "models/huggingface/config_reader.h"

#include <fmt/ranges.h>

#include <cmath>

#include "core/error.h"

namespace penstock {

ConfigReader::ConfigReader(nlohmann::json object, std::string where)
    : object_(std::move(object)), where_(std::move(where)) {
  require<ValueError>(object_.is_object(), "{}: is no JSON object", where_);
}

const nlohmann::json* ConfigReader::find(const std::string& key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::has(const std::string& key) const { return find(key) != nullptr; }

void ConfigReader::refuse(const std::string& key, const std::string& why) const {
  const auto found = object_.find(key);
  const std::string value = found == object_.end() ? "is missing" : found->dump();
  throw ValueError("{}: {}{} {}: {}", where_, path_, key, value, why);
}

Index ConfigReader::size(const std::string& key, Index largest) const {
  const nlohmann::json* value = find(key);
  const bool good = value && value->is_number_integer() && *value >= 1 && *value <= largest;
  if (!good) refuse(key, fmt::format("an integer of 1 to {} is wanted", largest));
  return value->get<Index>();
}

Index ConfigReader::size_or(const std::string& key, Index fallback, Index largest) const {
  return has(key) ? size(key, largest) : fallback;
}

double ConfigReader::positive(const std::string& key, double fallback) const {
  const nlohmann::json* value = find(key);
  if (!value) return fallback;
  if (!value->is_number() || !(value->get<double>() > 0) || !std::isfinite(value->get<double>()))
    refuse(key, "a number of more than 0 is wanted");
  return value->get<double>();
}

bool ConfigReader::truth(const std::string& key, bool fallback) const {
  const nlohmann::json* value = find(key);
  if (value && !value->is_boolean()) refuse(key, "true or false is wanted");
  return value ? value->get<bool>() : fallback;
}

std::string ConfigReader::text(const std::string& key, const std::string& fallback) const {
  const nlohmann::json* value = find(key);
  if (value && !value->is_string()) refuse(key, "a text is wanted");
  return value ? value->get<std::string>() : fallback;
}

std::vector<std::string> ConfigReader::texts(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (!value) return {};
  std::vector<std::string> result;
  if (!value->is_array()) refuse(key, "an array of texts is wanted");
  for (const nlohmann::json& item : *value) {
    if (!item.is_string()) refuse(key, "an array of texts is wanted");
    result.push_back(item.get<std::string>());
  }
  return result;
}

void ConfigReader::only(const std::string& key, std::initializer_list<nlohmann::json> allowed) const {
  const auto found = object_.find(key);
  if (found == object_.end() || std::find(allowed.begin(), allowed.end(), *found) != allowed.end()) return;
  std::vector<std::string> words;
  for (const nlohmann::json& value : allowed) words.push_back(value.dump());
  refuse(key, fmt::format("this would change the result and is not supported; allowed is {}",
                          fmt::join(words, " or ")));
}

ConfigReader ConfigReader::below(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (!value || !value->is_object()) refuse(key, "an object is wanted");
  ConfigReader reader(*value, where_);
  reader.path_ = path_ + key + ".";
  return reader;
}

}  // namespace penstock
