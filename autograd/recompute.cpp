// Recompute: a segment's forward runs on a tape that only traces, its backward on one that records.
#include <algorithm>

#include "autograd/replay.h"

namespace penstock {

Variables Tape::recompute(Segment segment, const Variables& inputs) {
  if (mode_ != record_) return segment(inputs, *this);
  require<ValueError>(state_ == State::recording,
                      "recompute: recorded on a tape whose backward has begun; use a new tape");
  Tape trace(*context_, weights_);
  trace.mode_ = trace_;
  Variables stand_ins;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Variable& v = inputs[i];
    require<ValueError>(v.defined() && (v.tape_ == nullptr || v.tape_ == this), "recompute: input {} {}", i,
                        v.defined() ? "is on another tape" : "has no value");
    const Slot* slot = v.tape_ ? &slots_[static_cast<std::size_t>(v.slot_)] : nullptr;
    require<ValueError>(!slot || slot->kind != ValueKind::weight || slot->weight,
                        "recompute: input {} is an expression of weights; make it within the segment", i);
    stand_ins.push_back(slot && slot->weight ? trace.weight(*slot->weight, slot->requires_grad)
                                             : trace.input(v.tensor(), v.requires_grad_));
  }
  const std::size_t nodes = nodes_.size();
  Variables outputs = segment(stand_ins, trace);
  for (const Variable& v : outputs)
    require<ValueError>(
        nodes == nodes_.size() && (v.tape_ == nullptr || v.tape_ == &trace),
        "recompute: the segment uses a value that needs a gradient and is not among its inputs");

  Node node;
  node.replay = std::make_unique<Replay>();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    node.inputs.push_back(inputs[i].slot_);
    const bool weight = inputs[i].tape_ && inputs[i].kind_ == ValueKind::weight;
    if (!weight)
      node.saved.push_back({Saved::From::input, static_cast<int>(i), ~InputMask{0}, inputs[i].tensor(),
                            inputs[i].tensor().version()});
  }
  for (std::size_t s = inputs.size(); s < trace.slots_.size(); ++s) {
    const Slot& slot = trace.slots_[s];
    if (!slot.weight || !slot.requires_grad) continue;
    auto& known = node.replay->weights;
    if (std::find(known.begin(), known.end(), *slot.weight) == known.end()) known.push_back(*slot.weight);
  }
  stand_ins.clear();
  const int number = static_cast<int>(nodes_.size());
  Variables results;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    Variable& v = outputs[k];
    if (v.tape_ && v.slot_ >= 0 && static_cast<std::size_t>(v.slot_) < inputs.size()) {
      results.push_back(inputs[static_cast<std::size_t>(v.slot_)]);  // handed through
    } else if (!v.requires_grad_) {
      results.emplace_back(v.tensor());
    } else {
      const int place = static_cast<int>(node.outputs.size());
      node.outputs.push_back(static_cast<int>(slots_.size()));
      node.replay->results.push_back(static_cast<int>(k));
      results.push_back(
          make({ValueKind::activation, true, v.shape(), v.tensor().dtype(), number, place, std::nullopt, {}},
               v.tensor()));
    }
  }
  if (node.outputs.empty()) return results;
  node.replay->segment = std::move(segment);
  nodes_.push_back(std::move(node));
  return results;
}

/// Both halves of a segment's backward, or one. The segment's tape starts from the gradients that its inputs
/// have so far, so that all are added in the order in which one tape would add them.
void Tape::run_replay(Node& node, Half half) {
  Replay& replay = *node.replay;
  if (half == Half::weight) {
    if (replay.tape) replay.tape->backward_weight();
    replay.tape.reset();
    return;
  }
  const auto slot = [&](int s) -> Slot& { return slots_[static_cast<std::size_t>(s)]; };
  Segment segment = std::exchange(replay.segment, {});
  if (std::none_of(node.outputs.begin(), node.outputs.end(), [&](int s) { return slot(s).grad.defined(); }))
    return;

  auto tape = std::make_unique<Tape>(*context_, weights_);
  Variables inputs(node.inputs.size());
  for (const Saved& saved : node.saved) {
    const auto i = static_cast<std::size_t>(saved.index);
    const int s = node.inputs[i];
    inputs[i] = tape->input(checked_value(node, saved), s >= 0 && slot(s).requires_grad);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].defined())
      inputs[i] = tape->weight(*slot(node.inputs[i]).weight, slot(node.inputs[i]).requires_grad);
  node.saved.clear();
  Variables all = segment(inputs, *tape), outputs;
  segment = {};  // and with it what it captured
  Tensors gradients;
  for (std::size_t k = 0; k < node.outputs.size(); ++k) {
    const auto place = static_cast<std::size_t>(replay.results[k]);
    require<ValueError>(place < all.size() && all[place].requires_grad_ && all[place].tape_ == tape.get(),
                        "recompute: the segment did not give the same outputs again");
    all[place].drop_value();
    outputs.push_back(all[place]);
    gradients.push_back(std::exchange(slot(node.outputs[k]).grad, {}));
  }
  all.clear();
  for (Variable& v : inputs) v.drop_value();
  const auto passes_gradient = [&](std::size_t i) {
    return node.inputs[i] >= 0 && inputs[i].requires_grad_ && inputs[i].kind_ == ValueKind::activation;
  };
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (passes_gradient(i))
      tape->slots_[static_cast<std::size_t>(inputs[i].slot_)].grad =
          std::exchange(slot(node.inputs[i]).grad, {});
  tape->start(outputs, gradients);
  gradients.clear();
  tape->walk(half);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!passes_gradient(i)) continue;
    // As it is: one that is still being added up is rounded when all of it is there.
    Tensor gradient = std::exchange(tape->slots_[static_cast<std::size_t>(inputs[i].slot_)].grad, {});
    if (gradient.defined()) add_to_slot(slot(node.inputs[i]), std::move(gradient));
  }
  if (half == Half::input) replay.tape = std::move(tape);
}

}  // namespace penstock
