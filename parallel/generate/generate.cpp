// generate_tokens and sample.
#include "parallel/generate/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/convert.h"
#include "core/philox.h"
#include "parallel/pipeline/schedule/generate.h"
#include "parallel/pipeline/schedule/lower.h"
#include "parallel/pipeline/schedule/verify.h"

namespace penstock {
namespace {

/// The sequence so far as a batch of one.
class SequenceSource final : public BatchSource {
 public:
  explicit SequenceSource(std::vector<std::int32_t> prompt) : ids(std::move(prompt)) {}

  Index batch(Index) override { return 1; }
  Index tokens(Index) override { return length(); }
  Index valid_targets(Index) override { return 0; }
  MicroBatch load(RankContext& context, Index, SequenceSpan sequences, bool inputs, bool) override {
    MicroBatch batch = micro_batch_of(context, sequences, length());
    if (inputs) batch.inputs = {Tensor::from(context, Shape{1, length()}, ids)};
    return batch;
  }

  Index length() const { return static_cast<Index>(ids.size()); }

  std::vector<std::int32_t> ids;
};

}  // namespace

std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, Index position) {
  require<ValueError>(!logits.empty(), "sampling from no logits");
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (options.temperature == 0) return static_cast<std::int32_t>(largest - logits.begin());
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  if (options.top_k > 0 && options.top_k < static_cast<Index>(order.size()))
    order.resize(static_cast<std::size_t>(options.top_k));
  std::vector<double> weights;
  for (const std::int32_t id : order)
    weights.push_back(
        std::exp((static_cast<double>(logits[static_cast<std::size_t>(id)]) - static_cast<double>(*largest)) /
                 options.temperature));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double kept = 0;
  std::size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < options.top_p * total)) kept += weights[count++];
  const RandomKey key = random_key(options.seed, RandomPurpose::sample, "generate");
  const PhiloxBlock words = philox_block(key, 0, 0, static_cast<std::uint64_t>(position));
  double left = uniform_double(words.word[0], words.word[1]) * kept;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[count - 1];
}

Generation generate_tokens(Executor& executor, Communicator& pipeline, const Placement& placement,
                           std::vector<std::int32_t> prompt, Index count, Index positions, Index vocabulary,
                           const SamplingOptions& options, bool keep_logits,
                           const std::function<void(std::int32_t)>& on_token) {
  require<ValueError>(!prompt.empty(), "the prompt is empty: at least one token is needed to continue from");
  require<ValueError>(static_cast<Index>(prompt.size()) <= positions,
                      "a prompt of {} tokens, but the model has {} positions", prompt.size(), positions);
  for (const std::int32_t id : prompt)
    require<ValueError>(id >= 0 && id < vocabulary, "id {} in the prompt: the model's vocabulary is 0 to {}",
                        id, vocabulary - 1);
  const Plan plan = lower(forward_plan(placement, 1));
  require_verified(plan);
  const int last_rank = static_cast<int>(plan.rank_of(plan.stages - 1, 0));
  Generation result;
  SequenceSource source(std::move(prompt));
  for (Index n = 0; n < count && source.length() <= positions; ++n) {
    std::int32_t next = 0;
    const auto on_output = [&](Index, const Variables& outputs) {
      const std::vector<float> logits =
          converted(outputs[0].tensor(), DType::f32).to_vector<float>();  // (1, T, V)
      next = sample(std::span(logits).last(static_cast<std::size_t>(vocabulary)), options, source.length());
      if (keep_logits) result.logits = logits;
    };
    executor.run(plan, source,
                 {.mode = Mode::evaluate, .micro_batch_size = 1, .on_output = on_output, .loss = false});
    pipeline.broadcast(std::as_writable_bytes(std::span(&next, 1)), last_rank);
    result.ids.push_back(next);
    source.ids.push_back(next);
    if (on_token) on_token(next);
  }
  if (keep_logits && result.ids.empty() && source.length() > 1) {  // the prompt's own rows
    source.ids.pop_back();
    const auto keep = [&](Index, const Variables& outputs) {
      result.logits = converted(outputs[0].tensor(), DType::f32).to_vector<float>();
    };
    executor.run(plan, source,
                 {.mode = Mode::evaluate, .micro_batch_size = 1, .on_output = keep, .loss = false});
  }
  return result;
}

}  // namespace penstock
