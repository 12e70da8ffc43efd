// dump_gradients and dump_parameters.
#include "parallel/checkpoint/dump.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "core/safetensors.h"

namespace penstock {
namespace {

constexpr int dump_tag = (1 << 28) - 2;

}  // namespace

void dump_gradients(const std::filesystem::path& directory, const Model& model, const WeightStore& weights,
                    Communicator& world, RankContext& context, const std::function<int(int)>& rank_of_block) {
  Stream& stream = context.stream();
  std::optional<SafetensorsWriter> writer;
  if (world.rank() == 0) {
    std::filesystem::create_directories(directory);
    std::vector<SafetensorsEntry> declared;
    for (const ParameterRecord& p : model.parameters())
      if (!p.frozen) declared.push_back({p.name, DType::f32, p.shape, nullptr, p.shape.numel() * 4});
    writer.emplace(directory / "gradients.safetensors", declared, SafetensorsMetadata{{"format", "pt"}});
  }
  for (const ParameterRecord& p : model.parameters()) {
    if (p.frozen) continue;
    const auto& use = p.uses[0];
    const int owner = rank_of_block(use.block);
    const std::string waiter =
        fmt::format("rank {}: gradient of {} for --dump-gradients", world.rank(), p.name);
    Tensor gradient;
    if (world.rank() == owner) gradient = weights.gradient_of(use.block, use.parameter);
    if (owner != 0 && world.rank() == owner)
      world.send(gradient, 0, dump_tag, {}, stream).host_wait(context.deadline_seconds(), waiter);
    if (world.rank() != 0) continue;
    if (owner != 0) {
      gradient = Tensor::empty(context, p.shape, DType::f32, MemoryKind::communication);
      world.recv(gradient, owner, dump_tag, {}, stream).host_wait(context.deadline_seconds(), waiter);
    }
    writer->append(gradient.data(), gradient.bytes());
  }
  if (writer) writer->commit();
}

void dump_parameters(const std::filesystem::path& directory, const Model& model, const WeightStore& weights,
                     int rank) {
  std::filesystem::create_directories(directory);
  std::vector<SafetensorsEntry> entries;
  SafetensorsMetadata metadata;
  for (const ParameterRecord& p : model.parameters()) {
    for (const auto& use : p.uses) {
      if (!weights.holds(use.block)) continue;
      const Tensor value = weights.value(use.block, use.parameter);
      entries.push_back(
          {p.name, value.dtype(), value.shape(), static_cast<const std::byte*>(value.data()), value.bytes()});
      metadata[p.name] = nlohmann::json{
          {"offset", std::vector<Index>(static_cast<std::size_t>(p.shape.rank()), 0)},
          {"shape",
           p.shape.sizes()}}.dump();
      break;
    }
  }
  write_safetensors(directory / fmt::format("rank-{}.safetensors", rank), entries, metadata);
}

}  // namespace penstock
