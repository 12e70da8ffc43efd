// Work::host_wait, and the collectives on host bytes: everything goes to rank 0 in rank order and comes back
// from there.
#include "parallel/comm/communicator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "parallel/comm/polling.h"

namespace penstock {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const T& values) {
  return std::as_bytes(std::span(values));
}

void append_size(std::vector<std::byte>& out, std::uint64_t size) {
  const auto bytes = std::bit_cast<std::array<std::byte, sizeof size>>(size);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

/// List of byte strings <-> one byte string: each with its size in front.
std::vector<std::byte> pack(const std::vector<std::vector<std::byte>>& parts) {
  std::vector<std::byte> packed;
  for (const auto& part : parts) {
    append_size(packed, part.size());
    packed.insert(packed.end(), part.begin(), part.end());
  }
  return packed;
}

std::vector<std::vector<std::byte>> unpack(std::span<const std::byte> packed, const std::string& who) {
  std::vector<std::vector<std::byte>> parts;
  while (!packed.empty()) {
    std::uint64_t size = 0;
    require<CommError>(packed.size() >= sizeof size, "{}: a damaged list of {} bytes", who, packed.size());
    std::memcpy(&size, packed.data(), sizeof size);
    packed = packed.subspan(sizeof size);
    require<CommError>(size <= packed.size(), "{}: a part of {} bytes in a list of {}", who, size,
                       packed.size());
    parts.emplace_back(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(size));
    packed = packed.subspan(size);
  }
  return parts;
}

}  // namespace

bool Work::State::wait(double seconds) {
  return poll_until([this] { return test(); }, seconds);
}

void Work::host_wait(double deadline_seconds, const std::string& waiter) {
  if (!state_) return;
  bool complete = false;
  try {
    complete = state_->wait(deadline_seconds);
  } catch (Error& error) {
    error.add_context(waiter);
    throw;
  }
  require<CommError>(complete, "{}: waited {} s for {}; it is down or stuck (--deadline sets this limit){}",
                     waiter, deadline_seconds, state_->describe(), state_->suspicion());
  state_.reset();
}

std::string Communicator::waiter(const std::string& what) const {
  return fmt::format("rank {}, {}", job_rank(rank()), what);
}

void Communicator::check_message(const Tensor& tensor, int peer, int tag) const {
  require<ValueError>(peer >= 0 && peer < size(), "message with rank {} of a group of {}", peer, size());
  require<ValueError>(tag >= 0 && tag <= collective_tag, "message with tag {}; allowed are 0 to {}", tag,
                      max_tag);
  require<ValueError>(tensor.defined(), "message with rank {}, tag {}: there is no tensor", peer, tag);
  require<DeviceError>(tensor.context().device().kind == DeviceKind::cpu,
                       "message with rank {}, tag {}: the tensor is on {}; only cpu tensors can be sent yet",
                       peer, tag, name_of(tensor.context().device().kind));
  require<ShapeError>(tensor.is_contiguous(),
                      "message with rank {}, tag {}: the tensor of shape {} is not contiguous", peer, tag,
                      tensor.shape().str());
}

std::vector<std::vector<std::byte>> Communicator::gather(std::span<const std::byte> mine,
                                                         const std::string& what) {
  std::vector<std::vector<std::byte>> all;
  if (rank() != 0) {
    send_bytes(mine, 0, what);
    return all;
  }
  all.emplace_back(mine.begin(), mine.end());
  for (int r = 1; r < size(); ++r) all.push_back(recv_bytes(r, what));
  return all;
}

void Communicator::broadcast(std::span<std::byte> bytes, int root, const std::string& what) {
  require<ValueError>(root >= 0 && root < size(), "{} from rank {} of a group of {}", what, root, size());
  if (rank() == root) {
    for (int r = 0; r < size(); ++r)
      if (r != root) send_bytes(bytes, r, what);
    return;
  }
  const std::vector<std::byte> got = recv_bytes(root, what);
  require<CommError>(got.size() == bytes.size(), "{}: rank {} sent {} bytes where {} were expected",
                     waiter(what), job_rank(root), got.size(), bytes.size());
  std::ranges::copy(got, bytes.begin());
}

void Communicator::barrier() {
  gather({}, "barrier");
  broadcast({}, 0, "barrier");
}

void Communicator::broadcast(std::span<std::byte> bytes, int root) { broadcast(bytes, root, "broadcast"); }

std::vector<std::vector<std::byte>> Communicator::all_gather(std::span<const std::byte> mine) {
  const std::string what = "all-gather";
  std::vector<std::vector<std::byte>> all = gather(mine, what);
  if (rank() != 0) {
    all = unpack(recv_bytes(0, what), waiter(what));
    require<CommError>(all.size() == static_cast<std::size_t>(size()), "{}: {} parts for {} ranks",
                       waiter(what), all.size(), size());
    return all;
  }
  const std::vector<std::byte> packed = pack(all);
  for (int r = 1; r < size(); ++r) send_bytes(packed, r, what);
  return all;
}

std::vector<std::string> Communicator::all_gather(const std::string& mine) {
  std::vector<std::string> result;
  for (const auto& part : all_gather(bytes_of(mine))) {
    std::string text(part.size(), '\0');
    if (!part.empty()) std::memcpy(text.data(), part.data(), part.size());
    result.push_back(std::move(text));
  }
  return result;
}

void Communicator::reduce(std::span<double> values, double (*combine)(double, double),
                          const std::string& what) {
  const auto all = gather(std::as_bytes(values), what);
  if (rank() == 0) {
    for (int r = 1; r < size(); ++r) {
      const auto& part = all[static_cast<std::size_t>(r)];
      require<CommError>(part.size() == values.size_bytes(), "{}: rank {} has {} values, rank {} has {}",
                         waiter(what), job_rank(r), part.size() / sizeof(double), job_rank(0), values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        double theirs = 0;
        std::memcpy(&theirs, part.data() + i * sizeof theirs, sizeof theirs);
        values[i] = combine(values[i], theirs);
      }
    }
  }
  broadcast(std::as_writable_bytes(values), 0, what);
}

void Communicator::all_reduce_sum(std::span<double> values) {
  reduce(
      values, [](double a, double b) { return a + b; }, "all-reduce");
}

void Communicator::all_reduce_max(std::span<double> values) {
  reduce(
      values, [](double a, double b) { return std::isnan(a) || a > b ? a : b; }, "all-reduce");
}

Communicator::SplitPlan Communicator::plan_split(int color, int key) {
  require<ValueError>(color >= 0, "split with color {}; it must be 0 or more", color);
  const std::array<int, 2> mine{color, key};
  const auto all = all_gather(bytes_of(mine));
  std::set<int> colors;
  std::vector<std::pair<int, int>> members;  // (key, rank)
  for (int r = 0; r < size(); ++r) {
    std::array<int, 2> theirs{};
    const auto& part = all[static_cast<std::size_t>(r)];
    require<CommError>(part.size() == sizeof theirs, "{}: rank {} is in another collective", waiter("split"),
                       job_rank(r));
    std::memcpy(theirs.data(), part.data(), sizeof theirs);
    colors.insert(theirs[0]);
    if (theirs[0] == color) members.emplace_back(theirs[1], r);
  }
  std::ranges::sort(members);
  SplitPlan plan;
  for (const auto& [k, r] : members) plan.members.push_back(r);
  plan.color_index = static_cast<int>(std::distance(colors.begin(), colors.find(color)));
  plan.colors = static_cast<int>(colors.size());
  return plan;
}

}  // namespace penstock
