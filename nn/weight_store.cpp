// WeightStore: layout of the flat buffers, initial values, tied parameters.
#include "nn/weight_store.h"

#include <algorithm>

#include "core/philox.h"
#include "core/random.h"
#include "kernels/cast.h"

namespace penstock {
namespace {

constexpr Index alignment = 16;  // elements: every parameter begins on 64 bytes

Index padded(Index elements) { return div_up(elements, alignment) * alignment; }

Tensor part(const Tensor& flat, Index offset, const Shape& shape) {
  return Tensor::view_of(flat.storage(), offset, shape, flat.dtype());
}

}  // namespace

WeightStore::WeightStore(RankContext& context, const Model& model, std::vector<int> blocks,
                         const Options& options)
    : context_(&context),
      model_(&model),
      blocks_(std::move(blocks)),
      place_(static_cast<std::size_t>(model.size()), -1),
      compute_(options.compute) {
  require<ValueError>(compute_ == DType::f32 || compute_ == DType::bf16,
                      "blocks compute with fp32 or bf16, not {}", name_of(compute_));
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    place_[static_cast<std::size_t>(blocks_[i])] = static_cast<int>(i);
  weights_.resize(blocks_.size());
  for (std::size_t i = 0; i < blocks_.size(); ++i) lay_out(weights_[i], model.block(blocks_[i]), blocks_[i]);
  for (BlockWeights& w : weights_) {
    w.values = Tensor::zeros(context, Shape{w.values_size}, DType::f32, MemoryKind::parameter);
    if (options.gradients)
      w.gradients = Tensor::zeros(context, Shape{w.gradients_size}, DType::f32, MemoryKind::gradient);
    for (int k = 0; k < options.optimizer_buffers; ++k)
      w.state.push_back(Tensor::zeros(context, Shape{w.updated_size}, DType::f32, MemoryKind::optimizer));
    if (compute_ != DType::f32)
      w.computed = Tensor::empty(context, Shape{w.values_size}, compute_, MemoryKind::parameter);
  }
}

/// Parameters with weight decay come first, then the others, then, among the values, frozen ones, and among
/// the gradients, the accumulators of aliases: so values, gradients and optimizer state of a parameter have
/// one offset, and one block is updated in two runs.
void WeightStore::lay_out(BlockWeights& weights, const Block& block, int index) {
  for (const Parameter& p : block.parameters()) {
    Entry entry{.parameter = &p, .frozen = p.frozen};
    for (const ParameterRecord::Use& use : model_->record_of(index, p.index).uses) {
      if (use.block == index) break;
      if (!holds(use.block)) continue;
      entry.alias_block = use.block;
      entry.alias_parameter = use.parameter;
      break;
    }
    weights.entries.push_back(entry);
  }
  Index offset = 0;
  const auto place = [&](auto&& belongs) {
    for (Entry& e : weights.entries) {
      if (!belongs(e)) continue;
      e.offset = offset;
      offset += padded(e.parameter->shape.numel());
    }
    return offset;
  };
  const auto updated = [](const Entry& e) { return e.alias_block < 0 && !e.frozen; };
  weights.decayed_size = place([&](const Entry& e) { return updated(e) && e.parameter->decays(); });
  weights.updated_size = place([&](const Entry& e) { return updated(e) && !e.parameter->decays(); });
  weights.values_size = place([](const Entry& e) { return e.alias_block < 0 && e.frozen; });
  offset = weights.updated_size;
  weights.gradients_size = place([](const Entry& e) { return e.alias_block >= 0 && !e.frozen; });
}

void WeightStore::initialize(std::uint64_t seed) {
  values_changed();
  if (context_->device().kind == DeviceKind::meta) return;
  for (std::size_t place = 0; place < weights_.size(); ++place) {
    const BlockWeights& w = weights_[place];
    for (const Entry& e : w.entries) {
      if (e.alias_block >= 0) continue;
      const Parameter& p = *e.parameter;
      float* values = w.values.data_as<float>() + e.offset;
      const Index n = p.shape.numel();
      const Initializer& initializer = model_->record_of(blocks_[place], p.index).initializer;
      switch (initializer.kind) {
        case Initializer::Kind::zeros:
          std::fill_n(values, n, 0.0f);
          break;
        case Initializer::Kind::ones:
          std::fill_n(values, n, 1.0f);
          break;
        case Initializer::Kind::normal: {
          const RandomKey key = random_key(seed, RandomPurpose::init, p.name);
          context_->pool().parallel_ranges(n, 1 << 14, [&](Index begin, Index end) {
            fill_normal(key, 0, 0, begin, end - begin, 0.0, static_cast<double>(initializer.deviation),
                        values + begin);
          });
          break;
        }
      }
    }
  }
}

bool WeightStore::holds(int block) const { return place_[static_cast<std::size_t>(block)] >= 0; }

const WeightStore::BlockWeights& WeightStore::of(int block) const {
  require<ValueError>(block >= 0 && block < model_->size() && holds(block),
                      "block {} is not held by this rank", block);
  return weights_[static_cast<std::size_t>(place_[static_cast<std::size_t>(block)])];
}

bool WeightStore::is_alias(int block, int parameter) const {
  return entry(block, parameter).alias_block >= 0;
}

Tensor WeightStore::value(int block, int parameter) const {
  const Entry& e = entry(block, parameter);
  if (e.alias_block >= 0) return value(e.alias_block, e.alias_parameter);
  return part(of(block).values, e.offset, e.parameter->shape);
}

Tensor WeightStore::gradient_of(int block, int parameter) const {
  const Entry& e = entry(block, parameter);
  require<ValueError>(!e.frozen, "{}: is frozen and has no gradient", e.parameter->name);
  require<ValueError>(of(block).gradients.defined(), "{}: this weight store has no gradients",
                      e.parameter->name);
  return part(of(block).gradients, e.offset, e.parameter->shape);
}

Tensor WeightStore::optimizer_state(int buffer, int block, int parameter) const {
  const Entry& e = entry(block, parameter);
  require<ValueError>(!e.frozen, "{}: is frozen and has no optimizer state", e.parameter->name);
  return part(of(block).state.at(static_cast<std::size_t>(buffer)), e.offset, e.parameter->shape);
}

Tensor WeightStore::resolve(const WeightHandle& handle) {
  require<ValueError>(handle.version == version_, "weights of version {} asked for, but version {} is kept",
                      handle.version, version_);
  const Entry& e = entry(handle.block, handle.parameter);
  if (e.alias_block >= 0) return resolve({e.alias_block, e.alias_parameter, handle.version});
  BlockWeights& w = of(handle.block);
  if (!w.computed.defined()) return part(w.values, e.offset, e.parameter->shape);
  if (!std::exchange(w.computed_is_current, true))
    kernels::cast(context_->stream(), w.values.numel(), w.values, w.computed);
  return part(w.computed, e.offset, e.parameter->shape);
}

void WeightStore::values_changed() {
  for (BlockWeights& w : weights_) w.computed_is_current = false;
}

GradientTarget WeightStore::gradient(const WeightHandle& handle) {
  Entry& e = of(handle.block).entries[static_cast<std::size_t>(handle.parameter)];
  return {gradient_of(handle.block, handle.parameter), std::exchange(e.has_gradient, true)};
}

void WeightStore::begin_step() {
  for (BlockWeights& w : weights_)
    for (Entry& e : w.entries) e.has_gradient = false;
}

Tensor WeightStore::finished_gradient(int block, int parameter) {
  Tensor gradient = gradient_of(block, parameter);
  Entry& e = of(block).entries[static_cast<std::size_t>(parameter)];
  if (!std::exchange(e.has_gradient, true)) gradient.fill_zero();
  return gradient;
}

void WeightStore::finish_gradients() {
  for (std::size_t i = 0; i < weights_.size(); ++i)
    for (const Entry& e : weights_[i].entries)
      if (!e.frozen) finished_gradient(blocks_[i], e.parameter->index);
}

std::vector<WeightStore::Run> WeightStore::runs() {
  values_changed();
  std::vector<Run> result;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const BlockWeights& w = weights_[i];
    const auto add = [&](Index begin, Index end, bool decays) {
      if (begin == end) return;
      Run run{blocks_[i], decays, w.values.slice(0, begin, end), {}, {}};
      if (w.gradients.defined()) run.gradients = w.gradients.slice(0, begin, end);
      for (const Tensor& s : w.state) run.state.push_back(s.slice(0, begin, end));
      result.push_back(std::move(run));
    };
    add(0, w.decayed_size, true);
    add(w.decayed_size, w.updated_size, false);
  }
  return result;
}

}  // namespace penstock
