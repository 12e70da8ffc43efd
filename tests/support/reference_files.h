// Reference values that tests read: the committed fixtures, and the folder of the whole set where there is
// one.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/safetensors.h"
#include "nn/weight_store.h"

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

/// Sets every parameter that the store holds from the tensor of its name. Throws where one is missing or of
/// another shape.
inline void load_by_name(WeightStore& store, const Model& model, const SafetensorsFile& file) {
  for (const int block : store.blocks())
    for (const Parameter& p : model.block(block).parameters()) {
      if (store.is_alias(block, p.index)) continue;
      const SafetensorsEntry& entry = file.at(p.name);
      require<ShapeError>(entry.shape == p.shape, "{} is {} in the file and {} in the model", p.name,
                          entry.shape.str(), p.shape.str());
      store.value(block, p.index).copy_from_host(values_of<float>(entry).data(), entry.bytes);
    }
}

/// The same from all weight files of a Hugging Face folder: one file, or shards.
inline void load_folder(WeightStore& store, const Model& model, const std::filesystem::path& folder) {
  std::vector<SafetensorsFile> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files.emplace_back(entry.path());
  for (const int block : store.blocks())
    for (const Parameter& p : model.block(block).parameters()) {
      if (store.is_alias(block, p.index)) continue;
      const SafetensorsEntry* found = nullptr;
      for (const SafetensorsFile& file : files)
        if (!found) found = file.find(p.name);
      require<ValueError>(found != nullptr, "{} is in no file of {}", p.name, folder.string());
      require<ShapeError>(found->shape == p.shape, "{} is {} in the file and {} in the model", p.name,
                          found->shape.str(), p.shape.str());
      store.value(block, p.index).copy_from_host(values_of<float>(*found).data(), found->bytes);
    }
}

}  // namespace penstock::testing
