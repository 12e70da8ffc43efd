// Tape: recording and the two halves of a backward.
#include "autograd/tape.h"

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
    saved.push_back({Saved::From::input, index, needed_for, {}});
  }
  void output(int index, InputMask needed_for) override {
    saved.push_back({Saved::From::output, index, needed_for, {}});
  }
  void tensor(const Tensor& value, InputMask needed_for) override {
    saved.push_back({Saved::From::extra, extras++, needed_for, value});
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
    return slot(node_.outputs[static_cast<std::size_t>(output)]).grad;
  }

  Tensor input(int index) override {
    const int s = node_.inputs[static_cast<std::size_t>(index)];
    if (s >= 0 && slot(s).kind == ValueKind::weight) return tape_.value_of_weight(s);
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
    if (s.weight) return tape_.weights_->gradient(*s.weight);
    if (s.grad.defined() && s.grad.storage().use_count() == 1 && s.grad.is_contiguous())
      return {s.grad, true};
    Tensor fresh = Tensor::empty(context(), shape);
    if (!s.grad.defined()) {
      s.grad = fresh;
      return {fresh, false};
    }
    fresh.copy_from(s.grad);
    s.grad = fresh;
    return {fresh, true};
  }

 private:
  Slot& slot(int index) { return tape_.slots_[static_cast<std::size_t>(index)]; }
  void check_wanted(int input) const {
    require<ValueError>(wants(input), "{}: gives a gradient of input {} that this half did not ask for",
                        node_.op->name(), input);
  }
  Tensor find(Saved::From from, int index) {
    for (const Saved& s : node_.saved)
      if (s.from == from && s.index == index && s.value.defined()) return s.value;
    throw ValueError("{}: the backward reads a value that the forward did not save for this half",
                     node_.op->name());
  }

  Tape& tape_;
  Node& node_;
  InputMask wanted_;
};

Variable Tape::make(Slot slot, Tensor value) {
  Variable result(std::move(value));
  result.tape_ = this;
  result.slot_ = static_cast<int>(slots_.size());
  result.kind_ = slot.kind;
  result.requires_grad_ = slot.requires_grad;
  slots_.push_back(std::move(slot));
  return result;
}

Variable Tape::input(Tensor value, bool requires_grad) {
  return make({ValueKind::activation, requires_grad, value.shape(), -1, 0, std::nullopt, {}}, value);
}

Variable Tape::weight(const WeightHandle& handle, bool requires_grad) {
  require<ValueError>(weights_ != nullptr, "a weight was used on a tape that has no weight store");
  Tensor value = weights_->resolve(handle);
  return make({ValueKind::weight, requires_grad, value.shape(), -1, 0, handle, {}}, value);
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
    node.saved.push_back(std::move(s));
  }
  node.op = std::move(op);
  Variables results;
  const int number = static_cast<int>(nodes_.size());
  const ValueKind kind = node.weight_expression ? ValueKind::weight : ValueKind::activation;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    node.outputs.push_back(static_cast<int>(slots_.size()));
    results.push_back(
        make({kind, true, outputs[k].shape(), number, static_cast<int>(k), std::nullopt, {}}, outputs[k]));
  }
  nodes_.push_back(std::move(node));
  return results;
}

Tensor Tape::value_of_weight(int index) {
  const Slot& slot = slots_[static_cast<std::size_t>(index)];
  if (slot.weight) return weights_->resolve(*slot.weight);
  const Node& node = nodes_[static_cast<std::size_t>(slot.node)];
  Tensors values;
  for (const int input : node.inputs) values.push_back(value_of_weight(input));
  DiscardingSaver discard;
  return node.op->forward(values, discard)[static_cast<std::size_t>(slot.output)];
}

void Tape::add_grad(int index, Tensor gradient) {
  Slot& slot = slots_[static_cast<std::size_t>(index)];
  if (slot.weight) {
    const GradientTarget target = weights_->gradient(*slot.weight);
    if (target.accumulate)
      kernels::add_into(context_->stream(), gradient.numel(), gradient.contiguous(), target.tensor);
    else
      Tensor(target.tensor).copy_from(gradient);
    return;
  }
  if (!slot.grad.defined()) {
    slot.grad = std::move(gradient);
    return;
  }
  if (slot.grad.storage().use_count() != 1 || !slot.grad.is_contiguous()) slot.grad = slot.grad.clone();
  kernels::add_into(context_->stream(), gradient.numel(), gradient.contiguous(), slot.grad);
}

void Tape::start(std::span<const Variable> outputs, std::span<const Tensor> gradients) {
  require<ValueError>(state_ == State::recording,
                      "backward ran already on this tape; record the forward again");
  require<ValueError>(outputs.size() == gradients.size(), "{} outputs with {} gradients", outputs.size(),
                      gradients.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    require<ValueError>(outputs[i].tape_ == this || !outputs[i].requires_grad_,
                        "backward from a value of another tape");
    if (!outputs[i].requires_grad_ || !gradients[i].defined()) continue;
    const Shape& shape = slots_[static_cast<std::size_t>(outputs[i].slot_)].shape;
    require<ShapeError>(gradients[i].shape() == shape, "gradient of shape {} for an output of shape {}",
                        gradients[i].shape().str(), shape.str());
    add_grad(outputs[i].slot_, gradients[i]);
  }
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
  } catch (Error& e) {
    e.add_context(fmt::format("backward of {}", node.op->name()));
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

void Tape::backward(std::span<const Variable> outputs, std::span<const Tensor> gradients) {
  start(outputs, gradients);
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    if (!node->weight_expression) run(*node, Half::input);
    run(*node, Half::weight);
    finish(*node);
  }
  state_ = State::spent;
}

void Tape::backward_input(std::span<const Variable> outputs, std::span<const Tensor> gradients) {
  start(outputs, gradients);
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    if (node->weight_expression) continue;
    run(*node, Half::input);
    finish_input(*node);
  }
  state_ = State::input_done;
}

void Tape::backward_weight() {
  require<ValueError>(state_ == State::input_done, "the W half needs the I half before it, and runs once");
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    run(*node, Half::weight);
    finish(*node);
  }
  state_ = State::spent;
}

Tensor Tape::take_grad(const Variable& input) {
  require<ValueError>(input.tape_ == this, "the gradient of a value of another tape");
  require<ValueError>(state_ != State::recording, "the gradient of an input is there after the I half");
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
  if (requires_grad) {
    results = tape->record(std::move(op), inputs);
  } else {
    Tensors values;
    for (const Variable& v : inputs) values.push_back(v.tensor());
    DiscardingSaver discard;
    for (Tensor& t : op->forward(values, discard)) results.emplace_back(std::move(t));
  }
  if (context) context->between_ops();
  return results;
}

}  // namespace penstock
