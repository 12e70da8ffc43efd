// WeightStore: layout of the flat buffers, initial values, tied parameters.
#include "nn/weight_store.h"

#include <algorithm>

#include "core/philox.h"
#include "core/random.h"

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
      place_(static_cast<std::size_t>(model.size()), -1) {
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    place_[static_cast<std::size_t>(blocks_[i])] = static_cast<int>(i);
  weights_.resize(blocks_.size());
  for (std::size_t i = 0; i < blocks_.size(); ++i) lay_out(weights_[i], model.block(blocks_[i]), blocks_[i]);
  for (BlockWeights& w : weights_) {
    w.values = Tensor::zeros(context, Shape{w.values_size}, DType::f32, MemoryKind::parameter);
    if (options.gradients)
      w.gradients = Tensor::zeros(context, Shape{w.gradients_size}, DType::f32, MemoryKind::gradient);
    for (int k = 0; k < options.optimizer_buffers; ++k)
      w.state.push_back(Tensor::zeros(context, Shape{w.values_size}, DType::f32, MemoryKind::optimizer));
  }
}

/// Parameters with weight decay come first, then the others, then the gradient accumulators of aliases: so
/// values, gradients and optimizer state of a parameter have one offset, and one block is updated in two
/// runs.
void WeightStore::lay_out(BlockWeights& weights, const Block& block, int index) {
  for (const Parameter& p : block.parameters()) {
    Entry entry{.parameter = &p};
    for (const ParameterRecord& record : model_->parameters()) {
      if (record.name != p.name) continue;
      for (const ParameterRecord::Use& use : record.uses) {
        if (use.block == index) break;
        if (!holds(use.block)) continue;
        entry.alias_block = use.block;
        entry.alias_parameter = use.parameter;
        break;
      }
    }
    weights.entries.push_back(entry);
  }
  Index offset = 0;
  const auto place = [&](bool alias, bool decays) {
    for (Entry& e : weights.entries) {
      if ((e.alias_block >= 0) != alias || (!alias && e.parameter->decays() != decays)) continue;
      e.offset = offset;
      offset += padded(e.parameter->shape.numel());
    }
  };
  place(false, true);
  weights.decayed_size = offset;
  place(false, false);
  weights.values_size = offset;
  place(true, false);
  weights.gradients_size = offset;
}

void WeightStore::initialize(std::uint64_t seed) {
  if (context_->device().kind == DeviceKind::meta) return;
  for (const BlockWeights& w : weights_) {
    for (const Entry& e : w.entries) {
      if (e.alias_block >= 0) continue;
      const Parameter& p = *e.parameter;
      float* values = w.values.data_as<float>() + e.offset;
      const Index n = p.shape.numel();
      switch (p.initializer.kind) {
        case Initializer::Kind::zeros:
          std::fill_n(values, n, 0.0f);
          break;
        case Initializer::Kind::ones:
          std::fill_n(values, n, 1.0f);
          break;
        case Initializer::Kind::normal: {
          const RandomKey key = random_key(seed, RandomPurpose::init, p.name);
          context_->pool().parallel_ranges(n, 1 << 14, [&](Index begin, Index end) {
            fill_normal(key, 0, 0, begin, end - begin, 0.0, static_cast<double>(p.initializer.deviation),
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
  require<ValueError>(of(block).gradients.defined(), "{}: this weight store has no gradients",
                      e.parameter->name);
  return part(of(block).gradients, e.offset, e.parameter->shape);
}

Tensor WeightStore::optimizer_state(int buffer, int block, int parameter) const {
  const Entry& e = entry(block, parameter);
  return part(of(block).state.at(static_cast<std::size_t>(buffer)), e.offset, e.parameter->shape);
}

Tensor WeightStore::resolve(const WeightHandle& handle) {
  require<ValueError>(handle.version == version_, "weights of version {} asked for, but version {} is kept",
                      handle.version, version_);
  return value(handle.block, handle.parameter);
}

GradientTarget WeightStore::gradient(const WeightHandle& handle) {
  Entry& e = of(handle.block).entries[static_cast<std::size_t>(handle.parameter)];
  return {gradient_of(handle.block, handle.parameter), std::exchange(e.has_gradient, true)};
}

void WeightStore::begin_step() {
  for (BlockWeights& w : weights_)
    for (Entry& e : w.entries) e.has_gradient = false;
}

void WeightStore::finish_gradients() {
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    for (Entry& e : weights_[i].entries) {
      if (e.has_gradient) continue;
      gradient_of(blocks_[i], e.parameter->index).fill_zero();
      e.has_gradient = true;
    }
  }
}

std::vector<WeightStore::Run> WeightStore::runs() const {
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
    add(w.decayed_size, w.values_size, false);
  }
  return result;
}

}  // namespace penstock
