// Sum of a tensor over the ranks with a fixed order of additions: reduce-scatter, then all-gather
// (Rabenseifner 2004, "Optimization of collective reduction operations"), but every owner gets its piece from
// all ranks and adds them ascending by rank.
#include <algorithm>

#include "parallel/comm/communicator.h"

namespace penstock {
namespace {

constexpr Index window_elements = Index{1} << 20;  // bounds the workspace to 4 MiB

/// Bounds of rank r's share of `count` elements.
Index share(Index count, int r, int ranks) { return count * r / ranks; }

}  // namespace

void Communicator::all_reduce_sum(const Tensor& tensor, Stream& stream) {
  check_message(tensor, rank(), collective_tag);
  require<ValueError>(tensor.dtype() == DType::f32, "all-reduce sums fp32, not {}", name_of(tensor.dtype()));
  if (size() == 1 || tensor.numel() == 0) return;
  const int ranks = size();
  const int me = rank();
  const std::string who = waiter("all-reduce");
  const Tensor flat = tensor.reshape({tensor.numel()});
  const Index widest = div_up(std::min(window_elements, flat.numel()), ranks);
  const Tensor workspace =
      Tensor::empty(tensor.context(), {ranks * widest}, DType::f32, MemoryKind::communication);

  std::vector<Work> sends, receives;
  const auto finish = [&](std::vector<Work>& works) {
    for (Work& work : works) work.host_wait(deadline_seconds(), who);
    works.clear();
  };

  for (Index begin = 0; begin < flat.numel(); begin += window_elements) {
    const Index count = std::min(window_elements, flat.numel() - begin);
    const auto piece = [&](int r) {
      return flat.slice(0, begin + share(count, r, ranks), begin + share(count, r + 1, ranks));
    };
    const auto header = [&](int owner) {
      return MessageHeader{.stage = -1, .micro_batch = -1, .direction = 2, .part = owner};
    };
    const Tensor own = piece(me);
    std::vector<const float*> parts(static_cast<std::size_t>(ranks), own.data_as<float>());

    // Each rank's part of my piece comes here, my parts of the others' pieces go there.
    for (int step = 1; step < ranks; ++step) {
      const int to = (me + step) % ranks, from = (me + ranks - step) % ranks;
      if (own.numel() > 0) {
        const Tensor place = workspace.slice(0, from * widest, from * widest + own.numel());
        parts[static_cast<std::size_t>(from)] = place.data_as<float>();
        receives.push_back(recv(place, from, collective_tag, header(me), stream));
      }
      if (const Tensor theirs = piece(to); theirs.numel() > 0)
        sends.push_back(send(theirs, to, collective_tag, header(to), stream));
    }
    finish(receives);
    stream.synchronize();
    float* sum = own.data_as<float>();
    for (Index i = 0; i < own.numel(); ++i) {
      float value = parts[0][i];
      for (std::size_t r = 1; r < parts.size(); ++r) value += parts[r][i];
      sum[i] = value;
    }
    finish(sends);  // the pieces of others are overwritten from here on

    for (int step = 1; step < ranks; ++step) {
      const int to = (me + step) % ranks, from = (me + ranks - step) % ranks;
      if (const Tensor theirs = piece(from); theirs.numel() > 0)
        receives.push_back(recv(theirs, from, collective_tag, header(from), stream));
      if (own.numel() > 0) sends.push_back(send(own, to, collective_tag, header(me), stream));
    }
    finish(receives);
    finish(sends);
  }
}

}  // namespace penstock
