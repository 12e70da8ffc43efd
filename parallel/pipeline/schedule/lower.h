// Lowering: from what to compute to what each rank does, communication and optimizer included.
#pragma once

#include "parallel/pipeline/schedule/plan.h"

namespace penstock {

/// Adds SEND and RECV in one global order of messages, which is free of deadlock under buffered, fifo and
/// rendezvous transports: the plan is run, ranks visited in turn, one action a visit; whenever a value is
/// made that another rank needs, SEND is appended to the maker's row and RECV to the user's row at the same
/// moment. A value that stays on its rank adds nothing. Bubbles take a visit and are dropped. This is also
/// torch.distributed.pipelining's lowering. Throws ValueError for a plan that is lowered already or cannot
/// reach its end (verify names the fault).
Plan lower(const Plan& plan);

/// Adds the optimizer's part, to a lowered plan or not. Where the plan ends with its one update: at the end
/// of each row REDUCE_GRAD of the rank's stages, ascending, then their STEPs, ascending. Where it updates
/// more often (micro_batches_per_update): REDUCE_GRAD and STEP of a stage after every
/// micro_batches_per_update-th backward of it (and the SENDs that directly follow). REDUCE_GRAD and
/// WAIT_REDUCE_GRAD of a file are replaced. Throws ValueError for a forward-only plan or one that has STEPs
/// already.
Plan add_optimizer(const Plan& plan);

}  // namespace penstock
