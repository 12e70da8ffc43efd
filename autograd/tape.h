// Tape: the record of one micro-batch's forward through one stage, and its backward in halves.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "autograd/op.h"
#include "autograd/variable.h"
#include "autograd/weight_resolver.h"

namespace penstock {

class Tape {
 public:
  /// `weights` answers for the handles; it may be null where no weight is used. Both outlive the tape.
  Tape(RankContext& context, WeightResolver* weights) : context_(&context), weights_(weights) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// A stage input.
  Variable input(Tensor value, bool requires_grad);
  /// A parameter, at the version that the handle names. `requires_grad` false: frozen.
  Variable weight(const WeightHandle& handle, bool requires_grad = true);

  /// Full backward from `outputs` with their gradients (an undefined one counts as zero): both halves node by
  /// node. Afterwards the tape is spent.
  void backward(std::span<const Variable> outputs, std::span<const Tensor> gradients);
  /// I half: gradients of activations. What only it needed is freed.
  void backward_input(std::span<const Variable> outputs, std::span<const Tensor> gradients);
  /// W half: gradients of weights, into the resolver's accumulators. After `backward_input`, at any later
  /// time.
  void backward_weight();

  /// Gradient of a stage input after the I half; undefined when the outputs do not depend on it. Moves it
  /// out.
  Tensor take_grad(const Variable& input);

  RankContext& context() { return *context_; }
  int nodes() const { return static_cast<int>(nodes_.size()); }

 private:
  friend Variables apply_op(std::unique_ptr<Op>, std::span<const Variable>);
  enum class State : std::uint8_t { recording, input_done, spent };
  enum class Half : std::uint8_t { input, weight };

  struct Slot {
    ValueKind kind;
    bool requires_grad;
    Shape shape;
    int node = -1;   // producer
    int output = 0;  // which of its outputs
    std::optional<WeightHandle> weight;
    Tensor grad;
  };
  struct Saved {
    enum class From : std::uint8_t { input, output, extra } from;
    int index;
    InputMask needed_for;
    Tensor value;  // undefined for weights: they are resolved again
  };
  struct Node {
    std::unique_ptr<Op> op;
    std::vector<int> inputs;  // slots; -1: a constant
    std::vector<int> outputs;
    std::vector<Saved> saved;
    InputMask wanted_input = 0, wanted_weight = 0;  // inputs whose gradient the I and the W half compute
    bool weight_expression = false;
  };
  class NodeSaver;
  class NodeBackward;

  Variable make(Slot slot, Tensor value);
  Variables record(std::unique_ptr<Op> op, std::span<const Variable> inputs);
  Tensor value_of_weight(int slot);
  void start(std::span<const Variable> outputs, std::span<const Tensor> gradients);
  void run(Node& node, Half half);
  void finish_input(Node& node);
  void finish(Node& node);
  void add_grad(int slot, Tensor gradient);

  RankContext* context_;
  WeightResolver* weights_;
  std::vector<Slot> slots_;
  std::vector<Node> nodes_;
  State state_ = State::recording;
};

}  // namespace penstock
