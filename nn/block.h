// Block: the unit of partition. A model is an ordered list of blocks; a stage runs a range of them.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "core/step_state.h"
#include "nn/module.h"

namespace penstock {

class WeightStore;

enum class Mode : std::uint8_t { train, evaluate, decode };

/// What of a block's forward is run again in its backward instead of being kept.
enum class Recompute : std::uint8_t {
  nothing,
  attention,  ///< an attention alone, from its queries, keys and values to its output projection
  block,      ///< all of it: only the block's inputs are kept
};

/// What a block's forward may know besides its inputs. All of it is a function of the micro-batch's place in
/// the global batch, not of the layout.
struct BlockContext {
  RankContext* rank = nullptr;
  WeightStore* weights = nullptr;
  Tape* tape = nullptr;  ///< null: nothing is recorded
  Mode mode = Mode::evaluate;
  const StepState* state = nullptr;          ///< on the device; step keys the dropout masks
  std::uint64_t seed = 0;                    ///< the run's seed
  int block = 0;                             ///< index of the running block in the model
  int weight_version = 0;                    ///< updates in the weights that this forward uses
  Recompute recompute = Recompute::nothing;  ///< of the running block
  Tensor sequence_ids = {};  ///< (B) int64: numbers of the sequences within the step's global batch
  Tensor positions = {};     ///< (B, T) int32
  Tensor segment_ids = {};   ///< (B, T) int32, or undefined

  /// A parameter of the running block as a value.
  Variable weight(const Parameter& parameter) const;
  /// Dropout as the mode wants it; `name` is the full name of the place, which keys the mask.
  Variable dropout(const Variable& x, float probability, const std::string& name) const;
  /// A part of the running block on `inputs`: run, and where `recompute` is `which` and something is
  /// recorded, run again in the backward (Tape::recompute). It uses the context that it is given, not this
  /// one, and captures no variable; `this` of a block is fine.
  using Part = std::function<Variables(const Variables& inputs, const BlockContext& context)>;
  Variables part(Recompute which, const Variables& inputs, const Part& body) const;
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
  friend class Model;  // freezes parameters

  std::string name_;
  std::deque<Parameter> parameters_;  // stable addresses
};

/// block.forward, or the same as a recomputed segment where the context says so.
Variables run_block(const Block& block, const Variables& inputs, const BlockContext& context);

}  // namespace penstock
