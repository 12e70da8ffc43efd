// ConfigReader: what a config.json says, key by key, with messages that name file, key, value and what is
// allowed.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/shape.h"

namespace penstock {

class ConfigReader {
 public:
  /// Largest size that is believed: more is a damaged file.
  static constexpr Index most = (Index{1} << 31) - 1;

  /// `where` begins the messages. Throws ValueError unless `object` is one.
  ConfigReader(nlohmann::json object, std::string where);

  /// Whether the key is there and not null.
  bool has(const std::string& key) const;
  /// Whether the key is there, perhaps null.
  bool mentions(const std::string& key) const { return object_.contains(key); }

  /// Each throws ValueError for a value of another type or outside what is allowed. Those with a fallback
  /// return it where the key is absent or null; the other throws for that too.
  Index size(const std::string& key, Index largest = most) const;  ///< 1 .. largest
  Index size_or(const std::string& key, Index fallback, Index largest = most) const;
  double positive(const std::string& key, double fallback) const;  ///< more than 0, finite
  bool truth(const std::string& key, bool fallback) const;
  std::string text(const std::string& key, const std::string& fallback) const;
  std::vector<std::string> texts(
      const std::string& key) const;  ///< an array of texts; empty where it is absent

  /// Refuses, by name, an option that would change the result: throws ValueError unless the key is absent or
  /// has one of the values.
  void only(const std::string& key, std::initializer_list<nlohmann::json> allowed) const;

  /// The object below a key.
  ConfigReader below(const std::string& key) const;

  /// Throws ValueError "FILE: KEY VALUE: WHY".
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;

 private:
  const nlohmann::json* find(const std::string& key) const;  // null: absent or null

  nlohmann::json object_;
  std::string where_, path_;  // of the object's keys: "rope_scaling."
};

}  // namespace penstock
