// evaluate: forward-only passes over held-out batches.
#include <cmath>
#include <map>

#include "parallel/pipeline/schedule/generate.h"
#include "parallel/pipeline/schedule/lower.h"
#include "parallel/pipeline/schedule/verify.h"
#include "parallel/train/trainer.h"

namespace penstock {

EvalRecord evaluate(Executor& executor, Communicator& pipeline, const Placement& placement,
                    BatchSource& source, Index batches, Index micro_batch_size) {
  std::map<Index, Plan> plans;  // by number of micro-batches
  double sums[2] = {0, 0};      // loss, valid targets
  for (Index batch = 1; batch <= batches; ++batch) {
    const Index micro_batches = div_up(source.batch(batch), micro_batch_size);
    auto place = plans.find(micro_batches);
    if (place == plans.end()) {
      const Plan plan = lower(forward_plan(placement, micro_batches));
      require_verified(plan);
      place = plans.emplace(micro_batches, plan).first;
    }
    const PassResult pass = executor.run(place->second, source,
                                         {.mode = Mode::evaluate,
                                          .step = batch,
                                          .micro_batch_size = micro_batch_size,
                                          .state = {.step = batch}});
    for (const double sum : pass.loss_sums) sums[0] += sum;
    sums[1] += static_cast<double>(source.valid_targets(batch));
  }
  const double valid = sums[1];
  pipeline.all_reduce_sum(std::span<double>(sums, 1));
  EvalRecord record;
  record.tokens = static_cast<Index>(valid);
  record.loss = valid > 0 ? sums[0] / valid : 0.0;
  record.perplexity = std::exp(record.loss);
  return record;
}

}  // namespace penstock
