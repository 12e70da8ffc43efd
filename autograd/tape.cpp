// Tape: recording and the two halves of a backward.
#include "autograd/tape.h"

#include <algorithm>

#include "autograd/convert.h"
#include "autograd/replay.h"
#include "kernels/elementwise.h"

namespace penstock {
namespace {

bool has(InputMask mask, int index) { return (mask >> index) & 1u; }

struct DiscardingSaver final : Saver {
  void input(int, InputMask) override {}
  void output(int, InputMask) override {}
  void tensor(const Tensor&, InputMask) override {}
};

}  // namespace

/// Collects what a forward saves while its outputs are not known yet.
class Tape::NodeSaver final : public Saver {
 public:
  void input(int index, InputMask needed_for) override {
    saved.push_back({Saved::From::input, index, needed_for, {}, 0});
  }
  void output(int index, InputMask needed_for) override {
    saved.push_back({Saved::From::output, index, needed_for, {}, 0});
  }
  void tensor(const Tensor& value, InputMask needed_for) override {
    saved.push_back({Saved::From::extra, extras++, needed_for, value, 0});
  }

  std::vector<Saved> saved;
  int extras = 0;
};

class Tape::NodeBackward final : public BackwardContext {
 public:
  NodeBackward(Tape& tape, Node& node, InputMask wanted) : tape_(tape), node_(node), wanted_(wanted) {}

  RankContext& context() override { return *tape_.context_; }
  bool wants(int input) const override { return has(wanted_, input); }
  const Tensor& grad(int output) override {
    return tape_.finished_grad(node_.outputs[static_cast<std::size_t>(output)]);
  }

  Tensor input(int index) override {
    const int s = node_.inputs[static_cast<std::size_t>(index)];
    if (s >= 0 && slot(s).kind == ValueKind::weight) return as_computed(tape_.value_of_weight(s));
    return find(Saved::From::input, index);
  }
  Tensor output(int index) override { return find(Saved::From::output, index); }
  Tensor saved(int index) override { return find(Saved::From::extra, index); }

  void set_grad(int input, Tensor gradient) override {
    check_wanted(input);
    const int s = node_.inputs[static_cast<std::size_t>(input)];
    require<ShapeError>(gradient.shape() == slot(s).shape,
                        "{}: gradient of shape {} for input {} of shape {}", node_.op->name(),
                        gradient.shape().str(), input, slot(s).shape.str());
    tape_.add_grad(s, std::move(gradient));
  }

  GradientTarget target(int input, const Shape& shape) override {
    check_wanted(input);
    Slot& s = slot(node_.inputs[static_cast<std::size_t>(input)]);
    require<ShapeError>(shape == s.shape, "{}: gradient of shape {} for input {} of shape {}",
                        node_.op->name(), shape.str(), input, s.shape.str());
    const int place = node_.inputs[static_cast<std::size_t>(input)];
    if (std::ranges::find(handed_out_, place) != handed_out_.end()) {
      // One value is several inputs: the memory of the first may not be written yet.
      deferred_.emplace_back(place, Tensor::empty(context(), shape));
      return {deferred_.back().second, false};
    }
    handed_out_.push_back(place);
    if (s.weight) return tape_.weights_->gradient(*s.weight);
    if (s.grad.defined() && s.grad.storage().use_count() == 1 && s.grad.is_contiguous() &&
        s.grad.dtype() == DType::f32)
      return {s.grad, true};
    Tensor fresh = Tensor::empty(context(), shape);
    if (!s.grad.defined()) {
      s.grad = fresh;
      return {fresh, false};
    }
    fresh.copy_from(converted(s.grad, DType::f32));
    s.grad = fresh;
    return {fresh, true};
  }

  DType gradient_dtype(int input) const override {
    const Slot& s = tape_.slots_[static_cast<std::size_t>(node_.inputs[static_cast<std::size_t>(input)])];
    return s.kind == ValueKind::weight || s.dtype == DType::f64 ? DType::f32 : s.dtype;
  }

  /// After the op's backward: adds what was kept apart.
  void finish() {
    for (auto& [place, gradient] : deferred_) tape_.add_grad(place, std::move(gradient));
  }

 private:
  /// The backward of a weight expression computes in fp32, as its gradients are.
  Tensor as_computed(const Tensor& value) const {
    return node_.weight_expression && is_floating_point(value.dtype()) ? converted(value, DType::f32) : value;
  }
  Slot& slot(int index) { return tape_.slots_[static_cast<std::size_t>(index)]; }
  void check_wanted(int input) const {
    require<ValueError>(wants(input), "{}: gives a gradient of input {} that this half did not ask for",
                        node_.op->name(), input);
  }
  Tensor find(Saved::From from, int index) {
    for (const Saved& s : node_.saved)
      if (s.from == from && s.index == index && s.value.defined())
        return as_computed(checked_value(node_, s));
    throw ValueError("{}: the backward reads a value that the forward did not save for this half",
                     node_.op->name());
  }

  Tape& tape_;
  Node& node_;
  InputMask wanted_;
  std::vector<int> handed_out_;                   // slots of targets
  std::vector<std::pair<int, Tensor>> deferred_;  // further gradients of those
};

Tape::Node::Node() = default;
Tape::Node::Node(Node&&) noexcept = default;
Tape::Node::~Node() = default;

std::string_view Tape::Node::name() const { return op ? op->name() : std::string_view("recompute"); }

/// Calls visit(handle) for each use of a weight that needs a gradient.
template <class Visit>
void Tape::for_each_weight(const Node& node, Visit&& visit) const {
  for (const int s : node.inputs) {
    if (s < 0) continue;
    const Slot& slot = slots_[static_cast<std::size_t>(s)];
    if (slot.weight && slot.requires_grad) visit(*slot.weight);
  }
  if (node.replay)
    for (const WeightHandle& w : node.replay->weights) visit(w);
}

Variable Tape::make(Slot slot, Tensor value) {
  Variable result(std::move(value));
  result.tape_ = this;
  result.slot_ = static_cast<int>(slots_.size());
  result.kind_ = slot.kind;
  result.requires_grad_ = slot.requires_grad;
  slots_.push_back(std::move(slot));
  return result;
}

/// A result where nothing is recorded: it only tells what it depends on.
Variable Tape::traced(Tensor value, ValueKind kind) {
  Variable result(std::move(value));
  result.tape_ = this;
  result.kind_ = kind;
  result.requires_grad_ = is_floating_point(result.tensor().dtype());
  return result;
}

Variable Tape::input(Tensor value, bool requires_grad) {
  require<ValueError>(value.defined(), "an input of a tape without a value");
  require<ValueError>(!requires_grad || is_floating_point(value.dtype()),
                      "a gradient of an input of {}: only floating-point values have one",
                      name_of(value.dtype()));
  return make({ValueKind::activation, requires_grad, value.shape(), value.dtype(), -1, 0, std::nullopt, {}},
              value);
}

Variable Tape::weight(const WeightHandle& handle, bool requires_grad) {
  require<ValueError>(weights_ != nullptr, "a weight was used on a tape that has no weight store");
  Tensor value = weights_->resolve(handle);
  if (mode_ == off_) return Variable(value);
  return make({ValueKind::weight, requires_grad, value.shape(), value.dtype(), -1, 0, handle, {}}, value);
}

Variables Tape::record(std::unique_ptr<Op> op, std::span<const Variable> inputs) {
  require<ValueError>(state_ == State::recording,
                      "{}: recorded on a tape whose backward has begun; use a new tape", op->name());
  require<ValueError>(op->differentiable(), "{}: has no gradient, but one of its inputs needs one",
                      op->name());
  require<ValueError>(inputs.size() <= 32, "{}: more than 32 inputs", op->name());
  Node node;
  Tensors values;
  bool data_dependent = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Variable& v = inputs[i];
    values.push_back(v.tensor());
    node.inputs.push_back(v.slot_);
    const bool weight = v.tape_ && v.kind_ == ValueKind::weight;
    data_dependent = data_dependent || !weight;
    if (v.requires_grad_) (weight ? node.wanted_weight : node.wanted_input) |= InputMask{1} << i;
  }
  node.weight_expression = !data_dependent;
  NodeSaver saver;
  Tensors outputs = op->forward(values, saver);
  const InputMask wanted = node.wanted_input | node.wanted_weight;
  for (Saved& s : saver.saved) {
    if ((s.needed_for & wanted) == 0) continue;
    const auto index = static_cast<std::size_t>(s.index);
    if (s.from == Saved::From::input) {
      const int slot = node.inputs[index];
      if (slot >= 0 && slots_[static_cast<std::size_t>(slot)].kind == ValueKind::weight) continue;
      s.value = values[index];
    } else if (s.from == Saved::From::output) {
      s.value = outputs[index];
    }
    if (s.value.defined()) s.version = s.value.version();
    node.saved.push_back(std::move(s));
  }
  node.op = std::move(op);
  Variables results;
  const int number = static_cast<int>(nodes_.size());
  const ValueKind kind = node.weight_expression ? ValueKind::weight : ValueKind::activation;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    node.outputs.push_back(static_cast<int>(slots_.size()));
    results.push_back(make({kind,
                            is_floating_point(outputs[k].dtype()),
                            outputs[k].shape(),
                            outputs[k].dtype(),
                            number,
                            static_cast<int>(k),
                            std::nullopt,
                            {}},
                           outputs[k]));
  }
  nodes_.push_back(std::move(node));
  return results;
}

Tensor Tape::checked_value(const Node& node, const Saved& saved) {
  const char* what = saved.from == Saved::From::input    ? "input"
                     : saved.from == Saved::From::output ? "output"
                                                         : "tensor";
  require<ValueError>(
      saved.value.version() == saved.version,
      "{}: {} {} of shape {} was changed in place after the forward saved it; change a copy instead",
      node.name(), what, saved.index, saved.value.shape().str());
  return saved.value;
}

Tensor Tape::value_of_weight(int index) {
  std::map<int, Tensor> known;
  return value_of_weight(index, known);
}

Tensor Tape::value_of_weight(int index, std::map<int, Tensor>& known) {
  const Slot& slot = slots_[static_cast<std::size_t>(index)];
  if (slot.weight) return weights_->resolve(*slot.weight);
  if (const auto place = known.find(index); place != known.end()) return place->second;
  const Node& node = nodes_[static_cast<std::size_t>(slot.node)];
  Tensors values;
  for (const int input : node.inputs) values.push_back(value_of_weight(input, known));
  DiscardingSaver discard;
  const Tensors outputs = node.op->forward(values, discard);
  for (std::size_t k = 0; k < outputs.size(); ++k) known.emplace(node.outputs[k], outputs[k]);
  return outputs[static_cast<std::size_t>(slot.output)];
}

void Tape::add_grad(int index, Tensor gradient) {
  Slot& slot = slots_[static_cast<std::size_t>(index)];
  if (slot.weight) {
    const GradientTarget target = weights_->gradient(*slot.weight);
    if (target.accumulate)
      kernels::add_into(context_->stream(), gradient.numel(), gradient.contiguous(), target.tensor);
    else
      Tensor(target.tensor).copy_from(converted(gradient, DType::f32));
    return;
  }
  add_to_slot(slot, std::move(gradient));
}

void Tape::add_to_slot(Slot& slot, Tensor gradient) {
  if (slot.kind == ValueKind::weight) gradient = converted(gradient, DType::f32);
  if (!slot.grad.defined()) {
    slot.grad = std::move(gradient);
    return;
  }
  if (slot.grad.dtype() != gradient.dtype())  // one of them came through `target`, in fp32
    slot.grad = converted(slot.grad, DType::f32);
  if (slot.grad.storage().use_count() != 1 || !slot.grad.is_contiguous()) slot.grad = slot.grad.clone();
  kernels::add_into(context_->stream(), gradient.numel(), gradient.contiguous(), slot.grad);
}

/// The gradient of a value once nothing is added to it any more: that of an activation has its dtype. (A loss
/// in fp64 has a gradient in fp32.)
const Tensor& Tape::finished_grad(int index) {
  Slot& slot = slots_[static_cast<std::size_t>(index)];
  if (slot.grad.defined() && slot.kind == ValueKind::activation && slot.dtype != DType::f64)
    slot.grad = converted(slot.grad, slot.dtype);
  return slot.grad;
}

void Tape::start(std::span<const Variable> outputs, std::span<const Tensor> gradients) {
  require<ValueError>(state_ == State::recording,
                      "backward ran already on this tape; record the forward again");
  require<ValueError>(outputs.size() == gradients.size(), "{} outputs with {} gradients", outputs.size(),
                      gradients.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Variable& output = outputs[i];
    require<ValueError>(output.tape_ == this || !output.requires_grad_,
                        "backward from a value of another tape");
    if (!gradients[i].defined() || output.tape_ != this) continue;
    const Slot& slot = slots_[static_cast<std::size_t>(output.slot_)];
    require<ValueError>(is_floating_point(slot.dtype), "a gradient for output {} of {}: integers have none",
                        i, name_of(slot.dtype));
    require<ValueError>(is_floating_point(gradients[i].dtype()), "a gradient of {} for output {}",
                        name_of(gradients[i].dtype()), i);
    require<ShapeError>(gradients[i].shape() == slot.shape, "gradient of shape {} for an output of shape {}",
                        gradients[i].shape().str(), slot.shape.str());
  }
  state_ = State::running;  // and stays so where a backward fails half way
  // The gradient of a weight that is an output itself waits for the W half, as those of weight expressions
  // do.
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].requires_grad_ && gradients[i].defined())
      add_to_slot(slots_[static_cast<std::size_t>(outputs[i].slot_)], gradients[i]);
}

/// Adds up the gradients of weights that are outputs, and counts the uses that are to come.
void Tape::begin_weight_half() {
  for (std::size_t s = 0; s < slots_.size(); ++s)
    if (slots_[s].weight && slots_[s].grad.defined())
      add_grad(static_cast<int>(s), std::exchange(slots_[s].grad, {}));
  if (!weight_done_) return;
  uses_left_.clear();
  for (const Slot& slot : slots_)
    if (slot.weight && slot.requires_grad) uses_left_[{slot.weight->block, slot.weight->parameter}];
  for (const Node& node : nodes_)
    for_each_weight(node, [&](const WeightHandle& w) { ++uses_left_[{w.block, w.parameter}]; });
  std::vector<WeightHandle> unused;
  for (const Slot& slot : slots_) {
    if (!slot.weight || !slot.requires_grad || uses_left_[{slot.weight->block, slot.weight->parameter}] != 0)
      continue;
    if (std::ranges::find(unused, *slot.weight) == unused.end()) unused.push_back(*slot.weight);
  }
  for (const WeightHandle& w : unused) weight_done_(w);
}

/// After a node's W half: tells of the weights that no other node uses.
void Tape::pass_weights(const Node& node) {
  if (!weight_done_) return;
  for_each_weight(node, [&](const WeightHandle& w) {
    if (--uses_left_[{w.block, w.parameter}] == 0) weight_done_(w);
  });
}

void Tape::run(Node& node, Half half) {
  const InputMask wanted = half == Half::input ? node.wanted_input : node.wanted_weight;
  if (wanted == 0) return;
  bool any = false;
  for (const int output : node.outputs) any = any || slots_[static_cast<std::size_t>(output)].grad.defined();
  if (!any) return;
  NodeBackward context(*this, node, wanted);
  try {
    node.op->backward(context);
    context.finish();
  } catch (Error& e) {
    e.add_context(fmt::format("backward of {}", node.name()));
    throw;
  }
  context_->between_ops();
}

/// After the I half: keeps only what the W half needs.
void Tape::finish_input(Node& node) {
  if (node.wanted_weight == 0) {
    finish(node);
    return;
  }
  std::erase_if(node.saved, [&](const Saved& s) { return (s.needed_for & node.wanted_weight) == 0; });
}

void Tape::finish(Node& node) {
  node.saved.clear();
  for (const int output : node.outputs) slots_[static_cast<std::size_t>(output)].grad = {};
}

void Tape::walk(Half half) {
  if (half != Half::input) begin_weight_half();
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    if (node->weight_expression && half == Half::input) continue;
    if (node->replay) {
      run_replay(*node, half);
    } else {
      if (half != Half::weight && !node->weight_expression) run(*node, Half::input);
      if (half != Half::input) run(*node, Half::weight);
    }
    if (half == Half::input) {
      finish_input(*node);
    } else {
      finish(*node);
      pass_weights(*node);
    }
  }
  state_ = half == Half::input ? State::input_done : State::spent;
}

void Tape::backward(std::span<const Variable> outputs, std::span<const Tensor> gradients) {
  start(outputs, gradients);
  walk(Half::both);
}

void Tape::backward_input(std::span<const Variable> outputs, std::span<const Tensor> gradients) {
  start(outputs, gradients);
  walk(Half::input);
}

void Tape::backward_weight() {
  require<ValueError>(state_ == State::input_done, "the W half needs the I half before it, and runs once");
  state_ = State::running;
  walk(Half::weight);
}

Tensor Tape::take_grad(const Variable& input) {
  require<ValueError>(input.tape_ == this, "the gradient of a value of another tape");
  require<ValueError>(state_ == State::input_done || state_ == State::spent,
                      "the gradient of an input is there after the I half");
  require<ValueError>(input.kind_ == ValueKind::activation,
                      "the gradient of a weight is where its store has it, not on the tape");
  require<ValueError>(slots_[static_cast<std::size_t>(input.slot_)].node < 0,
                      "the gradient of a value that is no input of the tape is not kept");
  finished_grad(input.slot_);
  return std::exchange(slots_[static_cast<std::size_t>(input.slot_)].grad, {});
}

Variables apply_op(std::unique_ptr<Op> op, std::span<const Variable> inputs) {
  Tape* tape = nullptr;
  bool requires_grad = false;
  RankContext* context = nullptr;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Variable& v = inputs[i];
    require<ValueError>(v.defined(), "{}: input {} has no value", op->name(), i);
    context = &v.tensor().context();
    if (!v.tape()) continue;
    require<ValueError>(tape == nullptr || tape == v.tape(), "{}: inputs from two tapes", op->name());
    tape = v.tape();
    requires_grad = requires_grad || v.requires_grad();
  }
  Variables results;
  if (requires_grad && tape->mode_ == Tape::record_) {
    results = tape->record(std::move(op), inputs);
  } else {
    Tensors values;
    for (const Variable& v : inputs) values.push_back(v.tensor());
    const bool trace = requires_grad && tape->mode_ == Tape::trace_;
    require<ValueError>(!trace || op->differentiable(),
                        "{}: has no gradient, but one of its inputs needs one", op->name());
    const bool weights = std::all_of(inputs.begin(), inputs.end(), [](const Variable& v) {
      return v.tape() && v.kind() == ValueKind::weight;
    });
    DiscardingSaver discard;
    for (Tensor& t : op->forward(values, discard))
      results.push_back(trace
                            ? tape->traced(std::move(t), weights ? ValueKind::weight : ValueKind::activation)
                            : Variable(std::move(t)));
  }
  if (context) context->between_ops();
  return results;
}

}  // namespace penstock
