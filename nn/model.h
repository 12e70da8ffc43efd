// Model: an ordered list of blocks, a loss, and the table of its parameters.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/block.h"

namespace penstock {

/// Sum of the loss over the valid targets of a micro-batch, as one fp64; its gradient is seeded with 1 /
/// valid targets of the whole global batch.
using LossFunction = std::function<Variable(const Variables& outputs, const Tensors& targets)>;

class Model {
 public:
  Model() = default;
  Model(std::string name, std::vector<std::unique_ptr<Block>> blocks, LossFunction loss);

  const std::string& name() const { return name_; }
  int size() const { return static_cast<int>(blocks_.size()); }
  const Block& block(int index) const { return *blocks_[static_cast<std::size_t>(index)]; }
  /// The loss of a micro-batch, as one number (1). Throws ValueError where the model has no loss, and
  /// ShapeError, naming it, where the loss function gives anything but one number.
  Variable loss(const Variables& outputs, const Tensors& targets) const;
  /// Every parameter once, in model order.
  const std::vector<ParameterRecord>& parameters() const { return parameters_; }
  /// The record of a block's parameter.
  const ParameterRecord& record_of(int block, int parameter) const {
    return parameters_[record_[static_cast<std::size_t>(block)][static_cast<std::size_t>(parameter)]];
  }
  /// Elements of all parameters, a tied one counted once.
  Index parameter_count() const;
  /// Freezes the parameters whose full name matches a pattern, in which * stands for any text:
  /// "transformer.wte.*". To be called before a weight store is made. Returns how many they are; throws
  /// ValueError for none.
  int freeze(const std::string& pattern);
  /// Sum of the blocks' layers.
  int layers() const;

 private:
  std::string name_;
  std::vector<std::unique_ptr<Block>> blocks_;
  LossFunction loss_;
  std::vector<ParameterRecord> parameters_;
  std::vector<std::vector<std::size_t>> record_;  // [block][parameter]: place in parameters_
};

}  // namespace penstock
