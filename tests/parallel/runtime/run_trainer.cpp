// run_loop.
#include "parallel/runtime/run_trainer.h"

#include <mutex>

namespace penstock::testing {

LoopOutcome run_loop(const LoopRun& run) {
  LoopOutcome outcome;
  std::mutex mutex;
  const Plan plan = executable(named_plan(run.schedule, run.pp, run.micro_batches));
  run_ranks(
      narrow<int>(run.pp),
      [&](Communicator& world) {
        RankContext context({.deadline_seconds = 60});
        const auto source = run.source();
        const auto evaluation = run.evaluation ? run.evaluation() : nullptr;
        const auto optimizer =
            run.optimizer ? run.optimizer() : std::make_unique<AdamW>(kernels::AdamWSettings{});
        TrainingSetup setup{.context = &context,
                            .pipeline = &world,
                            .model = run.model,
                            .plan = plan,
                            .partition = even_partition(*run.model, run.pp),
                            .optimizer = optimizer.get()};
        Index asked = 0;
        if (run.stop_after > 0 && world.rank() + 1 == world.size())
          setup.stop_request = [&] {
            return ++asked == run.stop_after ? StopRequest::terminate : StopRequest::none;
          };
        TrainerOptions options = run.options;
        options.micro_batch_size = run.micro_batch;
        Trainer trainer(setup, world, *source, options);
        if (run.resume)
          trainer.resume(Checkpoint::open(*options.checkpoint_directory));
        else
          trainer.initialize();
        if (evaluation) trainer.set_evaluation(*evaluation, run.evaluation_batches);
        TrainerCallbacks callbacks;
        callbacks.step = [&](const StepRecord& r) { outcome.steps.push_back(r); };
        callbacks.evaluation = [&](const EvalRecord& r) { outcome.evaluations.push_back(r); };
        callbacks.checkpoint = [&](const CheckpointRecord& r) { outcome.checkpoints.push_back(r); };
        callbacks.warning = [&](const std::string& text) { outcome.warnings.push_back(text); };
        RunSummary summary = trainer.run(callbacks);
        const std::lock_guard lock(mutex);
        if (world.rank() == 0) {
          outcome.summary = std::move(summary);
          outcome.updates = trainer.step().updates();
        }
        const WeightStore& weights = trainer.step().weights();
        for (const ParameterRecord& p : run.model->parameters()) {
          for (const auto& use : p.uses) {
            if (!weights.holds(use.block)) continue;
            outcome.weights[p.name] = weights.value(use.block, use.parameter).to_vector<float>();
            for (int k = 0; k < optimizer->buffers() && !weights.is_alias(use.block, use.parameter); ++k)
              outcome.moments[fmt::format("{}/{}", p.name, k)] =
                  weights.optimizer_state(k, use.block, use.parameter).to_vector<float>();
          }
        }
      },
      60);
  return outcome;
}

}  // namespace penstock::testing
