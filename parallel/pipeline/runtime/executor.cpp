// Executor: the loop over a rank's actions.
#include "parallel/pipeline/runtime/executor.h"

#include <chrono>
#include <set>

#include "parallel/pipeline/runtime/block_boundary.h"

namespace penstock {
namespace {

enum Direction : int { forward_, backward_ };

// How far ahead of the running action receives are posted: enough for the next forward and the next backward
// of any one-forward-one-backward rhythm, so that both directions are in flight while the rank computes.
constexpr std::size_t receives_ahead = 8;

// Messages of one direction to one rank that may be under way behind a SEND: the next SEND waits until the
// one that many before has arrived. Buffers of messages are thus let go at fixed places of the row, whatever
// the timing: a step has the peak that was predicted for it, and a steady one takes nothing from the system.
// A plan that runs under rendezvous, where this number is 0, cannot lock under it.
constexpr std::size_t sends_in_flight = 2;

// Tags of an attempt; after a failed pass the next one uses others, so that what is left of the old one meets
// nobody.
constexpr Index attempt_tags = Index{1} << 24, attempts = 8;

/// One tag a message of the plan, so that receives may be posted in any order.
int tag_of(const Plan& plan, const MessageHeader& header, Index attempt) {
  constexpr Index parts = 16;
  const Index boundary = header.stage * Index{2} + header.direction;
  return narrow<int>(attempt % attempts * attempt_tags +
                     (boundary * plan.micro_batches + header.micro_batch) * parts + header.part % parts);
}

std::vector<TensorSpec> specs_of(const Tensors& tensors) {
  std::vector<TensorSpec> specs;
  for (const Tensor& t : tensors) specs.push_back({t.shape(), t.dtype()});
  return specs;
}

}  // namespace

struct Executor::Pass {
  const Plan& plan;
  BatchSource& source;
  const PassOptions& options;
  std::vector<Action> actions;
  std::size_t posted = 0;  // receives among the actions before this one are posted
  Index batch = 0;
  std::map<Index, Tensor> losses;          // by micro-batch
  std::map<Index, int> backwards_left;     // B and W of each stage
  std::set<std::pair<int, int>> finished;  // uses of parameters whose gradient was told of
  PassResult result;

  SequenceSpan span(Index micro_batch) const {
    return micro_batch_span(batch, options.micro_batch_size, micro_batch);
  }
};

Executor::Executor(const ExecutorSetup& setup)
    : setup_(setup),
      state_(*setup.context),
      edges_(setup.edges ? setup.edges : std::make_shared<EdgeTable>()) {
  setup_.context->set_between_ops([this] {
    try {
      setup_.pipeline->progress();
    } catch (Error& e) {  // the job has failed: where it was heard of
      if (running_ == nullptr)
        e.add_context(fmt::format("rank {}", setup_.pipeline->job_rank(setup_.pipeline->rank())));
      else if (running_->kind != ActionKind::REDUCE_GRAD && running_->kind != ActionKind::STEP)
        e.add_context(waiter(*running_));  // those two: run_optimizer does
      throw;
    }
  });
}

Executor::~Executor() { setup_.context->set_between_ops({}); }

void Executor::reset() {
  boundaries_.clear();
  flights_.clear();
  sends_.clear();
  ++attempt_;
}

double Executor::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string Executor::waiter(const Action& action) const {
  const int rank = setup_.pipeline->job_rank(setup_.pipeline->rank());
  if (action.kind == ActionKind::REDUCE_GRAD || action.kind == ActionKind::STEP)
    return fmt::format("rank {}, stage {}: {}", rank, action.stage, to_text(action));
  return fmt::format("rank {}, stage {}, micro-batch {}: {}", rank, action.stage, action.micro_batch,
                     to_text(action));
}

/// What crosses the boundary in front of `stage`.
const std::vector<TensorSpec>& Executor::edge(Pass& pass, Index stage, Index micro_batch) {
  const SequenceSpan span = pass.span(micro_batch);
  // The geometry of a micro-batch is its number of sequences and what the source says of their shape.
  RankContext meta({.device = {DeviceKind::meta, 0}});
  const MicroBatch geometry = pass.source.load(meta, pass.options.step, span, true, false);
  std::vector<Index> key{static_cast<Index>(pass.options.mode)};
  for (const Tensor& t : geometry.inputs)
    key.insert(key.end(), t.shape().sizes().begin(), t.shape().sizes().end());
  auto place = edges_->find(key);
  if (place == edges_->end()) {
    std::vector<std::vector<TensorSpec>> edges{specs_of(geometry.inputs)};
    for (BlockProfile& block :
         profile_blocks(*setup_.model, pass.source, pass.options.step, span,
                        {.compute = setup_.weights->compute(), .mode = pass.options.mode}))
      edges.push_back(std::move(block.outputs));
    place = edges_->emplace(key, std::move(edges)).first;
  }
  return place->second[static_cast<std::size_t>(setup_.partition[static_cast<std::size_t>(stage)].begin)];
}

void Executor::post_receive(Pass& pass, const Action& receive) {
  const int direction = receive.kind == ActionKind::RECV_F ? forward_ : backward_;
  const Index stage = receive.stage, boundary = direction == forward_ ? stage : stage + 1;
  const Index from = pass.plan.rank_of(direction == forward_ ? stage - 1 : stage + 1, receive.micro_batch);
  Boundary incoming;
  int part = 0;
  for (const TensorSpec& spec : edge(pass, boundary, receive.micro_batch)) {
    const bool sent = direction == forward_ || spec.has_gradient();
    incoming.tensors.push_back(
        sent ? Tensor::empty(*setup_.context, spec.shape, spec.dtype, MemoryKind::communication) : Tensor());
    if (sent) {
      const MessageHeader header{static_cast<std::int32_t>(boundary),
                                 static_cast<std::int32_t>(receive.micro_batch), direction, part};
      incoming.works.push_back(setup_.pipeline->recv(incoming.tensors.back(), static_cast<int>(from),
                                                     tag_of(pass.plan, header, attempt_), header,
                                                     setup_.context->stream()));
    }
    ++part;
  }
  boundaries_[{direction, boundary, receive.micro_batch}] = std::move(incoming);
}

/// Gives values to the stage on the other side of a boundary when it lives on this rank; otherwise they wait
/// for their SEND.
void Executor::hand_on(Pass&, int direction, Index boundary, Index micro_batch, Tensors values) {
  boundaries_[{direction, boundary, micro_batch}] = {std::move(values), {}};
}

Tensors Executor::take(Pass&, int direction, Index boundary, Index micro_batch) {
  const auto place = boundaries_.find({direction, boundary, micro_batch});
  const Action receive{direction == forward_ ? ActionKind::RECV_F : ActionKind::RECV_B,
                       direction == forward_ ? boundary : boundary - 1, micro_batch};
  require<ValueError>(place != boundaries_.end(), "{}: nothing was received; the plan lacks this action",
                      waiter(receive));
  for (Work& work : place->second.works) work.host_wait(setup_.context->deadline_seconds(), waiter(receive));
  Tensors values = std::move(place->second.tensors);
  boundaries_.erase(place);
  return values;
}

void Executor::send(Pass& pass, const Action& action) {
  const int direction = action.kind == ActionKind::SEND_F ? forward_ : backward_;
  const Index boundary = direction == forward_ ? action.stage + 1 : action.stage;
  const Index to =
      pass.plan.rank_of(direction == forward_ ? action.stage + 1 : action.stage - 1, action.micro_batch);
  Sent sent{action, {}, {}};
  int part = 0;
  for (const Tensor& value : take(pass, direction, boundary, action.micro_batch)) {
    const MessageHeader header{static_cast<std::int32_t>(boundary),
                               static_cast<std::int32_t>(action.micro_batch), direction, part++};
    if (!value.defined()) continue;  // no gradient exists for this part
    sent.tensors.push_back(value.contiguous(MemoryKind::communication));
    sent.works.push_back(setup_.pipeline->send(sent.tensors.back(), static_cast<int>(to),
                                               tag_of(pass.plan, header, attempt_), header,
                                               setup_.context->stream()));
  }
  std::deque<Sent>& under_way = sends_[{to, direction}];
  under_way.push_back(std::move(sent));
  for (; under_way.size() > sends_in_flight; under_way.pop_front()) finish(under_way.front());
}

/// Waits until the messages of a SEND have arrived.
void Executor::finish(Sent& sent) {
  for (Work& work : sent.works) work.host_wait(setup_.context->deadline_seconds(), waiter(sent.action));
}

void Executor::forward(Pass& pass, const Action& action) {
  const Index stage = action.stage, mb = action.micro_batch;
  const bool first = stage == 0, last = stage + 1 == pass.plan.stages;
  const bool train = pass.options.mode == Mode::train;
  Tensors values = first ? Tensors{} : take(pass, forward_, stage, mb);

  const double start = now();
  RankContext& context = *setup_.context;
  MicroBatch batch =
      pass.source.load(context, pass.options.step, pass.span(mb), first, last && pass.options.loss);
  if (first) values = std::move(batch.inputs);
  Flight flight;
  if (train) flight.tape = std::make_unique<Tape>(context, setup_.weights);
  for (Tensor& value : values) {
    const bool gradient = !first && TensorSpec{value.shape(), value.dtype()}.has_gradient();
    flight.inputs.push_back(train ? flight.tape->input(value, gradient) : Variable(value));
  }
  values.clear();
  BlockContext block{.rank = &context,
                     .weights = setup_.weights,
                     .tape = flight.tape.get(),
                     .mode = pass.options.mode,
                     .state = state_.get(),
                     .seed = setup_.seed,
                     .weight_version = setup_.weights->version(),
                     .sequence_ids = batch.sequence_ids,
                     .positions = batch.positions,
                     .segment_ids = batch.segment_ids};
  Variables current = flight.inputs;
  for (Variable& input : flight.inputs) input.drop_value();
  const BlockRange range = setup_.partition[static_cast<std::size_t>(stage)];
  for (block.block = range.begin; block.block < range.end; ++block.block) {
    if (train && block.block > range.begin) current = at_block_boundary(current);
    try {
      if (!setup_.recompute.empty())
        block.recompute = setup_.recompute[static_cast<std::size_t>(block.block)];
      current = run_block(setup_.model->block(block.block), current, block);
    } catch (const CommError&) {
      throw;  // of another rank, and heard of here
    } catch (Error& e) {
      e.add_context(fmt::format("{} in block {}", to_text(action), setup_.model->block(block.block).name()));
      throw;
    }
  }
  if (last) {
    if (pass.options.on_output) pass.options.on_output(mb, current);
    if (pass.options.loss) {
      if (train) current = at_block_boundary(current);
      current = {setup_.model->loss(current, batch.targets)};
      pass.losses[mb] = current[0].tensor();
    }
  } else {
    Tensors out;
    for (const Variable& v : current) out.push_back(v.tensor());
    if (static_cast<int>(pass.plan.rank_of(stage + 1, mb)) != setup_.pipeline->rank())
      check_outputs(pass, action, out);
    hand_on(pass, forward_, stage + 1, mb, std::move(out));
  }
  if (train) {
    for (Variable& v : current) v.drop_value();
    flight.outputs = std::move(current);
    flights_[{stage, mb}] = std::move(flight);
  }
  pass.result.actions.push_back({action, start, now()});
}

/// What another rank waits for must be what it was told: else it would wait in vain.
void Executor::check_outputs(Pass& pass, const Action& action, const Tensors& outputs) {
  const std::vector<TensorSpec>& expected = edge(pass, action.stage + 1, action.micro_batch);
  const BlockRange range = setup_.partition[static_cast<std::size_t>(action.stage)];
  const std::string who = range.begin == range.end ? "a stage without blocks"
                                                   : "block " + setup_.model->block(range.end - 1).name();
  require<ValueError>(outputs.size() == expected.size(),
                      "{}: {} gave {} values, and {} when it ran without memory to find the shapes",
                      waiter(action), who, outputs.size(), expected.size());
  for (std::size_t i = 0; i < outputs.size(); ++i)
    require<ShapeError>(
        outputs[i].defined() && outputs[i].shape() == expected[i].shape &&
            outputs[i].dtype() == expected[i].dtype,
        "{}: {} gave {} as value {}, and {} of {} when it ran without memory to find the shapes",
        waiter(action), who,
        outputs[i].defined() ? fmt::format("{} of {}", outputs[i].shape().str(), name_of(outputs[i].dtype()))
                             : "nothing",
        i, expected[i].shape.str(), name_of(expected[i].dtype));
}

/// The tape's part of a backward. The last of a stage tells of its gradients.
void Executor::run_backward(Pass& pass, Flight& flight, const Action& action, const Tensors& gradients) {
  const bool last = action.kind != ActionKind::I && --pass.backwards_left[action.stage] == 0;
  const auto tell = [&](int block, int parameter) {
    if (!pass.finished.emplace(block, parameter).second) return;
    pass.options.on_gradient(block, parameter, setup_.weights->finished_gradient(block, parameter));
  };
  const bool hooked = last && pass.options.on_gradient;
  if (hooked) flight.tape->on_weight_done([&](const WeightHandle& w) { tell(w.block, w.parameter); });
  switch (action.kind) {
    case ActionKind::W:
      flight.tape->backward_weight();
      break;
    case ActionKind::B:
      flight.tape->backward(flight.outputs, gradients);
      break;
    default:
      flight.tape->backward_input(flight.outputs, gradients);
  }
  if (!hooked) return;
  flight.tape->on_weight_done({});
  const BlockRange range = setup_.partition[static_cast<std::size_t>(action.stage)];
  for (int b = range.end - 1; b >= range.begin; --b)  // those that this micro-batch did not use
    for (const Parameter& p : setup_.model->block(b).parameters())
      if (!p.frozen) tell(b, p.index);
}

void Executor::backward(Pass& pass, const Action& action) {
  const Index stage = action.stage, mb = action.micro_batch;
  const bool last = stage + 1 == pass.plan.stages;
  const auto place = flights_.find({stage, mb});
  require<ValueError>(place != flights_.end(), "{}: no forward of this micro-batch is in flight",
                      to_text(action));
  Flight& flight = place->second;
  if (action.kind == ActionKind::W) {
    const double start = now();
    run_backward(pass, flight, action, {});
    flights_.erase(place);
    pass.result.actions.push_back({action, start, now()});
    return;
  }
  Tensors gradients = last ? Tensors{state_.loss_seed()} : take(pass, backward_, stage + 1, mb);
  const double start = now();
  run_backward(pass, flight, action, gradients);
  gradients.clear();
  if (stage > 0) {
    Tensors out;
    const std::vector<TensorSpec>& specs = edge(pass, stage, mb);
    for (std::size_t i = 0; i < flight.inputs.size(); ++i) {
      if (!flight.inputs[i].requires_grad()) {
        out.emplace_back();
        continue;
      }
      Tensor gradient = flight.tape->take_grad(flight.inputs[i]);
      // A value that nothing depends on has a gradient of zeros on the wire: both sides agree on what is
      // sent.
      out.push_back(gradient.defined() ? gradient
                                       : Tensor::zeros(*setup_.context, specs[i].shape, specs[i].dtype));
    }
    hand_on(pass, backward_, stage, mb, std::move(out));
  }
  if (action.kind == ActionKind::B) flights_.erase(place);
  pass.result.actions.push_back({action, start, now()});
}

PassResult Executor::run(const Plan& plan, BatchSource& source, const PassOptions& options) {
  require<ValueError>(boundaries_.empty() && flights_.empty() && sends_.empty(),
                      "the executor holds parts of a pass that failed; reset() it first");
  require<ValueError>(plan.lowered && plan.pp == setup_.pipeline->size(),
                      "a lowered plan for {} ranks wanted, not {} for {}", setup_.pipeline->size(),
                      plan.schedule, plan.pp);
  require<ValueError>(plan.stages == static_cast<Index>(setup_.partition.size()),
                      "a plan with {} stages, a partition with {}", plan.stages, setup_.partition.size());
  Pass pass{plan, source, options, plan.actions(setup_.pipeline->rank()), 0, source.batch(options.step), {},
            {},   {},     {}};
  for (const Action& action : pass.actions)
    for (const Action& part : parts(action))
      if (part.kind == ActionKind::B || part.kind == ActionKind::W) ++pass.backwards_left[part.stage];
  require<ValueError>(div_up(pass.batch, options.micro_batch_size) == plan.micro_batches,
                      "{} sequences in micro-batches of {} are not the plan's {}", pass.batch,
                      options.micro_batch_size, plan.micro_batches);
  state_.set(options.state);
  // Failures that are heard of between ops name the action; none is running when this is left.
  const std::unique_ptr<const Action*, void (*)(const Action**)> idle(
      &running_, [](const Action** running) { *running = nullptr; });
  for (std::size_t i = 0; i < pass.actions.size(); ++i) {
    for (; pass.posted < pass.actions.size() && pass.posted <= i + receives_ahead; ++pass.posted)
      if (is_receive(pass.actions[pass.posted].kind)) post_receive(pass, pass.actions[pass.posted]);
    const Action& action = pass.actions[i];
    running_ = &action;
    setup_.pipeline->set_activity(waiter(action));
    switch (action.kind) {
      case ActionKind::F:
        forward(pass, action);
        break;
      case ActionKind::B:
      case ActionKind::I:
      case ActionKind::W:
        backward(pass, action);
        break;
      case ActionKind::OVERLAP_F_B:
        for (const Action& half : parts(action))
          half.kind == ActionKind::F ? forward(pass, half) : backward(pass, half);
        break;
      case ActionKind::SEND_F:
      case ActionKind::SEND_B:
        send(pass, action);
        break;
      case ActionKind::RECV_F:
      case ActionKind::RECV_B:
        break;  // posted ahead; the consumer waits
      case ActionKind::UNSHARD:
      case ActionKind::RESHARD:
      case ActionKind::WAIT_SEND_F:
      case ActionKind::WAIT_SEND_B:
      case ActionKind::WAIT_REDUCE_GRAD:
        break;  // of other runtimes; weights are whole here, and waits are where they must be
      case ActionKind::REDUCE_GRAD:
      case ActionKind::STEP:
        collect_losses(pass);
        if (options.optimizer_action) run_optimizer(pass, action);
        break;
      default:
        throw ValueError("{}: the executor does not run this kind of action yet", to_text(action));
    }
    setup_.context->between_ops();
  }
  for (auto& [link, under_way] : sends_)
    for (Sent& sent : under_way) finish(sent);
  sends_.clear();
  collect_losses(pass);
  return std::move(pass.result);
}

void Executor::run_optimizer(Pass& pass, const Action& action) {
  try {
    pass.options.optimizer_action(action, pass.result);
  } catch (CommError& e) {  // of a collective, which knows no stage
    e.add_context(waiter(action));
    throw;
  }
}

/// Reads the losses from the device, once all forwards ran.
void Executor::collect_losses(Pass& pass) {
  if (!pass.result.loss_sums.empty()) return;
  for (const auto& [micro_batch, loss] : pass.losses)
    pass.result.loss_sums.push_back(loss.is_meta() ? 0.0 : loss.item());
}

}  // namespace penstock
