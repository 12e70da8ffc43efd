// Messages between two ranks: order, matching, size, what goes wrong.
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "tests/parallel/comm/scenarios.h"

namespace penstock::testing {
namespace {

constexpr double limit = 60;  // seconds; a wait that reaches it is a failure

/// Values that tell sender, message and place apart: 1000003 sender + 1009 message + i, mod 2^24 (exact in
/// fp32).
std::vector<float> pattern(int sender, int message, Index count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(
        (1000003ull * static_cast<unsigned>(sender) + 1009ull * static_cast<unsigned>(message) + i) %
        (1ull << 24));
  return values;
}

Tensor filled(RankContext& context, int sender, int message, Index count) {
  return Tensor::from(context, {count}, pattern(sender, message, count));
}

void check_pattern(const Tensor& tensor, int sender, int message) {
  check(tensor.to_vector<float>() == pattern(sender, message, tensor.numel()),
        "message {} of rank {} has other values", message, sender);
}

MessageHeader header(int micro_batch) {
  return {.stage = 1, .micro_batch = micro_batch, .direction = 0, .part = 0};
}

int next(const Communicator& comm) { return (comm.rank() + 1) % comm.size(); }
int previous(const Communicator& comm) { return (comm.rank() + comm.size() - 1) % comm.size(); }

/// Fault class: messages matched by time of arrival and not by tag.
void tags_out_of_order(Communicator& comm, RankContext& context) {
  std::vector<Work> works;
  for (const int tag : {7, 3, Communicator::max_tag, 0}) {
    works.push_back(comm.send(filled(context, comm.rank(), tag % 100, 10 + tag % 7), next(comm), tag,
                              header(tag), context.stream()));
  }
  for (const int tag : {0, 7, Communicator::max_tag, 3}) {
    const Tensor in = Tensor::zeros(context, {10 + tag % 7});
    comm.recv(in, previous(comm), tag, header(tag), context.stream()).host_wait(limit, "tags");
    check_pattern(in, previous(comm), tag % 100);
  }
  for (Work& work : works) work.host_wait(limit, "tags");
}

void one_tag_in_order(Communicator& comm, RankContext& context) {
  constexpr int messages = 20;
  std::vector<Work> receives, sends;
  std::vector<Tensor> in;
  for (int m = 0; m < messages / 2; ++m) {  // half of the receives are posted before the sends, half after
    in.push_back(Tensor::zeros(context, {m * 1000}));
    receives.push_back(comm.recv(in.back(), previous(comm), 5, header(m), context.stream()));
  }
  for (int m = 0; m < messages; ++m)
    sends.push_back(
        comm.send(filled(context, comm.rank(), m, m * 1000), next(comm), 5, header(m), context.stream()));
  for (int m = messages / 2; m < messages; ++m) {
    in.push_back(Tensor::zeros(context, {m * 1000}));
    receives.push_back(comm.recv(in.back(), previous(comm), 5, header(m), context.stream()));
  }
  for (std::size_t m = receives.size(); m-- > 0;)
    receives[m].host_wait(limit, "order");  // waited for from the back
  for (Work& work : sends) work.host_wait(limit, "order");
  for (int m = 0; m < messages; ++m) check_pattern(in[static_cast<std::size_t>(m)], previous(comm), m);
}

/// Known fault 32: both ranks send first, 64 MiB each.
void both_send_first(Communicator& comm, RankContext& context) {
  constexpr Index count = Index{64} << 18;  // 64 MiB of fp32
  if (comm.rank() > 1) return;
  const int peer = 1 - comm.rank();
  Work sending = comm.send(filled(context, comm.rank(), 1, count), peer, 1, header(0), context.stream());
  const Tensor in = Tensor::zeros(context, {count});
  Work receiving = comm.recv(in, peer, 1, header(0), context.stream());
  sending.host_wait(limit, "big send");
  receiving.host_wait(limit, "big receive");
  check_pattern(in, peer, 1);
}

/// A wait for one message moves the others along: here neither send can finish unless the peer serves its
/// posted receive.
void waits_serve_other_messages(Communicator& comm, RankContext& context) {
  constexpr Index count = Index{4} << 18;
  const auto pair = comm.split(comm.rank() / 2, comm.rank());
  if (pair->size() == 2) {
    const int peer = 1 - pair->rank();
    const Tensor in = Tensor::zeros(context, {count});
    Communicator& out_group = pair->rank() == 0 ? comm : *pair;
    Communicator& in_group = pair->rank() == 0 ? *pair : comm;
    const int parent_peer = comm.rank() + (pair->rank() == 0 ? 1 : -1);
    Work receiving =
        in_group.recv(in, &in_group == &comm ? parent_peer : peer, 2, header(0), context.stream());
    out_group
        .send(filled(context, comm.rank(), 2, count), &out_group == &comm ? parent_peer : peer, 2, header(0),
              context.stream())
        .host_wait(limit, "send alone");
    receiving.host_wait(limit, "receive after it");
    check_pattern(in, parent_peer, 2);
  }
  comm.barrier();
}

/// Completion by tests alone, with progress between as the runtime does; a send whose work and tensor are
/// dropped arrives.
void polled_and_dropped(Communicator& comm, RankContext& context) {
  constexpr Index count = Index{1} << 18;
  const Tensor in = Tensor::zeros(context, {count});
  Work receiving = comm.recv(in, previous(comm), 9, header(0), context.stream());
  comm.send(filled(context, comm.rank(), 9, count), next(comm), 9, header(0), context.stream());
  const auto start = std::chrono::steady_clock::now();
  while (!receiving.test()) {
    comm.progress();
    check(std::chrono::steady_clock::now() - start < std::chrono::seconds(60),
          "the message does not arrive by testing");
  }
  check(receiving.test(), "a complete work is complete again");
  check_pattern(in, previous(comm), 9);
  comm.barrier();
}

void empty_tensors(Communicator& comm, RankContext& context) {
  Work sending = comm.send(Tensor::empty(context, {3, 0, 2}), next(comm), 4, header(0), context.stream());
  comm.recv(Tensor::empty(context, {3, 0, 2}), previous(comm), 4, header(0), context.stream())
      .host_wait(limit, "empty");
  sending.host_wait(limit, "empty");
  // The next message under the tag is not mistaken for a part of the empty one.
  Work second = comm.send(filled(context, comm.rank(), 1, 5), next(comm), 4, header(1), context.stream());
  const Tensor in = Tensor::zeros(context, {5});
  comm.recv(in, previous(comm), 4, header(1), context.stream()).host_wait(limit, "after empty");
  second.host_wait(limit, "after empty");
  check_pattern(in, previous(comm), 1);
}

/// Known fault 31 and its kin: another header, shape or dtype is an error that names both, and the next
/// message is fine.
void wrong_messages(Communicator& comm, RankContext& context) {
  struct Case {
    Tensor sent, expected;
    MessageHeader sent_header, expected_header;
    std::vector<std::string> words;
  };
  const auto tensor = [&](const Shape& shape, DType dtype = DType::f32) {
    return Tensor::zeros(context, shape, dtype);
  };
  MessageHeader backward = header(0);
  backward.direction = 1;
  MessageHeader part = header(0);
  part.part = 3;
  MessageHeader stage = header(0);
  stage.stage = 6;
  const std::vector<Case> cases{
      {tensor({2, 3}), tensor({3, 3}), header(0), header(0), {"fp32 (2, 3)", "fp32 (3, 3)"}},
      {tensor({3, 3}), tensor({2, 3}), header(0), header(0), {"fp32 (3, 3)", "fp32 (2, 3)"}},
      {tensor({2, 3}), tensor({3, 2}), header(0), header(0), {"fp32 (2, 3)", "fp32 (3, 2)"}},
      {tensor({100000}), tensor({1}), header(0), header(0), {"fp32 (100000)", "fp32 (1)"}},
      {tensor({0}), tensor({7}), header(0), header(0), {"fp32 (0)", "fp32 (7)"}},
      {tensor({4}), tensor({4}, DType::i32), header(0), header(0), {"fp32 (4)", "int32 (4)"}},
      {tensor({4}), tensor({4}), header(2), header(3), {"micro-batch 2", "micro-batch 3"}},
      {tensor({4}), tensor({4}), header(0), backward, {"forward", "backward"}},
      {tensor({4}), tensor({4}), part, header(0), {"part 3", "part 0"}},
      {tensor({4}), tensor({4}), header(0), stage, {"stage 1", "stage 6"}},
  };
  for (const Case& c : cases) {
    Work sending = comm.send(c.sent, next(comm), 8, c.sent_header, context.stream());
    Work receiving = comm.recv(c.expected, previous(comm), 8, c.expected_header, context.stream());
    std::vector<std::string> words = c.words;
    words.push_back("the waiter");
    words.push_back(fmt::format("rank {}", previous(comm)));
    check_comm_error([&] { receiving.host_wait(limit, "the waiter"); }, words);
    check_comm_error([&] { receiving.test(); }, c.words);  // it stays failed
    sending.host_wait(limit, "wrong send");
  }
  Work sending = comm.send(filled(context, comm.rank(), 6, 50), next(comm), 8, header(0), context.stream());
  const Tensor in = Tensor::zeros(context, {50});
  comm.recv(in, previous(comm), 8, header(0), context.stream()).host_wait(limit, "after wrong ones");
  check_pattern(in, previous(comm), 6);
  sending.host_wait(limit, "after wrong ones");
}

/// A message that does not come: the wait ends in time and says who waited for whom. The work is still good
/// afterwards.
void deadline(Communicator& comm, RankContext& context) {
  const Tensor in = Tensor::zeros(context, {6});
  Work receiving = comm.recv(in, previous(comm), 11, header(4), context.stream());
  check(!receiving.test(), "complete though nothing was sent");
  const auto start = std::chrono::steady_clock::now();
  check_comm_error(
      [&] { receiving.host_wait(0.2, "rank 1, stage 1, micro-batch 4: 1RECV_F4"); },
      {"rank 1, stage 1, micro-batch 4: 1RECV_F4", fmt::format("rank {}", previous(comm)), "0.2 s"});
  const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  check(waited >= 0.2 && waited < 20, "a deadline of 0.2 s took {} s", waited);
  comm.barrier();
  Work sending = comm.send(filled(context, comm.rank(), 2, 6), next(comm), 11, header(4), context.stream());
  receiving.host_wait(limit, "late message");
  check_pattern(in, previous(comm), 2);
  sending.host_wait(limit, "late message");
}

template <class E, class Action>
void check_throws(const char* what, Action&& action) {
  try {
    action();
  } catch (const E&) {
    return;
  }
  throw std::logic_error(fmt::format("accepted: {}", what));
}

void refused_arguments(Communicator& comm, RankContext& context) {
  Stream& stream = context.stream();
  const Tensor good = Tensor::zeros(context, {2, 3});
  check_throws<ValueError>("peer = size", [&] { comm.send(good, comm.size(), 0, {}, stream); });
  check_throws<ValueError>("peer -1", [&] { comm.recv(good, -1, 0, {}, stream); });
  check_throws<ValueError>("tag -1", [&] { comm.send(good, 0, -1, {}, stream); });
  check_throws<ValueError>("large tag", [&] { comm.recv(good, 0, Communicator::max_tag + 2, {}, stream); });
  check_throws<ValueError>("no tensor", [&] { comm.send(Tensor(), 0, 0, {}, stream); });
  check_throws<ShapeError>("strided tensor", [&] { comm.send(good.transpose(0, 1), 0, 0, {}, stream); });
  RankContext::Options options;
  options.device.kind = DeviceKind::meta;
  RankContext meta(options);
  check_throws<DeviceError>("meta tensor", [&] { comm.send(Tensor::empty(meta, {2}), 0, 0, {}, stream); });
  check_throws<ValueError>("negative color", [&] { comm.split(-1, 0); });
  check_throws<ValueError>("root = size", [&] { comm.broadcast({}, comm.size()); });
  check_throws<ValueError>("deadline 0", [&] { comm.set_deadline_seconds(0); });
}

}  // namespace

const std::vector<Scenario>& point_to_point_scenarios() {
  static const std::vector<Scenario> list{
      {"tags_out_of_order", 1, tags_out_of_order},
      {"one_tag_in_order", 1, one_tag_in_order},
      {"both_send_first", 2, both_send_first},
      {"waits_serve_other_messages", 2, waits_serve_other_messages},
      {"polled_and_dropped", 1, polled_and_dropped},
      {"empty_tensors", 1, empty_tensors},
      {"wrong_messages", 1, wrong_messages},
      {"deadline", 1, deadline},
      {"refused_arguments", 1, refused_arguments},
  };
  return list;
}

}  // namespace penstock::testing
