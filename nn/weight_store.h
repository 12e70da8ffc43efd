// WeightStore: the values, gradients and optimizer state of the blocks that a rank holds, one flat buffer
// each a block.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "autograd/weight_resolver.h"
#include "nn/model.h"

namespace penstock {

class WeightStore final : public WeightResolver {
 public:
  /// What memory to have besides the values.
  struct Options {
    bool gradients = false;
    int optimizer_buffers = 0;  ///< fp32 buffers of the parameters' size (AdamW: 2)
    /// What blocks compute with: fp32, or bf16, for which a copy in bf16 is kept beside the fp32 master
    /// values.
    DType compute = DType::f32;
  };

  /// Holds `blocks` (indices into the model, ascending) with uninitialised values. The model outlives the
  /// store. A parameter that is used by several of them is stored once; each use has a gradient accumulator
  /// of its own.
  WeightStore(RankContext& context, const Model& model, std::vector<int> blocks, const Options& options);

  /// Draws every value from (seed, full name, index in the whole parameter).
  void initialize(std::uint64_t seed);

  // WeightResolver. One version is kept: `version` of a handle must be the current one. Values are of the
  // compute dtype.
  Tensor resolve(const WeightHandle& handle) override;
  GradientTarget gradient(const WeightHandle& handle) override;

  const std::vector<int>& blocks() const { return blocks_; }
  /// What blocks compute with.
  DType compute() const { return compute_; }
  bool holds(int block) const;

  /// Master values of one parameter use, gradient of one use, optimizer buffer k: views of the flat buffers,
  /// all fp32. The last two throw ValueError for a frozen parameter, which has neither. Whoever writes values
  /// says `values_changed` afterwards.
  Tensor value(int block, int parameter) const;
  Tensor gradient_of(int block, int parameter) const;
  Tensor optimizer_state(int buffer, int block, int parameter) const;
  /// True where this use shares the values of an earlier use in the store.
  bool is_alias(int block, int parameter) const;

  /// What was derived from the values is made anew before it is used again.
  void values_changed();

  /// Forgets all gradients: the next one written to each accumulator replaces what is there.
  void begin_step();
  /// The gradient of one use once its last backward has run: zero where nothing was written.
  Tensor finished_gradient(int block, int parameter);
  /// After the last backward: accumulators that got nothing become zero. The uses of a tied parameter are
  /// still apart.
  void finish_gradients();

  /// A run of neighbouring parameters of one block that are updated alike.
  struct Run {
    int block = 0;
    bool decays = false;
    Tensor values, gradients;
    Tensors state;
  };
  /// Covers every stored parameter that is not frozen once. For an update: says `values_changed`.
  std::vector<Run> runs();

  int version() const { return version_; }
  void set_version(int version) { version_ = version; }

 private:
  struct Entry {
    const Parameter* parameter = nullptr;
    Index offset = 0;  // elements, in the flat buffers of its block; values of an alias lie elsewhere
    int alias_block = -1, alias_parameter = -1;
    bool has_gradient = false;
    bool frozen = false;
  };
  struct BlockWeights {
    std::vector<Entry> entries;
    // Elements of the parameters with weight decay, of all that are updated, of frozen ones too; of the
    // gradients.
    Index decayed_size = 0, updated_size = 0, values_size = 0, gradients_size = 0;
    Tensor values, gradients;
    Tensors state;
    Tensor computed;  // the values in the compute dtype, where that is not fp32
    bool computed_is_current = false;
  };

  const BlockWeights& of(int block) const;
  BlockWeights& of(int block) { return const_cast<BlockWeights&>(std::as_const(*this).of(block)); }
  const Entry& entry(int block, int parameter) const {
    const std::vector<Entry>& entries = of(block).entries;
    require<ValueError>(parameter >= 0 && parameter < static_cast<int>(entries.size()),
                        "parameter {} of block {}, which has {}", parameter, block, entries.size());
    return entries[static_cast<std::size_t>(parameter)];
  }
  void lay_out(BlockWeights& weights, const Block& block, int index);

  RankContext* context_;
  const Model* model_;
  std::vector<int> blocks_;
  std::vector<int> place_;  // of a block in weights_, -1: not here
  std::vector<BlockWeights> weights_;
  DType compute_;
  int version_ = 0;
};

}  // namespace penstock
