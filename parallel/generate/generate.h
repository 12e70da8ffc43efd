// Text generation: token by token through a forward-only pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "parallel/pipeline/runtime/executor.h"

namespace penstock {

struct SamplingOptions {
  double temperature = 1.0;  ///< 0: greedy
  Index top_k = 0;           ///< 0: off
  double top_p = 1.0;        ///< in (0, 1]
  std::uint64_t seed = 0;
};

/// The next id from logits (V): the largest one (the lowest id among equals) when greedy; else drawn from
/// softmax(logits / temperature) cut to the top_k most likely and then to the fewest that hold top_p. A
/// function of (seed, position) and the logits.
std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, Index position);

struct Generation {
  std::vector<std::int32_t> ids;  ///< new ones; the same on every rank
  std::vector<float>
      logits;  ///< (rows, V) when asked for, on the rank of the last stage: one row for each id but the last
};

/// Continues `prompt` by up to `count` ids, ended also by the model's `positions`. Collective over the
/// pipeline; every rank gives the same arguments. `on_token` sees each new id. Throws ValueError for an empty
/// prompt, one longer than `positions`, or an id outside the vocabulary.
Generation generate_tokens(Executor& executor, Communicator& pipeline, const Placement& placement,
                           std::vector<std::int32_t> prompt, Index count, Index positions, Index vocabulary,
                           const SamplingOptions& options, bool keep_logits,
                           const std::function<void(std::int32_t)>& on_token);

}  // namespace penstock
