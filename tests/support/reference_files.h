// Reference values that tests read: the committed fixtures, and the folder of the whole set where there is
// one.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/safetensors.h"

namespace penstock::testing {

/// tests/fixtures in the source tree.
inline std::filesystem::path fixtures() {
  return std::filesystem::path(__FILE__).parent_path().parent_path() / "fixtures";
}

/// The folder of a reference model with whole tensors; tests/fixtures's where that is not on this machine.
inline std::filesystem::path whole_reference(const std::string& name) {
  const char* folder = std::getenv("PENSTOCK_REFERENCE_DIR");
  const std::filesystem::path whole = std::filesystem::path(folder ? folder : "") / "models" / name;
  return std::filesystem::exists(whole / "expected.json") ? whole : fixtures() / name;
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(std::ifstream(path));
}

/// Values of one element type, as they stand in a file.
template <class T>
std::vector<T> values_of(const SafetensorsEntry& entry) {
  require<ValueError>(entry.dtype == dtype_of<T>, "{} is {}", entry.name, name_of(entry.dtype));
  std::vector<T> values(static_cast<std::size_t>(entry.shape.numel()));
  std::memcpy(values.data(), entry.data, static_cast<std::size_t>(entry.bytes));
  return values;
}

}  // namespace penstock::testing
