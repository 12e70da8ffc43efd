// Block: the unit of partition. A model is an ordered list of blocks; a stage runs a range of them.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "core/step_state.h"
#include "nn/module.h"

namespace penstock {

class WeightStore;

enum class Mode : std::uint8_t { train, evaluate, decode };

/// What a block's forward may know besides its inputs. All of it is a function of the micro-batch's place in
/// the global batch, not of the layout.
struct BlockContext {
  RankContext* rank = nullptr;
  WeightStore* weights = nullptr;
  Tape* tape = nullptr;  ///< null: nothing is recorded
  Mode mode = Mode::evaluate;
  const StepState* state = nullptr;  ///< on the device; step keys the dropout masks
  std::uint64_t seed = 0;            ///< the run's seed
  int block = 0;                     ///< index of the running block in the model
  int weight_version = 0;            ///< updates in the weights that this forward uses
  Tensor sequence_ids;               ///< (B) int64: numbers of the sequences within the step's global batch
  Tensor positions;                  ///< (B, T) int32
  Tensor segment_ids;                ///< (B, T) int32, or undefined

  /// A parameter of the running block as a value.
  Variable weight(const Parameter& parameter) const;
  /// Dropout as the mode wants it; `name` is the full name of the place, which keys the mask.
  Variable dropout(const Variable& x, float probability, const std::string& name) const;
};

class Block {
 public:
  virtual ~Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  /// Runs on the outputs of the block before (the batch's inputs for the first one).
  virtual Variables forward(const Variables& inputs, const BlockContext& context) const = 0;

  /// Transformer layers in it: what --partition counts. 0 for embedding and head.
  virtual int layers() const { return 1; }

  const std::deque<Parameter>& parameters() const { return parameters_; }
  const std::string& name() const { return name_; }

 protected:
  explicit Block(std::string name) : name_(std::move(name)) {}
  /// For the constructors of blocks: where their layers declare parameters, below `prefix`.
  ParameterScope scope(const std::string& prefix) { return {parameters_, prefix}; }

 private:
  std::string name_;
  std::deque<Parameter> parameters_;  // stable addresses
};

}  // namespace penstock
