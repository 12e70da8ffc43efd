// reduce_tied_gradients: each holder gets the uses of the others, and adds all in model order.
#include "parallel/pipeline/runtime/tied_gradients.h"

#include <algorithm>

#include "kernels/elementwise.h"

namespace penstock {
namespace {

constexpr int tied_tag = 1 << 27;  // above the tags of boundaries

}  // namespace

void reduce_tied_gradients(RankContext& context, Communicator& pipeline, const Model& model,
                           WeightStore& weights, const std::function<int(int)>& rank_of_block) {
  Stream& stream = context.stream();
  const int me = pipeline.rank();
  for (std::size_t number = 0; number < model.parameters().size(); ++number) {
    const ParameterRecord& parameter = model.parameters()[number];
    if (parameter.uses.size() < 2 || parameter.frozen) continue;
    std::vector<int> holders;
    for (const auto& use : parameter.uses) {
      const int rank = rank_of_block(use.block);
      if (std::find(holders.begin(), holders.end(), rank) == holders.end()) holders.push_back(rank);
    }
    if (std::find(holders.begin(), holders.end(), me) == holders.end()) continue;

    Tensors gradients;  // of every use, mine or received
    std::vector<Work> works;
    Tensor mine;  // accumulator of the first use here
    for (std::size_t u = 0; u < parameter.uses.size(); ++u) {
      const auto& use = parameter.uses[u];
      const int owner = rank_of_block(use.block);
      const int tag = tied_tag + static_cast<int>(number * 16 + u % 16);
      const MessageHeader header{use.block, -1, 2, static_cast<std::int32_t>(u)};
      if (owner == me) {
        gradients.push_back(weights.gradient_of(use.block, use.parameter));
        if (!mine.defined()) mine = gradients.back();
        for (const int other : holders)
          if (other != me) works.push_back(pipeline.send(gradients.back(), other, tag, header, stream));
      } else {
        gradients.push_back(Tensor::empty(context, parameter.shape, DType::f32, MemoryKind::communication));
        works.push_back(pipeline.recv(gradients.back(), owner, tag, header, stream));
      }
    }
    for (Work& work : works)
      work.host_wait(context.deadline_seconds(),
                     fmt::format("rank {}: sum of the gradients of {}", me, parameter.name));
    // ((g0 + g1) + g2) ... : the first use's tensor is the accumulator, wherever it came from.
    const Tensor& sum = gradients[0];
    for (std::size_t u = 1; u < gradients.size(); ++u)
      kernels::add_into(stream, sum.numel(), gradients[u], sum);
    if (sum.data() != mine.data()) mine.copy_from(sum);
  }
}

}  // namespace penstock
