// TrainingRun: the usual set-up.
#include "parallel/train/training_run.h"

#include "parallel/comm/launch.h"
#include "parallel/pipeline/schedule/generate.h"
#include "parallel/train/layout.h"

namespace penstock {

TrainingRun::TrainingRun(Communicator& world, const Model& model, BatchSource& source,
                         const TrainingRunOptions& options)
    : optimizer_(options.optimizer ? options.optimizer : std::make_shared<AdamW>(kernels::AdamWSettings{})) {
  const Index batch = source.batch(1), size = options.trainer.micro_batch_size, ranks = world.size();
  require<ValueError>(batch >= 1, "a batch of {} sequences: at least 1 is needed", batch);
  require<ValueError>(size >= 1 && size <= batch,
                      "micro-batches of {} sequences: 1 .. {}, the batch, are possible", size, batch);
  const int threads = options.threads > 0 ? options.threads : default_threads(world, local_host_name());
  context_ = std::make_unique<RankContext>(
      RankContext::Options{.device = {}, .threads = threads, .deadline_seconds = world.deadline_seconds()});

  GenerateOptions wanted;
  wanted.pp = ranks;
  wanted.micro_batches = div_up(batch, size);
  TrainingSetup setup;
  setup.context = context_.get();
  setup.pipeline = &world;
  setup.model = &model;
  setup.plan = executable_plan(generate(options.schedule, wanted));
  setup.partition = options.layers_per_stage.empty()
                        ? balanced_partition(model, source, size, setup.plan.stages, options.recompute)
                        : partition_by_layers(model, options.layers_per_stage, setup.plan.stages);
  setup.optimizer = optimizer_.get();
  setup.stop_request = options.stop_request;
  setup.recompute = recompute_of_blocks(model, setup.partition, options.recompute);
  setup.compute = options.compute;
  setup.on_parameter_gradient = options.on_parameter_gradient;
  setup.on_gradients = options.on_gradients;
  trainer_ = std::make_unique<Trainer>(setup, world, source, options.trainer);
  trainer_->initialize();
}

}  // namespace penstock
