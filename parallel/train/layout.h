// How a training is laid out over the ranks of a pipeline: micro-batches, the plan that is executed, the cut
// of the model. The usual choices, for programs and for runs of one's own.
#pragma once

#include <algorithm>

#include "parallel/pipeline/plan/partition.h"
#include "parallel/pipeline/plan/recompute.h"
#include "parallel/pipeline/runtime/batch_source.h"
#include "parallel/pipeline/schedule/plan.h"

namespace penstock {

/// Sequences of a micro-batch that cut a batch into at least twice as many micro-batches as there are stages,
/// where it is large enough. Bits depend on the size: for the same result in several layouts, choose one for
/// all.
inline Index default_micro_batch_size(Index batch, Index stages) {
  return std::max<Index>(1, batch / (2 * stages));
}

/// A plan as a training executes it: proved, lowered unless it is, with REDUCE_GRAD and STEP, proved again.
/// Throws ValueError with rank, position and rule for a plan that cannot be.
Plan executable_plan(const Plan& plan);

/// The cut between layers whose most expensive stage is cheapest, by the arithmetic of each block on the
/// first micro-batch of the source's first step; all stages are equally fast. What `recompute` runs again
/// costs twice. See `partition_by_cost`.
Partition balanced_partition(const Model& model, BatchSource& source, Index micro_batch_size, Index stages,
                             const RecomputePolicy& recompute = {});

}  // namespace penstock
