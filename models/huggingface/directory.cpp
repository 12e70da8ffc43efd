// HuggingFaceDirectory: files, names and values.
#include "models/huggingface/directory.h"

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "core/file.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* single_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";

json read_json_file(const fs::path& path) {
  const std::string text = read_file(path);
  try {
    return json::parse(text);
  } catch (const json::exception& e) {
    throw IoError("{}: is damaged: {}", path.string(), e.what());
  }
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool is_readable(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

template <class T>
void widen(const std::byte* from, Index count, float* to) {
  for (Index i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + i * static_cast<Index>(sizeof(T)), sizeof(T));
    to[i] = static_cast<float>(value);
  }
}

constexpr Index piece = Index{1} << 18;  // elements that are converted at a time

/// Calls use(first element, values) for a tensor's values as fp32, piece by piece.
template <class Use>
void for_each_piece(const SafetensorsEntry& entry, Use&& use) {
  std::vector<float> values;
  const Index elements = entry.shape.numel();
  for (Index begin = 0; begin < elements; begin += piece) {
    const Index count = std::min(piece, elements - begin);
    values.resize(static_cast<std::size_t>(count));
    const std::byte* from = entry.data + begin * size_of(entry.dtype);
    if (entry.dtype == DType::f32)
      std::memcpy(values.data(), from, values.size() * sizeof(float));
    else if (entry.dtype == DType::bf16)
      widen<bf16>(from, count, values.data());
    else
      widen<f16>(from, count, values.data());
    use(begin, values);
  }
}

}  // namespace

bool HuggingFaceDirectory::is_one(const fs::path& path) {
  return is_file(path / "config.json") && !is_file(path / "manifest.json");
}

HuggingFaceDirectory HuggingFaceDirectory::open(const fs::path& path) {
  HuggingFaceDirectory directory;
  directory.path_ = path;
  const fs::path config_path = path / "config.json";
  const json config = read_json_file(config_path);
  directory.config_ = read_huggingface_config(config, config_path.string());
  Model model;
  try {
    model = directory.config_.build();
  } catch (Error& e) {
    e.add_context(config_path.string());
    throw;
  }
  directory.open_files();
  directory.assign(huggingface_family(ConfigReader(config, config_path.string())), model);
  return directory;
}

void HuggingFaceDirectory::open_files() {
  if (is_file(path_ / single_file)) {
    files_.emplace_back(path_ / single_file);
    return;
  }
  if (is_file(path_ / index_file)) return open_shards(path_ / index_file);
  throw IoError("{}: no weights in it: {}, or {} with its shards, is wanted{}", path_.string(), single_file,
                index_file, is_file(path_ / "pytorch_model.bin") ? "; pytorch_model.bin is not read" : "");
}

/// The index gives for each tensor the file that it stands in; what the files hold must be just that.
void HuggingFaceDirectory::open_shards(const fs::path& index) {
  const std::string where = index.string();
  const json content = read_json_file(index);
  const auto map = content.find("weight_map");
  require<IoError>(content.is_object() && map != content.end() && map->is_object() && !map->empty(),
                   "{}: has no weight_map", where);
  std::map<std::string, std::vector<std::string>> tensors_of;
  for (const auto& [tensor, file] : map->items()) {
    require<IoError>(file.is_string(), "{}: the file of tensor '{}' is {}, not a name", where, tensor,
                     file.dump());
    const auto name = file.get<std::string>();
    require<IoError>(!name.empty() && fs::path(name).filename() == fs::path(name) && name != "..",
                     "{}: tensor '{}': '{}' is no file of the directory", where, tensor, name);
    tensors_of[name].push_back(tensor);
  }
  for (const auto& [file_name, tensors] : tensors_of) {
    const std::string& name = file_name;  // which lambdas can capture
    require<IoError>(is_file(path_ / name), "{}: {} is missing, which has tensor '{}'", where,
                     (path_ / name).string(), tensors.front());
    const SafetensorsFile& file = files_.emplace_back(path_ / name);
    for (const std::string& tensor : tensors)
      require<IoError>(file.find(tensor) || file.foreign().contains(tensor),
                       "{}: tensor '{}' is not in {}, where the index has it", where, tensor, name);
    const auto check_listed = [&](const std::string& tensor) {
      const auto listed = map->find(tensor);
      require<IoError>(listed != map->end() && *listed == name,
                       "{}: tensor '{}' is in {}, where the index does not have it", where, tensor, name);
    };
    for (const SafetensorsEntry& entry : file.entries()) check_listed(entry.name);
    for (const auto& [tensor, type] : file.foreign()) check_listed(tensor);
  }
}

/// Every tensor of the files to the parameter that it is, by name.
void HuggingFaceDirectory::assign(const HuggingFaceFamily& family, const Model& model) {
  std::map<std::string, const ParameterRecord*> known;
  for (const ParameterRecord& p : model.parameters()) known.emplace(p.name, &p);
  const auto parameter_of = [&](const std::string& tensor) {
    const auto direct = known.find(tensor);
    return direct != known.end() ? direct : known.find(family.base + tensor);
  };
  Stored head;
  for (const SafetensorsFile& file : files_) {
    for (const auto& [tensor, type] : file.foreign())
      require<IoError>(family.is_buffer(tensor), "{}: tensor '{}' is {}, a type that is not read",
                       file.path().string(), tensor, type);
    for (const SafetensorsEntry& entry : file.entries()) {
      const auto where = [&] { return fmt::format("{}: tensor '{}'", file.path().string(), entry.name); };
      const auto found = parameter_of(entry.name);
      if (found == known.end()) {
        if (family.is_buffer(entry.name)) continue;
        require<IoError>(entry.name == "lm_head.weight" && config_.tied_embeddings(),
                         "{}: is surplus: the model of config.json has no such parameter", where());
        head = {&entry, &file};
        continue;
      }
      const auto& [name, parameter] = *found;
      require<IoError>(entry.shape == parameter->shape, "{}: has shape {}, but config.json makes it {}",
                       where(), entry.shape.str(), parameter->shape.str());
      require<IoError>(is_readable(entry.dtype), "{}: is {}; fp32, bf16 or fp16 is wanted", where(),
                       name_of(entry.dtype));
      const auto [place, added] = parameters_.emplace(name, Stored{&entry, &file});
      require<IoError>(added, "{}: is the same parameter as tensor '{}' of {}", where(),
                       place->second.entry->name, place->second.file->path().string());
    }
  }
  for (const ParameterRecord& p : model.parameters())
    require<IoError>(parameters_.contains(p.name), "{}: tensor '{}' {} is missing from the weight files{}",
                     path_.string(), p.name, p.shape.str(),
                     p.name == "lm_head.weight" ? "; config.json says that the head is not tied" : "");
  if (head.entry) check_head(model, head);
}

/// A tied head that is stored all the same must be the table.
void HuggingFaceDirectory::check_head(const Model& model, const Stored& head) const {
  const std::string& name = model.parameters().front().name;  // of the embedding, the first block
  const SafetensorsEntry& table = *parameters_.at(name).entry;
  const std::string where = fmt::format("{}: tensor '{}'", head.file->path().string(), head.entry->name);
  require<IoError>(head.entry->shape == table.shape && is_readable(head.entry->dtype),
                   "{}: is {} of {}, but it is tied to {}, {} of {}", where, head.entry->shape.str(),
                   name_of(head.entry->dtype), name, table.shape.str(), name_of(table.dtype));
  if (head.entry->dtype == table.dtype &&
      std::memcmp(head.entry->data, table.data, static_cast<std::size_t>(table.bytes)) == 0)
    return;
  std::vector<float> whole(static_cast<std::size_t>(table.shape.numel()));
  for_each_piece(table, [&](Index begin, const std::vector<float>& values) {
    std::copy(values.begin(), values.end(), whole.begin() + begin);
  });
  for_each_piece(*head.entry, [&](Index begin, const std::vector<float>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float a = values[i], b = whole[static_cast<std::size_t>(begin) + i];
      require<IoError>(a == b || (std::isnan(a) && std::isnan(b)),
                       "{}: element {} is {}, but {} in '{}', to which config.json ties it "
                       "(tie_word_embeddings)",
                       where, begin + static_cast<Index>(i), a, b, name);
    }
  });
}

void HuggingFaceDirectory::load_weights(const Model& model, WeightStore& weights) const {
  weights.values_changed();
  for (const ParameterRecord& p : model.parameters()) {
    for (const ParameterRecord::Use& use : p.uses) {
      if (!weights.holds(use.block) || weights.is_alias(use.block, use.parameter)) continue;
      const auto stored = parameters_.find(p.name);
      require<IoError>(stored != parameters_.end() && stored->second.entry->shape == p.shape,
                       "{}: has no tensor '{}' of shape {}", path_.string(), p.name, p.shape.str());
      Tensor target = weights.value(use.block, use.parameter);
      require<IoError>(target.dtype() == DType::f32, "{}: '{}' is read into {}, fp32 wanted", path_.string(),
                       p.name, name_of(target.dtype()));
      const Tensor flat = target.reshape(Shape{p.shape.numel()});
      for_each_piece(*stored->second.entry, [&](Index begin, const std::vector<float>& values) {
        const auto count = static_cast<Index>(values.size());
        flat.slice(0, begin, begin + count)
            .copy_from_host(values.data(), count * static_cast<Index>(sizeof(float)));
      });
    }
  }
}

}  // namespace penstock
