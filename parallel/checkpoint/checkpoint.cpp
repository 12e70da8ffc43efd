// Checkpoints: writing and reading.
#include "parallel/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <span>

#include "core/file.h"
#include "core/hash.h"
#include "core/safetensors.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int format_version = 1;
constexpr const char* format_name = "penstock-checkpoint";

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

std::uint64_t hash_of_file(const fs::path& path) {
  const MappedFile file(path);
  Hasher hasher;
  hasher.add(file.bytes());
  return hasher.value();
}

/// Of everything that a JSON document says.
std::string hash_of_json(const json& document) {
  const std::string text = document.dump();
  Hasher hasher;
  hasher.add(std::as_bytes(std::span(text)));
  return hash_text(hasher.value());
}

/// Writes this rank's tensors; returns what the manifest says of them: {"files": [...], "tensors": {...}}.
json write_shard(const fs::path& folder, const TrainingStep& training, WeightStore& weights, int rank) {
  const Model& model = *training.setup().model;
  const std::vector<std::string> buffers = training.setup().optimizer->buffer_names();
  const std::string weight_file = fmt::format("weights-{:05}.safetensors", rank);
  const std::string optimizer_file = fmt::format("optimizer-{:05}.safetensors", rank);
  std::vector<SafetensorsEntry> values, state;
  json result{{"files", json::array()}, {"tensors", json::object()}};
  const auto add = [&](std::vector<SafetensorsEntry>& entries, const std::string& file,
                       const std::string& name, const Tensor& t) {
    entries.push_back({name, t.dtype(), t.shape(), static_cast<const std::byte*>(t.data()), t.bytes()});
    result["tensors"][name] = {{"file", file},
                               {"shape", t.shape().sizes()},
                               {"offset", std::vector<Index>(static_cast<std::size_t>(t.shape().rank()), 0)}};
  };
  for (const ParameterRecord& p : model.parameters()) {
    const auto& use = p.uses[0];
    if (!weights.holds(use.block)) continue;
    add(values, weight_file, p.name, weights.value(use.block, use.parameter));
    for (std::size_t k = 0; k < buffers.size() && !p.frozen; ++k)
      add(state, optimizer_file, p.name + "/" + buffers[k],
          weights.optimizer_state(static_cast<int>(k), use.block, use.parameter));
  }
  const auto write = [&](const std::string& file, const std::vector<SafetensorsEntry>& entries) {
    if (entries.empty()) return;
    write_safetensors(folder / file, entries, {{"format", "pt"}});
    result["files"].push_back({{"name", file},
                               {"bytes", static_cast<Index>(fs::file_size(folder / file))},
                               {"hash", hash_text(hash_of_file(folder / file))}});
  };
  write(weight_file, values);
  write(optimizer_file, state);
  return result;
}

std::optional<Index> step_of(const std::string& name) {
  constexpr std::string_view prefix = "step-";
  if (name.size() < prefix.size() + 8 || !name.starts_with(prefix)) return std::nullopt;
  Index step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc() || stop != end || step < 0) return std::nullopt;
  return step;
}

/// Runs `work` on every rank; when it fails on one, all throw that rank's message.
template <class F>
void on_all_ranks(Communicator& world, F&& work) {
  std::string failure;
  try {
    work();
  } catch (const std::exception& e) {
    failure = fmt::format("rank {}: {}", world.rank(), e.what());
  }
  for (const std::string& text : world.all_gather(failure)) require<IoError>(text.empty(), "{}", text);
}

}  // namespace

std::string checkpoint_name(Index step) { return fmt::format("step-{:08}", step); }

std::vector<Index> list_checkpoints(const fs::path& directory) {
  std::vector<Index> steps;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const auto step = step_of(entry.path().filename().string());
    if (step && fs::exists(entry.path() / "manifest.json", error)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

fs::path save_checkpoint(const fs::path& directory, const CheckpointInfo& info, TrainingStep& training,
                         Communicator& world) {
  const fs::path final_path = directory / checkpoint_name(info.step);
  const fs::path temporary = directory / (checkpoint_name(info.step) + ".tmp");
  on_all_ranks(world, [&] {
    if (world.rank() != 0) return;
    fs::remove_all(temporary);
    fs::create_directories(temporary);
  });
  json shard;
  on_all_ranks(world, [&] { shard = write_shard(temporary, training, training.weights(), world.rank()); });
  const std::vector<std::string> shards = world.all_gather(shard.dump());
  on_all_ranks(world, [&] {
    if (world.rank() != 0) return;
    json manifest{{"format", format_name},       {"version", format_version}, {"step", info.step},
                  {"updates", info.updates},     {"seed", info.seed},         {"model", info.model},
                  {"optimizer", info.optimizer}, {"data", info.data},         {"plan", info.plan},
                  {"tokenizer", info.tokenizer}, {"files", json::array()},    {"tensors", json::object()}};
    for (const std::string& text : shards) {
      const json part = json::parse(text);
      for (const json& file : part.at("files")) manifest["files"].push_back(file);
      manifest["tensors"].update(part.at("tensors"));
    }
    manifest["hash"] = hash_of_json(manifest);
    write_file(temporary / "manifest.json", manifest.dump(1) + "\n");
    sync_folder(temporary);
    fs::remove_all(final_path);
    fs::rename(temporary, final_path);
    sync_folder(directory);
  });
  return final_path;
}

void keep_newest(const fs::path& directory, Index keep) {
  if (keep == 0) return;
  std::vector<Index> steps = list_checkpoints(directory);
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < steps.size(); ++i)
    fs::remove_all(directory / checkpoint_name(steps[i]));
}

void clear_unfinished(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const fs::path name = entry.path().filename();
    const bool agreement = name.string().starts_with("agreement-");  // of a job killed in that moment
    if (name.extension() == ".tmp" && (agreement || step_of(name.stem().string())))
      leftovers.push_back(entry.path());
  }
  for (const fs::path& path : leftovers) fs::remove_all(path);
}

Checkpoint Checkpoint::open(const fs::path& path) {
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  std::error_code error;
  require<IoError>(fs::is_directory(path, error), "{}: no such directory", path.string());
  if (!fs::exists(path / "manifest.json", error)) {
    const std::vector<Index> steps = list_checkpoints(path);
    require<IoError>(!steps.empty(),
                     "{}: no complete checkpoint in it (no manifest.json, no step-N directory with one)",
                     path.string());
    checkpoint.path_ = path / checkpoint_name(steps.back());
  }
  const fs::path manifest_path = checkpoint.path_ / "manifest.json";
  try {
    json manifest = json::parse(read_file(manifest_path));
    require<IoError>(manifest.at("format") == format_name, "not a Penstock checkpoint");
    require<IoError>(manifest.at("version") <= format_version,
                     "written in format {} by a newer Penstock; this one reads up to {}",
                     manifest.at("version").get<int>(), format_version);
    const auto hash = manifest.at("hash").get<std::string>();
    manifest.erase("hash");
    require<IoError>(hash_of_json(manifest) == hash, "damaged: its hash differs from what it says");
    CheckpointInfo& info = checkpoint.info_;
    info.model = manifest.at("model");
    info.optimizer = manifest.at("optimizer");
    info.data = manifest.at("data");
    info.plan = manifest.at("plan");
    manifest.at("tokenizer").get_to(info.tokenizer);
    manifest.at("seed").get_to(info.seed);
    manifest.at("step").get_to(info.step);
    manifest.at("updates").get_to(info.updates);
    require<IoError>(info.step >= 0 && info.updates >= 0, "damaged: step {} and {} updates", info.step,
                     info.updates);
    checkpoint.tensors_ = manifest.at("tensors");
    require<IoError>(checkpoint.tensors_.is_object(), "damaged: tensors is no object");
    for (const json& file : manifest.at("files")) {
      const fs::path name = checkpoint.path_ / file.at("name").get<std::string>();
      require<IoError>(fs::is_regular_file(name, error), "{} is missing", name.string());
      const auto bytes = static_cast<Index>(fs::file_size(name));
      require<IoError>(bytes == file.at("bytes").get<Index>(), "{} has {} bytes, the manifest says {}",
                       name.string(), bytes, file.at("bytes").get<Index>());
      require<IoError>(hash_text(hash_of_file(name)) == file.at("hash").get<std::string>(),
                       "{} is damaged: its hash differs from the manifest's", name.string());
    }
  } catch (const json::exception& e) {
    throw IoError("{}: damaged: {}", manifest_path.string(), e.what());
  } catch (Error& e) {
    e.add_context(manifest_path.string());
    throw;
  }
  return checkpoint;
}

void Checkpoint::load(const std::string& name, const Shape& shape, Tensor target) const {
  const auto place = tensors_.find(name);
  require<IoError>(place != tensors_.end(), "{}: no tensor {}", path_.string(), name);
  require<IoError>(place->is_object() && place->contains("file") && place->at("file").is_string(),
                   "{}: manifest.json is damaged: no file of {}", path_.string(), name);
  const SafetensorsFile file(path_ / place->at("file").get<std::string>());
  const SafetensorsEntry& entry = file.at(name);
  require<IoError>(entry.shape == shape && entry.dtype == target.dtype(),
                   "{}: {} is {} of {}, {} of {} wanted", path_.string(), name, entry.shape.str(),
                   name_of(entry.dtype), shape.str(), name_of(target.dtype()));
  target.copy_from_host(entry.data, entry.bytes);
}

void Checkpoint::load_weights(const Model& model, WeightStore& weights) const {
  weights.values_changed();
  for (const ParameterRecord& p : model.parameters())
    for (const auto& use : p.uses)
      if (weights.holds(use.block) && !weights.is_alias(use.block, use.parameter))
        load(p.name, p.shape, weights.value(use.block, use.parameter));
}

void Checkpoint::load_optimizer(const Model& model, const Optimizer& optimizer, WeightStore& weights) const {
  const std::vector<std::string> buffers = optimizer.buffer_names();
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    const auto has = [&](const ParameterRecord& p) { return tensors_.contains(p.name + "/" + buffers[k]); };
    if (std::ranges::none_of(model.parameters(), has)) continue;  // the run that saved it had no such buffer
    for (const ParameterRecord& p : model.parameters())
      for (const auto& use : p.uses)
        if (!p.frozen && weights.holds(use.block) && !weights.is_alias(use.block, use.parameter))
          load(p.name + "/" + buffers[k], p.shape,
               weights.optimizer_state(static_cast<int>(k), use.block, use.parameter));
  }
}

}  // namespace penstock
