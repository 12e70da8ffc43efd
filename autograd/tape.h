// Tape: the record of one micro-batch's forward through one stage, and its backward in halves.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "autograd/op.h"
#include "autograd/variable.h"
#include "autograd/weight_resolver.h"

namespace penstock {

/// A part of a forward that can be run again: a pure function of its inputs, the weights that it asks `tape`
/// for, and whatever it captured by value. Captured variables that need gradients are refused: they belong
/// among the inputs.
using Segment = std::function<Variables(const Variables& inputs, Tape& tape)>;

class Tape {
 public:
  /// `weights` answers for the handles; it may be null where no weight is used. Both outlive the tape.
  Tape(RankContext& context, WeightResolver* weights) : context_(&context), weights_(weights) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// A stage input. Throws ValueError for a gradient of a value that is no floating-point number.
  Variable input(Tensor value, bool requires_grad);
  /// A parameter, at the version that the handle names. `requires_grad` false: frozen.
  Variable weight(const WeightHandle& handle, bool requires_grad = true);

  /// While it lives nothing is recorded on the tape: results, weights among them, are constants. Scopes nest.
  /// It is the tape's affair, not the thread's or the process's: ranks share neither.
  class NoGrad {
   public:
    explicit NoGrad(Tape& tape) : tape_(tape), before_(std::exchange(tape.mode_, off_)) {}
    ~NoGrad() { tape_.mode_ = before_; }
    NoGrad(const NoGrad&) = delete;
    NoGrad& operator=(const NoGrad&) = delete;

   private:
    Tape& tape_;
    std::uint8_t before_;
  };

  /// Runs a segment and keeps its inputs alone: the backward runs it again, recording, just before it needs
  /// what is within, and (I half) keeps of that what the W half will need. Gradients are those of running the
  /// segment's ops on this tape, bit for bit, as long as the segment gives the same values twice (masks of
  /// ops::dropout do). Inputs are constants or values of this tape, but no expressions of weights, which the
  /// segment makes itself. Throws ValueError for others. Checkpointing of Chen et al., "Training Deep Nets
  /// with Sublinear Memory Cost", 2016.
  Variables recompute(Segment segment, const Variables& inputs);

  /// What to call when a backward, or a W half, has passed the last use of a weight on this tape and will add
  /// no more to its gradient: once for each weight that the tape was asked for, frozen ones aside. Set before
  /// the backward.
  void on_weight_done(std::function<void(const WeightHandle&)> done) { weight_done_ = std::move(done); }

  /// Full backward from `outputs` with their gradients (an undefined one counts as zero): both halves node by
  /// node. Afterwards the tape is spent. All three throw ValueError for what cannot be: a second backward,
  /// values of another tape, a gradient of an integer tensor, and a value that was changed in place after the
  /// forward saved it (see Tensor::changed_in_place).
  void backward(std::span<const Variable> outputs, std::span<const Tensor> gradients);
  /// I half: gradients of activations. What only it needed is freed.
  void backward_input(std::span<const Variable> outputs, std::span<const Tensor> gradients);
  /// W half: gradients of weights, into the resolver's accumulators. After `backward_input`, at any later
  /// time.
  void backward_weight();

  /// Gradient of a stage input after the I half; undefined when the outputs do not depend on it. Moves it
  /// out. Throws ValueError for a weight, whose gradient is in the resolver's accumulator.
  Tensor take_grad(const Variable& input);

  RankContext& context() { return *context_; }
  int nodes() const { return static_cast<int>(nodes_.size()); }

 private:
  friend Variables apply_op(std::unique_ptr<Op>, std::span<const Variable>);
  enum class State : std::uint8_t { recording, running, input_done, spent };
  enum class Half : std::uint8_t { input, weight, both };
  /// record: nodes are made. trace: none are, but results tell whether they would need gradients. off:
  /// neither.
  enum Mode : std::uint8_t { record_, trace_, off_ };

  struct Slot {
    ValueKind kind;
    bool requires_grad;
    Shape shape;
    DType dtype = DType::f32;
    int node = -1;   // producer
    int output = 0;  // which of its outputs
    std::optional<WeightHandle> weight;
    Tensor grad;
  };
  struct Saved {
    enum class From : std::uint8_t { input, output, extra } from;
    int index;
    InputMask needed_for;
    Tensor value;               // undefined for weights: they are resolved again
    std::uint32_t version = 0;  // of the value's storage at the end of the forward
  };
  struct Replay;  // a segment that the backward runs again
  struct Node {
    std::unique_ptr<Op> op;
    std::vector<int> inputs;  // slots; -1: a constant
    std::vector<int> outputs;
    std::vector<Saved> saved;
    InputMask wanted_input = 0, wanted_weight = 0;  // inputs whose gradient the I and the W half compute
    bool weight_expression = false;
    std::unique_ptr<Replay> replay;  // instead of an op

    Node();
    Node(Node&&) noexcept;
    ~Node();
    std::string_view name() const;
  };
  class NodeSaver;
  class NodeBackward;

  Variable make(Slot slot, Tensor value);
  Variables record(std::unique_ptr<Op> op, std::span<const Variable> inputs);
  Variable traced(Tensor value, ValueKind kind);
  static Tensor checked_value(const Node& node, const Saved& saved);
  Tensor value_of_weight(int slot);
  Tensor value_of_weight(int slot, std::map<int, Tensor>& known);
  void start(std::span<const Variable> outputs, std::span<const Tensor> gradients);
  void walk(Half half);
  void run(Node& node, Half half);
  void run_replay(Node& node, Half half);
  void begin_weight_half();
  void pass_weights(const Node& node);
  template <class Visit>
  void for_each_weight(const Node& node, Visit&& visit) const;
  void finish_input(Node& node);
  void finish(Node& node);
  void add_grad(int slot, Tensor gradient);
  void add_to_slot(Slot& slot, Tensor gradient);
  const Tensor& finished_grad(int slot);

  RankContext* context_;
  WeightResolver* weights_;
  std::vector<Slot> slots_;
  std::vector<Node> nodes_;
  State state_ = State::recording;
  std::uint8_t mode_ = record_;
  std::function<void(const WeightHandle&)> weight_done_;
  std::map<std::pair<int, int>, int>
      uses_left_;  // of weights (block, parameter), while weight_done_ is to be called
};

}  // namespace penstock
