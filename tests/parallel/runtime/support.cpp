// Training on threads, and comparison of its outcome.
#include "parallel/runtime/support.h"

#include <cmath>
#include <cstring>
#include <mutex>

#include "parallel/pipeline/schedule/lower.h"
#include "parallel/pipeline/schedule/verify.h"

namespace penstock::testing {
namespace {

std::mutex outcome_mutex;

/// Puts a tensor's values into the table; a copy on another rank must have the same bits.
void put(Values& table, const std::string& name, const Tensor& tensor) {
  std::vector<float> values = tensor.to_vector<float>();
  const std::lock_guard lock(outcome_mutex);
  const auto [place, fresh] = table.try_emplace(name, values);
  if (!fresh) {
    EXPECT_EQ(std::memcmp(place->second.data(), values.data(), values.size() * sizeof(float)), 0)
        << "copies of " << name;
  }
}

bool equal(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

bool equal(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

void put_gradients(Values& table, const Model& model, const WeightStore& weights) {
  for (const ParameterRecord& p : model.parameters()) {
    for (const auto& use : p.uses) {
      if (p.frozen || !weights.holds(use.block)) continue;
      put(table, p.name, weights.gradient_of(use.block, use.parameter));
      break;  // the sum lies in the first use that a rank holds
    }
  }
}

}  // namespace

Plan executable(const Plan& plan) {
  require_verified(plan);
  Plan result = add_optimizer(plan.lowered ? plan : lower(plan));
  require_verified(result, {.optimizer = true});
  return result;
}

Outcome train(const Training& t) {
  const Plan plan = executable(t.plan);
  const auto ranks = static_cast<std::size_t>(plan.pp);
  Outcome outcome;
  outcome.peaks.resize(ranks);
  outcome.system_allocations.resize(ranks);
  outcome.live_before.resize(ranks);
  outcome.live_after.resize(ranks);
  std::vector<std::vector<StepOutcome>> steps(ranks);
  const auto body = [&](Communicator& pipeline) {
    const auto rank = static_cast<std::size_t>(pipeline.rank());
    RankContext context({.threads = t.threads, .deadline_seconds = 120, .poison = true});
    const auto source = t.source();
    const auto optimizer = t.optimizer ? t.optimizer() : std::make_unique<AdamW>(kernels::AdamWSettings{});
    TrainingSetup setup{.context = &context,
                        .pipeline = &pipeline,
                        .model = t.model,
                        .plan = plan,
                        .partition = t.partition,
                        .optimizer = optimizer.get(),
                        .micro_batch_size = t.micro_batch,
                        .seed = t.seed,
                        .clip = t.clip,
                        .compute = t.compute};
    std::size_t running = 0;
    setup.on_gradients = [&](Index, const WeightStore& weights) {
      if (running == 0) put_gradients(outcome.first_gradients, *t.model, weights);
      if (running + 1 == t.steps.size()) put_gradients(outcome.last_gradients, *t.model, weights);
    };
    setup.recompute = recompute_of_blocks(*t.model, t.partition, t.recompute);
    if (t.adjust) t.adjust(pipeline.rank(), setup);
    TrainingStep training(setup);
    training.weights().initialize(t.seed);
    outcome.live_before[rank] = context.allocator().live();
    for (std::size_t i = 0; i < t.steps.size(); ++i) {
      running = i;
      steps[rank].push_back(training.run(*source, t.steps[i], t.rates.empty() ? 0.01 : t.rates[i]));
      outcome.system_allocations[rank].push_back(context.allocator().system_allocations());
    }
    outcome.live_after[rank] = context.allocator().live();
    outcome.peaks[rank] = context.allocator().peak_total();
    for (const ParameterRecord& p : t.model->parameters()) {
      for (const auto& use : p.uses) {
        if (!training.weights().holds(use.block)) continue;
        put(outcome.weights, p.name, training.weights().value(use.block, use.parameter));
        if (p.frozen || training.weights().is_alias(use.block, use.parameter)) continue;
        for (int k = 0; k < optimizer->buffers(); ++k)
          put(outcome.moments, fmt::format("{}/{}", p.name, k),
              training.weights().optimizer_state(k, use.block, use.parameter));
      }
    }
    if (rank == 0) outcome.updates = training.updates();
  };
  run_ranks(narrow<int>(plan.pp), body, 120);
  outcome.steps = steps[0];
  for (const auto& other : steps) {
    for (std::size_t i = 0; i < other.size(); ++i) {
      EXPECT_TRUE(equal(other[i].loss, steps[0][i].loss)) << "a rank has another loss";
      EXPECT_TRUE(equal(other[i].grad_norm, steps[0][i].grad_norm)) << "a rank has another norm";
      EXPECT_EQ(other[i].skipped, steps[0][i].skipped);
    }
  }
  return outcome;
}

::testing::AssertionResult same_bits(const Values& a, const Values& b, const std::string& what) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure() << what << ": " << a.size() << " and " << b.size() << " tensors";
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end()) return ::testing::AssertionFailure() << what << ": no " << name;
    if (!equal(values, other->second)) {
      std::size_t i = 0;
      while (std::memcmp(&values[i], &other->second[i], sizeof(float)) == 0) ++i;
      return ::testing::AssertionFailure() << what << " of " << name << " differ first at " << i << ": "
                                           << fmt::format("{:.9g} and {:.9g}", values[i], other->second[i]);
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult same_bits(const Outcome& a, const Outcome& b) {
  if (a.steps.size() != b.steps.size()) return ::testing::AssertionFailure() << "numbers of steps";
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    if (!equal(a.steps[i].loss, b.steps[i].loss))
      return ::testing::AssertionFailure()
             << fmt::format("loss {}: {:.17g} and {:.17g}", i, a.steps[i].loss, b.steps[i].loss);
    if (!equal(a.steps[i].grad_norm, b.steps[i].grad_norm))
      return ::testing::AssertionFailure()
             << fmt::format("norm {}: {:.17g} and {:.17g}", i, a.steps[i].grad_norm, b.steps[i].grad_norm);
  }
  for (const auto& result :
       {same_bits(a.first_gradients, b.first_gradients, "first gradients"),
        same_bits(a.last_gradients, b.last_gradients, "last gradients"),
        same_bits(a.weights, b.weights, "weights"), same_bits(a.moments, b.moments, "moments")})
    if (!result) return result;
  return ::testing::AssertionSuccess();
}

double relative_difference(const Values& a, const Values& b) {
  double worst = a.size() == b.size() ? 0.0 : INFINITY;
  for (const auto& [name, values] : a) {
    const std::vector<float>& other = b.at(name);
    double scale = 1e-12, difference = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      scale = std::max(scale, std::abs(static_cast<double>(values[i])));
      const double d = std::abs(static_cast<double>(values[i]) - static_cast<double>(other[i]));
      difference = d <= difference ? difference : d;  // a NaN stays
    }
    if (!(difference / scale <= worst)) worst = difference / scale;
  }
  return worst;
}

Gpt2Config small_gpt2(float dropout, bool tied) {
  Gpt2Config config;
  config.layers = 4;
  config.hidden = 16;
  config.heads = 2;
  config.vocabulary = 13;
  config.positions = 8;
  config.dropout = dropout;
  config.tied_embeddings = tied;
  config.deviation = 0.2f;
  return config;
}

std::vector<std::int32_t> random_ids(std::size_t count, std::int32_t vocabulary, std::uint32_t seed) {
  std::vector<std::int32_t> ids;
  std::uint32_t state = seed * 2654435761u + 12345u;
  while (ids.size() < count) {
    state = state * 1664525u + 1013904223u;
    ids.push_back(static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(vocabulary)));
  }
  return ids;
}

SourceMaker token_source(Index batch, Index length, std::int32_t vocabulary,
                         std::optional<std::int32_t> ignore_target, std::size_t tokens) {
  const TokenRow row(random_ids(tokens, vocabulary));
  return [=] {
    return std::make_unique<TokenBatches>(Sampler(row, {.sequence_length = length,
                                                        .batch = batch,
                                                        .order = DataOrder::shuffled,
                                                        .seed = 3,
                                                        .ignore_target = ignore_target}));
  };
}

Partition even_partition(const Model& model, Index stages) {
  std::vector<Index> layers;
  const Index all = model.layers();
  for (Index s = 0; s < stages; ++s) layers.push_back(all / stages + (s < all % stages ? 1 : 0));
  return partition_by_layers(model, layers, stages);
}

Training uneven_training(const Model& model, const Plan& plan) {
  Training t;
  t.model = &model;
  t.micro_batch = 2;
  t.source = token_source(2 * plan.micro_batches - 1);
  t.plan = plan;
  t.partition = even_partition(model, plan.stages);
  return t;
}

Plan named_plan(const std::string& schedule, Index pp, Index micro_batches) {
  GenerateOptions options;
  options.pp = pp;
  options.micro_batches = micro_batches;
  return generate(schedule, options);
}

Plan plan_of(const std::vector<std::string>& rows) { return plan_from_rows("by hand", rows_from_text(rows)); }

}  // namespace penstock::testing
