// Settings from a TOML file: top-level keys named as the flags.
#pragma once

#include <string>
#include <vector>

namespace penstock {

struct ConfigEntry {
  std::string flag;                 // the key with dashes, without the leading "--"
  std::vector<std::string> values;  // one, or those of an array
  bool is_array = false;
  bool is_truth = false;  // true or false
  std::string where;      // "run.toml, line 3"
};

/// The entries of the file, in its order. Throws IoError where it cannot be read, ValueError (file, line) for
/// what is no TOML, for tables, dates and nested arrays, and for a key that stands twice, with dashes and
/// with underscores.
std::vector<ConfigEntry> read_config(const std::string& path);

}  // namespace penstock
