// One rank that runs a whole model on one batch with the library's own parts: what the tests of models share.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "nn/model.h"
#include "nn/optimizer.h"
#include "parallel/comm/thread_group.h"
#include "parallel/pipeline/runtime/tied_gradients.h"
#include "parallel/train/token_batches.h"
#include "support/reference_files.h"

namespace penstock::testing {

inline std::vector<int> all_blocks(const Model& model) {
  std::vector<int> blocks(static_cast<std::size_t>(model.size()));
  std::iota(blocks.begin(), blocks.end(), 0);
  return blocks;
}

class ModelSession {
 public:
  explicit ModelSession(Model whole, int threads = 1)
      : context({.threads = threads, .poison = true}),
        model(std::move(whole)),
        store(context, model, all_blocks(model), {.gradients = true, .optimizer_buffers = 2}),
        state(context),
        self_(ThreadGroup(1).communicator(0)) {}

  struct Batch {
    Shape shape = {};  // (B, T)
    std::vector<std::int32_t> ids = {};
    std::vector<std::int32_t> targets = {};    // -1: ignored
    std::vector<std::int32_t> positions = {};  // empty: 0 .. T-1
    std::vector<std::int32_t> segments = {};   // empty: none
    std::vector<std::int64_t> sequences = {};  // empty: 0 .. B-1
  };

  /// Logits (B, T, V).
  Variables forward(const Batch& batch, Tape* tape, Mode mode = Mode::evaluate) {
    const MicroBatch usual = micro_batch_of(context, {0, batch.shape[0]}, batch.shape[1]);
    BlockContext block_context{.rank = &context,
                               .weights = &store,
                               .tape = tape,
                               .mode = mode,
                               .state = state.get(),
                               .seed = 77,
                               .sequence_ids = usual.sequence_ids,
                               .positions = usual.positions,
                               .segment_ids = {}};
    if (!batch.positions.empty())
      block_context.positions = Tensor::from(context, batch.shape, batch.positions);
    if (!batch.segments.empty())
      block_context.segment_ids = Tensor::from(context, batch.shape, batch.segments);
    if (!batch.sequences.empty())
      block_context.sequence_ids = Tensor::from(context, Shape{batch.shape[0]}, batch.sequences);
    Variables values{Variable(Tensor::from(context, batch.shape, batch.ids))};
    for (int b = 0; b < model.size(); ++b) {
      block_context.block = b;
      values = model.block(b).forward(values, block_context);
    }
    return values;
  }
  std::vector<float> logits(const Batch& batch, Mode mode = Mode::evaluate) {
    return forward(batch, nullptr, mode)[0].tensor().to_vector<float>();
  }

  struct Result {
    double loss = 0, norm = 0;
  };

  /// Mean loss over the valid targets, its gradients into the store, and their norm.
  Result backward(const Batch& batch) {
    const auto valid =
        std::count_if(batch.targets.begin(), batch.targets.end(), [](std::int32_t t) { return t >= 0; });
    store.begin_step();
    Tape tape(context, &store);
    const Variables outputs = forward(batch, &tape, Mode::train);
    const Variable loss = model.loss(outputs, {Tensor::from(context, batch.shape, batch.targets)});
    const double sum = loss.tensor().item();
    const float seed = valid > 0 ? static_cast<float>(1.0 / static_cast<double>(valid)) : 0.0f;
    tape.backward(Variables{loss}, Tensors{Tensor::from(context, Shape{1}, std::vector<float>{seed})});
    store.finish_gradients();
    reduce_tied_gradients(context, *self_, model, store, [](int) { return 0; });
    double squares = 0;
    for (const double s : gradient_norm_table(context, store, model)) squares += s;
    return {valid > 0 ? sum / static_cast<double>(valid) : 0.0, std::sqrt(squares)};
  }

  RankContext context;
  Model model;
  WeightStore store;
  DeviceStepState state;

 private:
  std::unique_ptr<Communicator> self_;
};

/// The batch of a reference model: expected.safetensors holds ids and targets as int64 with -100 for an
/// ignored one.
inline ModelSession::Batch reference_batch(const SafetensorsFile& expected, const std::string& targets) {
  const SafetensorsEntry& ids = expected.at("input_ids");
  ModelSession::Batch batch{.shape = ids.shape};
  for (const std::int64_t id : values_of<std::int64_t>(ids)) batch.ids.push_back(narrow<std::int32_t>(id));
  for (const std::int64_t t : values_of<std::int64_t>(expected.at(targets)))
    batch.targets.push_back(t == -100 ? -1 : narrow<std::int32_t>(t));
  return batch;
}

}  // namespace penstock::testing
