// micro_batch_of.
#include "parallel/pipeline/runtime/batch_source.h"

#include <numeric>

namespace penstock {

MicroBatch micro_batch_of(RankContext& context, SequenceSpan sequences, Index length) {
  MicroBatch batch;
  std::vector<std::int64_t> ids(static_cast<std::size_t>(sequences.size()));
  std::iota(ids.begin(), ids.end(), sequences.first);
  std::vector<std::int32_t> positions;
  positions.reserve(static_cast<std::size_t>(sequences.size() * length));
  for (Index b = 0; b < sequences.size(); ++b)
    for (Index t = 0; t < length; ++t) positions.push_back(static_cast<std::int32_t>(t));
  batch.sequence_ids = Tensor::from(context, Shape{sequences.size()}, ids);
  batch.positions = Tensor::from(context, Shape{sequences.size(), length}, positions);
  return batch;
}

}  // namespace penstock
