// Collectives and sub-groups against closed forms.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <thread>

#include "tests/parallel/comm/scenarios.h"

namespace penstock::testing {
namespace {

std::vector<std::byte> some_bytes(int seed, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::byte>((i * 131 + static_cast<std::size_t>(seed) * 17 + 1) % 251);
  return bytes;
}

/// Nobody leaves before the last has come. (All ranks of the tests run on one machine and share its steady
/// clock.)
void barrier_holds(Communicator& comm, RankContext&) {
  using Clock = std::chrono::steady_clock;
  std::this_thread::sleep_for(std::chrono::milliseconds(20 * ((comm.rank() + 1) % comm.size())));
  const auto entered = Clock::now().time_since_epoch().count();
  comm.barrier();
  const auto left = Clock::now().time_since_epoch().count();
  const auto all_entered = comm.all_gather(std::to_string(entered));
  for (const std::string& other : all_entered)
    check(std::stoll(other) <= left, "rank {} left the barrier at {} before another came at {}", comm.rank(),
          left, other);
}

void broadcasts(Communicator& comm, RankContext&) {
  for (int root = 0; root < comm.size(); ++root)
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, (std::size_t{3} << 20) + 7}) {
      std::vector<std::byte> bytes =
          comm.rank() == root ? some_bytes(root, count) : std::vector<std::byte>(count);
      comm.broadcast(bytes, root);
      check(bytes == some_bytes(root, count), "broadcast of {} bytes from rank {}", count, root);
    }
}

void gathers(Communicator& comm, RankContext&) {
  // Sizes differ, rank 0 (and every third) has nothing.
  const auto size_of_rank = [](int r) {
    return r % 3 == 0 ? std::size_t{0} : static_cast<std::size_t>(r) * 100000;
  };
  const auto all = comm.all_gather(some_bytes(comm.rank(), size_of_rank(comm.rank())));
  check(all.size() == static_cast<std::size_t>(comm.size()), "{} parts", all.size());
  for (int r = 0; r < comm.size(); ++r)
    check(all[static_cast<std::size_t>(r)] == some_bytes(r, size_of_rank(r)), "all-gather: part {}", r);
  const auto texts = comm.all_gather(comm.rank() == 1 ? std::string() : fmt::format("rank {}", comm.rank()));
  for (int r = 0; r < comm.size(); ++r)
    check(texts[static_cast<std::size_t>(r)] == (r == 1 ? "" : fmt::format("rank {}", r)),
          "all-gather: text {}", r);
}

void reductions(Communicator& comm, RankContext&) {
  const int n = comm.size();
  std::vector<double> values{static_cast<double>(comm.rank() + 1), std::ldexp(1.0, comm.rank())};
  comm.all_reduce_sum(values);
  check(values == std::vector<double>{n * (n + 1) / 2.0, std::ldexp(1.0, n) - 1}, "sums {} {}", values[0],
        values[1]);

  // 1e16 + 1 - 1e16 in this order is 0, in any other order that adds 1 later it is 1: ascending by rank.
  constexpr double ordered[] = {1e16, 1, -1e16, 0, 0};
  double sum[] = {ordered[comm.rank()]};
  comm.all_reduce_sum(sum);
  check(sum[0] == (n >= 3 ? 0 : n == 2 ? 1e16 : 1e16), "ordered sum {}", sum[0]);

  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  std::vector<double> largest{static_cast<double>(-comm.rank() - 1), comm.rank() == n - 1 ? 7.5 : -infinity,
                              comm.rank() == 0 ? nan : 1.0, comm.rank() == n - 1 ? nan : 1.0};
  comm.all_reduce_max(largest);
  check(largest[0] == -1 && largest[1] == 7.5, "largest {} {}", largest[0], largest[1]);
  check(std::isnan(largest[2]) && std::isnan(largest[3]), "a NaN is lost in a maximum: {} {}", largest[2],
        largest[3]);

  std::vector<double> none;
  comm.all_reduce_sum(none);
}

/// A float between about 1e-4 and 1e4, of either sign.
float mixed(int rank, Index i) {
  std::uint64_t x =
      (static_cast<std::uint64_t>(i) * 31 + static_cast<std::uint64_t>(rank) + 1) * 0x9e3779b97f4a7c15ull;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 32;
  const float size =
      std::ldexp(1.0f + static_cast<float>(x & 0xfffff) * 0x1p-20f, static_cast<int>((x >> 20) % 27) - 13);
  return (x >> 60) % 2 == 0 ? size : -size;
}

/// The sum that the contract states, made on one rank by hand; all ranks have its bits, at every run.
void tensor_sums(Communicator& comm, RankContext& context) {
  for (const Index count : {Index{0}, Index{1}, Index{2}, Index{3}, Index{1001}, (Index{2} << 20) + 17}) {
    std::vector<float> mine(static_cast<std::size_t>(count)), expected(static_cast<std::size_t>(count));
    for (Index i = 0; i < count; ++i) {
      mine[static_cast<std::size_t>(i)] = mixed(comm.rank(), i);
      float sum = mixed(0, i);
      for (int r = 1; r < comm.size(); ++r) sum += mixed(r, i);
      expected[static_cast<std::size_t>(i)] = sum;
    }
    for (int run = 0; run < 2; ++run) {
      const Tensor tensor = Tensor::from(context, {count}, mine);
      comm.all_reduce_sum(tensor, context.stream());
      const std::vector<float> got = tensor.to_vector<float>();
      for (std::size_t i = 0; i < got.size(); ++i)
        check(std::bit_cast<std::uint32_t>(got[i]) == std::bit_cast<std::uint32_t>(expected[i]),
              "sum of {} elements, run {}, element {}: {} and not {}", count, run, i, got[i], expected[i]);
    }
  }
  if (comm.size() >= 3) {
    constexpr float ordered[] = {1e8f, 1, -1e8f, 0, 0};
    const Tensor tensor = Tensor::from(context, {1}, std::vector<float>{ordered[comm.rank()]});
    comm.all_reduce_sum(tensor, context.stream());
    check(tensor.item() == 0, "ordered sum {}", tensor.item());
  }
  const Index live = context.allocator().live()[MemoryKind::communication];
  check(live == 0, "{} bytes of workspace are left", live);
  // Several dimensions, and a view into a larger tensor.
  const Tensor whole = Tensor::zeros(context, {3, 2, 2});
  const Tensor middle = whole.slice(0, 1, 2);
  std::fill_n(middle.data_as<float>(), 4, static_cast<float>(comm.rank() + 1));
  comm.all_reduce_sum(middle, context.stream());
  const auto n = static_cast<float>(comm.size());
  const float sum = n * (n + 1) / 2;
  check(whole.to_vector<float>() == std::vector<float>{0, 0, 0, 0, sum, sum, sum, sum, 0, 0, 0, 0},
        "sum of a view");
  try {
    comm.all_reduce_sum(Tensor::zeros(context, {2}, DType::i32), context.stream());
  } catch (const ValueError&) {
    return;
  }
  throw std::logic_error("int32 was summed");
}

/// Sizes that do not agree are an error that names both, within the deadline, and not a wrong sum.
void disagreeing_sizes(Communicator& comm, RankContext& context) {
  const auto part = comm.split(0, comm.rank());
  std::vector<std::byte> bytes(comm.rank() == 0 ? 5 : 9);
  if (comm.rank() == 0)
    part->broadcast(bytes, 0);
  else
    check_comm_error([&] { part->broadcast(bytes, 0); }, {"rank 0", "5 bytes", "9 were expected"});
  std::vector<double> values(comm.rank() == 1 ? 4 : 3);
  if (comm.rank() != 0) part->set_deadline_seconds(0.5);
  if (comm.rank() == 0)
    check_comm_error([&] { part->all_reduce_sum(values); }, {"rank 1 has 4 values", "rank 0 has 3"});
  else
    check_comm_error([&] { part->all_reduce_sum(values); }, {"all-reduce", "waited 0.5 s for rank 0"});
  comm.barrier();
  const auto other = comm.split(0, comm.rank());
  other->set_deadline_seconds(0.5);
  check_comm_error(
      [&] { other->all_reduce_sum(Tensor::zeros(context, {comm.rank() == 0 ? 50 : 60}), context.stream()); },
      {"all-reduce"});
  comm.barrier();
}

/// Half the ranks each, in reverse order; the same tag in parent and child does not mix; a split of a split.
void splits(Communicator& comm, RankContext& context) {
  const int n = comm.size(), me = comm.rank();
  const auto half = comm.split(me % 2 + 5, -me);
  std::vector<int> expected;
  for (int r = n - 1; r >= 0; --r)
    if (r % 2 == me % 2) expected.push_back(r);
  check(half->size() == static_cast<int>(expected.size()), "a half of {} has {} ranks", n, half->size());
  for (int r = 0; r < half->size(); ++r)
    check(half->job_rank(r) == expected[static_cast<std::size_t>(r)], "rank {} of the half is {}", r,
          half->job_rank(r));
  check(expected[static_cast<std::size_t>(half->rank())] == me, "rank {} is {} in its half", me,
        half->rank());
  check(half->deadline_seconds() == comm.deadline_seconds(), "the deadline is not inherited");
  double sum[] = {static_cast<double>(me)};
  half->all_reduce_sum(sum);
  double by_hand = 0;
  for (const int r : expected) by_hand += r;
  check(sum[0] == by_hand, "sum over the half {} and not {}", sum[0], by_hand);

  const auto reversed = comm.split(0, n - me);  // all ranks, the other way round
  const int to = (me + 1) % n, from = (me + n - 1) % n;
  Stream& stream = context.stream();
  const auto value = [&](float v) { return Tensor::from(context, {1}, std::vector<float>{v}); };
  Work first = comm.send(value(static_cast<float>(me)), to, 1, {}, stream);
  Work second = reversed->send(value(static_cast<float>(me + 100)), n - 1 - to, 1, {}, stream);
  const Tensor in_child = value(0), in_parent = value(0);
  reversed->recv(in_child, n - 1 - from, 1, {}, stream).host_wait(60, "child");
  comm.recv(in_parent, from, 1, {}, stream).host_wait(60, "parent");
  first.host_wait(60, "parent");
  second.host_wait(60, "child");
  check(in_child.item() == from + 100 && in_parent.item() == from, "parent {} and child {} are mixed up",
        in_parent.item(), in_child.item());

  const auto alone = half->split(half->rank(), 0);
  check(alone->size() == 1 && alone->rank() == 0 && alone->job_rank(0) == me, "a group of one");
  alone->barrier();
  double own[] = {3.5};
  alone->all_reduce_sum(own);
  check(own[0] == 3.5, "a sum over one rank");
}

/// Many collectives in a row, of all kinds, do not get into each other's way.
void mixed_sequence(Communicator& comm, RankContext& context) {
  for (int round = 0; round < 30; ++round) {
    const int root = round % comm.size();
    int number = comm.rank() == root ? round : -1;
    comm.broadcast(std::as_writable_bytes(std::span(&number, 1)), root);
    check(number == round, "round {}: {}", round, number);
    double sum[] = {static_cast<double>(round)};
    comm.all_reduce_sum(sum);
    check(sum[0] == round * comm.size(), "round {}: sum {}", round, sum[0]);
    const Tensor tensor = Tensor::from(context, {7}, std::vector<float>(7, static_cast<float>(round)));
    comm.all_reduce_sum(tensor, context.stream());
    check(tensor.to_vector<float>() == std::vector<float>(7, static_cast<float>(round * comm.size())),
          "round {}", round);
    if (round % 7 == 0) comm.barrier();
  }
}

}  // namespace

const std::vector<Scenario>& collective_scenarios() {
  static const std::vector<Scenario> list{
      {"barrier_holds", 1, barrier_holds},
      {"broadcasts", 1, broadcasts},
      {"gathers", 1, gathers},
      {"reductions", 1, reductions},
      {"tensor_sums", 1, tensor_sums},
      {"disagreeing_sizes", 2, disagreeing_sizes},
      {"splits", 1, splits},
      {"mixed_sequence", 1, mixed_sequence},
  };
  return list;
}

std::vector<Scenario> all_scenarios() {
  std::vector<Scenario> all = point_to_point_scenarios();
  for (const Scenario& scenario : collective_scenarios()) all.push_back(scenario);
  return all;
}

}  // namespace penstock::testing
