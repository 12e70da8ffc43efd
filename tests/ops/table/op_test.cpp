// Every op of the table, by its record: values, gradients, halves, bits, the meta device, refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/random.h"
#include "ops/table/run.h"

namespace penstock::testing {
namespace {

using Values = std::vector<std::vector<double>>;
using Gradients = std::vector<std::vector<float>>;

class OpTable : public ::testing::TestWithParam<OpRecord> {
 protected:
  /// Freed memory reads as NaN: what an op left unwritten shows.
  static RankContext::Options with_threads(int threads) { return {.threads = threads, .poison = true}; }
};

/// The samples in every dtype of the op.
std::vector<Sample> all_samples(const OpRecord& op) {
  std::vector<Sample> all;
  for (const DType dtype : dtypes_of(op))
    for (Sample& sample : in_dtype(op.samples(), dtype)) all.push_back(std::move(sample));
  return all;
}

bool same_bits(const Gradients& a, const Gradients& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](float p, float q) {
      return std::bit_cast<std::uint32_t>(p) == std::bit_cast<std::uint32_t>(q);
    });
  });
}

double largest(const std::vector<double>& values) {
  double top = 0;
  for (const double v : values) top = std::max(top, std::abs(v));
  return top;
}

template <class Real>
void expect_close(const std::vector<Real>& actual, const std::vector<double>& expected,
                  const Tolerance& tolerance, double magnitude) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(static_cast<double>(actual[i]) - expected[i]);
    const double allowed = tolerance.relative * std::abs(expected[i]) + tolerance.absolute * magnitude;
    if (!(error <= allowed)) {
      ADD_FAILURE() << "element " << i << " is " << actual[i] << ", expected " << expected[i] << ", error "
                    << error << " > " << allowed;
      return;
    }
  }
}

TEST_P(OpTable, HasARecordThatSaysSomething) {
  const OpRecord& op = GetParam();
  EXPECT_GE(op.samples().size(), 8u);
  EXPECT_GE(op.refusals.size(), 2u);
  EXPECT_FALSE(op.tolerances.empty());
  for (const Tolerance& t : op.tolerances) EXPECT_FALSE(t.reason.empty());
}

TEST_P(OpTable, MatchesTheReference) {
  const OpRecord& op = GetParam();
  RankContext context(with_threads(2));
  for (const Sample& sample : all_samples(op)) {
    SCOPED_TRACE(op.name + "/" + sample.name);
    SampleWeights weights(context, sample);
    SampleRun run(context, sample, weights);
    run.forward();
    EXPECT_EQ(run.output_shape(), sample.output);
    const std::vector<double> expected = sample.reference(run.values());
    for (const double e : expected) ASSERT_TRUE(std::isfinite(e)) << "the sample's reference is not finite";
    expect_close(run.output(), expected, tolerance_of(op, sample.dtype), sample.magnitude);
    if (sample.dtype != DType::f32) continue;
    // The tolerance is one that a plain fp32 loop keeps.
    std::vector<std::vector<float>> narrow;
    for (const auto& v : run.values()) narrow.emplace_back(v.begin(), v.end());
    expect_close(sample.reference_fp32(narrow), expected, tolerance_of(op, sample.dtype),
                 4 * sample.magnitude);
  }
}

/// Finite differences of <cotangent, reference> for one argument of a sample.
class Differences {
 public:
  Differences(const Sample& sample, const Values& values, const std::vector<double>& cotangent)
      : sample_(sample), values_(values), cotangent_(cotangent) {}

  double step(std::size_t argument, std::size_t element) const {
    return sample_.step > 0 ? sample_.step : 1e-6 * std::max(1.0, std::abs(values_[argument][element]));
  }

  /// Central difference along `direction` (element and change), not divided by anything.
  double along(std::size_t argument, const std::vector<std::pair<std::size_t, double>>& direction) const {
    Values up = values_, down = values_;
    for (const auto& [element, change] : direction) {
      up[argument][element] += change;
      down[argument][element] -= change;
    }
    const std::vector<double> above = sample_.reference(up), below = sample_.reference(down);
    double sum = 0;  // differences before the sum: outputs that do not depend on it add nothing
    for (std::size_t i = 0; i < above.size(); ++i) sum += cotangent_[i] * (above[i] - below[i]) / 2;
    return sum;
  }

 private:
  const Sample& sample_;
  const Values& values_;
  const std::vector<double>& cotangent_;
};

/// Checks the gradient of one argument: up to `most` elements alone, and all of them along one random
/// direction. Gives the number of comparisons made.
int check_gradient(const Differences& differences, const Sample& sample, std::size_t argument,
                   const std::vector<float>& gradient, double tolerance, std::size_t most) {
  const std::size_t n = sample.arguments[argument].values.size();
  EXPECT_EQ(gradient.size(), n) << "argument " << argument << " has no gradient";
  if (gradient.size() != n || n == 0) return 0;
  const double top = largest({gradient.begin(), gradient.end()});
  int compared = 0;
  const std::size_t stride = n <= most ? 1 : n / most;
  for (std::size_t i = n <= most ? 0 : stride / 2;
       i < n && (n <= most || static_cast<std::size_t>(compared) < most); i += stride, ++compared) {
    const double step = differences.step(argument, i);
    const double expected = differences.along(argument, {{i, step}}) / step;
    const double error = std::abs(static_cast<double>(gradient[i]) - expected);
    if (!(error <= tolerance * std::max(top, std::abs(expected)))) {
      ADD_FAILURE() << "argument " << argument << ", element " << i << ": gradient " << gradient[i]
                    << ", differences give " << expected << ", error " << error << ", largest " << top;
      return compared;
    }
  }
  std::vector<std::pair<std::size_t, double>> direction;
  double expected_sum = 0, length = 0;
  for (std::size_t i = 0; i < n; ++i) {
    float sign = 0;
    fill_normal(random_key(1, RandomPurpose::test, "direction"), 0, 0, static_cast<Index>(i), 1, 0, 1, &sign);
    const double change = 10 * differences.step(argument, i) * static_cast<double>(sign);
    direction.emplace_back(i, change);
    expected_sum += static_cast<double>(gradient[i]) * change;
    length += change * change;
  }
  const double along = differences.along(argument, direction);
  if (!(std::abs(along - expected_sum) <= 4 * tolerance * top * std::sqrt(length)))
    ADD_FAILURE() << "argument " << argument << ": along a random direction the gradient gives "
                  << expected_sum << ", differences " << along;
  return compared + 1;
}

TEST_P(OpTable, GradientsMatchFiniteDifferences) {
  const OpRecord& op = GetParam();
  RankContext context(with_threads(2));
  int samples = 0;
  for (const Sample& sample : all_samples(op))
    for (const bool weights_as_activations : {false, true}) {
      SCOPED_TRACE(op.name + "/" + sample.name + (weights_as_activations ? " as activations" : ""));
      SampleWeights weights(context, sample);
      SampleRun run(context, sample, weights, {.weights_as_activations = weights_as_activations});
      run.forward();
      run.backward();
      const Differences differences(sample, run.values(), run.cotangent());
      const Gradients gradients = run.gradients();
      const std::size_t most = sample.name.starts_with("large") ? 6 : 40;
      int compared = 0, wanted = 0;
      for (std::size_t a = 0; a < sample.arguments.size(); ++a) {
        if (!sample.arguments[a].differentiable()) {
          EXPECT_TRUE(gradients[a].empty());
          continue;
        }
        const std::size_t n = sample.arguments[a].values.size();
        wanted += n == 0 ? 0 : static_cast<int>(std::min(n, most)) + 1;
        compared += check_gradient(differences, sample, a, gradients[a],
                                   tolerance_of(op, sample.dtype).gradient * sample.gradient_slack, most);
      }
      EXPECT_EQ(compared, wanted);
      ++samples;
    }
  EXPECT_EQ(samples, 2 * static_cast<int>(all_samples(op).size()));
}

/// Gradients of three micro-batches of a sample: of their inputs, one after the other, and of the weights.
template <class Schedule>
Gradients three_micro_batches(RankContext& context, const Sample& sample, Schedule&& schedule) {
  SampleWeights weights(context, sample);
  std::vector<std::unique_ptr<SampleRun>> runs;
  for (int m = 0; m < 3; ++m) {
    runs.push_back(std::make_unique<SampleRun>(context, sample, weights, SampleRun::Options{.number = m}));
    runs.back()->forward();
  }
  schedule(runs);
  Gradients all;
  for (auto& run : runs)
    for (std::size_t a = 0; a < sample.arguments.size(); ++a) all.push_back(run->input_gradient(a));
  for (std::size_t a = 0; a < sample.arguments.size(); ++a)
    if (sample.arguments[a].role == Role::weight)
      all.push_back(weights.resolver().gradient_values(weights.handle(a)));
  return all;
}

TEST_P(OpTable, HalvesEqualTheFullBackwardBitForBit) {
  const OpRecord& op = GetParam();
  RankContext context(with_threads(2));
  for (const Sample& sample : all_samples(op)) {
    SCOPED_TRACE(op.name + "/" + sample.name);
    const Gradients full = three_micro_batches(context, sample, [](auto& runs) {
      for (auto& run : runs) run->backward();
    });
    const Gradients halves = three_micro_batches(context, sample, [](auto& runs) {
      for (auto& run : runs) {
        run->backward_input();
        run->backward_weight();
      }
    });
    EXPECT_TRUE(same_bits(full, halves));
    const Gradients delayed = three_micro_batches(context, sample, [](auto& runs) {
      for (auto& run : runs) run->backward_input();
      for (auto& run : runs) run->backward_weight();
    });
    EXPECT_TRUE(same_bits(full, delayed));
    const Gradients interleaved = three_micro_batches(context, sample, [](auto& runs) {
      runs[0]->backward_input();
      runs[1]->backward_input();
      runs[0]->backward_weight();
      runs[2]->backward();  // its W comes before that of 1: only inputs must agree, weights up to rounding
      runs[1]->backward_weight();
    });
    const std::size_t inputs = 3 * sample.arguments.size();
    EXPECT_TRUE(same_bits({full.begin(), full.begin() + static_cast<std::ptrdiff_t>(inputs)},
                          {interleaved.begin(), interleaved.begin() + static_cast<std::ptrdiff_t>(inputs)}));
  }
}

// Known fault 19: the first micro-batch replaces what an accumulator held, the later ones add.
TEST_P(OpTable, WeightGradientsAddUpOverMicroBatches) {
  const OpRecord& op = GetParam();
  RankContext context(with_threads(1));
  int checked = 0;
  for (const Sample& sample : all_samples(op)) {
    SCOPED_TRACE(op.name + "/" + sample.name);
    std::vector<std::vector<double>> sums(sample.arguments.size());
    for (int m = 0; m < 3; ++m) {
      SampleWeights weights(context, sample);
      SampleRun run(context, sample, weights, {.number = m});
      run.forward();
      run.backward();
      const Gradients gradients = run.gradients();
      for (std::size_t a = 0; a < gradients.size(); ++a) {
        sums[a].resize(gradients[a].size());
        for (std::size_t i = 0; i < gradients[a].size(); ++i)
          sums[a][i] += static_cast<double>(gradients[a][i]);
      }
    }
    SampleWeights weights(context, sample);
    for (int m = 0; m < 3; ++m) {
      SampleRun run(context, sample, weights, {.number = m});
      run.forward();
      run.backward();
    }
    for (std::size_t a = 0; a < sample.arguments.size(); ++a) {
      if (sample.arguments[a].role != Role::weight) continue;
      const std::vector<float> all = weights.resolver().gradient_values(weights.handle(a));
      ASSERT_EQ(all.size(), sums[a].size());
      const double allowed = 1e-5 * largest(sums[a]);
      for (std::size_t i = 0; i < all.size(); ++i)
        ASSERT_TRUE(std::abs(static_cast<double>(all[i]) - sums[a][i]) <= allowed)
            << "argument " << a << ", element " << i << ": " << all[i] << ", the micro-batches alone sum to "
            << sums[a][i];
      ++checked;
    }
  }
  int weights = 0;
  for (const Sample& sample : all_samples(op))
    weights += static_cast<int>(std::count_if(sample.arguments.begin(), sample.arguments.end(),
                                              [](const Argument& a) { return a.role == Role::weight; }));
  EXPECT_EQ(checked, weights);
}

// Known fault 37: a gradient that arrives as a view gives what a dense one gives.
TEST_P(OpTable, TakesGradientsOfAnyLayout) {
  const OpRecord& op = GetParam();
  RankContext context(with_threads(1));
  const auto gradients = [&](const Sample& sample, const SampleRun::Options& options) {
    SampleWeights weights(context, sample);
    SampleRun run(context, sample, weights, options);
    run.forward();
    run.backward();
    return run.gradients();
  };
  for (const Sample& sample : all_samples(op)) {
    SCOPED_TRACE(op.name + "/" + sample.name);
    if (sample.output.numel() == 0) continue;  // nothing to lay out
    if (sample.output.rank() >= 2) {
      const Gradients dense = gradients(sample, {});
      EXPECT_TRUE(same_bits(dense, gradients(sample, {.cotangent = Layout::transposed}))) << "transposed";
      EXPECT_TRUE(same_bits(dense, gradients(sample, {.cotangent = Layout::sliced}))) << "sliced";
    }
    if (sample.output.rank() >= 1) {
      EXPECT_TRUE(same_bits(gradients(sample, {.constant_cotangent = true}),
                            gradients(sample, {.cotangent = Layout::repeated, .constant_cotangent = true})))
          << "stride 0";
    }
  }
}

// Each gradient alone is what it is among the others.
TEST_P(OpTable, OneGradientAloneIsTheSame) {
  const OpRecord& op = GetParam();
  RankContext context(with_threads(1));
  for (const Sample& sample : all_samples(op)) {
    SampleWeights weights(context, sample);
    SampleRun all(context, sample, weights, {.weights_as_activations = true});
    all.forward();
    all.backward();
    const Gradients expected = all.gradients();
    for (std::size_t a = 0; a < sample.arguments.size(); ++a) {
      if (!sample.arguments[a].differentiable()) continue;
      SCOPED_TRACE(op.name + "/" + sample.name + " argument " + std::to_string(a));
      SampleRun alone(context, sample, weights,
                      {.weights_as_activations = true, .only = static_cast<int>(a)});
      alone.forward();
      alone.backward();
      const Gradients gradients = alone.gradients();
      for (std::size_t b = 0; b < gradients.size(); ++b) {
        if (a == b) {
          EXPECT_TRUE(same_bits({expected[a]}, {gradients[a]}));
        } else {
          EXPECT_TRUE(gradients[b].empty()) << "argument " << b << " needs no gradient";
        }
      }
    }
  }
}

TEST_P(OpTable, BitsDependOnNeitherRunNorThreads) {
  const OpRecord& op = GetParam();
  RankContext contexts[3] = {RankContext(with_threads(1)), RankContext(with_threads(2)),
                             RankContext(with_threads(3))};
  for (const Sample& sample : all_samples(op)) {
    SCOPED_TRACE(op.name + "/" + sample.name);
    std::vector<double> output;
    Gradients gradients;
    const int runs = sample.dtype == DType::f32 ? 20 : 6;
    for (int r = 0; r < runs; ++r) {
      RankContext& context = contexts[r % 3];
      SampleWeights weights(context, sample);
      SampleRun run(context, sample, weights);
      run.forward();
      const std::vector<double> y = run.output();
      run.backward();
      const Gradients g = run.gradients();
      if (r == 0) {
        output = y;
        gradients = g;
        continue;
      }
      ASSERT_EQ(output.size(), y.size());
      for (std::size_t i = 0; i < y.size(); ++i)
        ASSERT_EQ(std::bit_cast<std::uint64_t>(output[i]), std::bit_cast<std::uint64_t>(y[i]))
            << "run " << r << ", output " << i;
      ASSERT_TRUE(same_bits(gradients, g)) << "run " << r;
    }
  }
}

/// What a device sees of a sample: shapes, and bytes after each half.
struct Trace {
  Shape output;
  std::vector<MemoryCount> live, peak;
  double flops = 0;
};

Trace trace(DeviceKind device, const Sample& sample) {
  RankContext context({.device = {device, 0}});
  SampleWeights weights(context, sample);
  SampleRun run(context, sample, weights);
  Trace result;
  const auto look = [&] {
    result.live.push_back(context.allocator().live());
    result.peak.push_back(context.allocator().peak());
    context.allocator().reset_peak();
  };
  context.allocator().reset_peak();
  run.forward();
  look();
  result.output = run.output_shape();
  run.backward_input();
  look();
  run.backward_weight();
  look();
  result.flops = context.stream().flops();
  return result;
}

TEST_P(OpTable, MetaDeviceGivesTheSameShapesAndBytes) {
  const OpRecord& op = GetParam();
  for (const Sample& sample : all_samples(op)) {
    SCOPED_TRACE(op.name + "/" + sample.name);
    const Trace real = trace(DeviceKind::cpu, sample), meta = trace(DeviceKind::meta, sample);
    EXPECT_EQ(meta.output, sample.output);
    EXPECT_EQ(meta.flops, real.flops);
    for (std::size_t i = 0; i < 3; ++i)
      for (int k = 0; k < memory_kinds; ++k) {
        const auto kind = static_cast<MemoryKind>(k);
        EXPECT_EQ(meta.live[i][kind], real.live[i][kind]) << "live " << name_of(kind) << " after half " << i;
        EXPECT_EQ(meta.peak[i][kind], real.peak[i][kind]) << "peak " << name_of(kind) << " in half " << i;
      }
  }
}

TEST_P(OpTable, KeepsWhatTheRecordSaysAndNothingAfterTheBackward) {
  const OpRecord& op = GetParam();
  int stated = 0;
  for (const Sample& sample : op.samples()) {
    SCOPED_TRACE(op.name + "/" + sample.name);
    const bool dense = std::all_of(sample.arguments.begin(), sample.arguments.end(),
                                   [](const Argument& a) { return a.layout == Layout::dense; });
    RankContext context;
    SampleWeights weights(context, sample);
    SampleRun run(context, sample, weights);
    const Index before = context.allocator().live()[MemoryKind::activation];
    run.forward();
    const Index kept = context.allocator().live()[MemoryKind::activation] - before;
    const bool identity = op.name == "dropout" && sample.name == "probability_zero";
    if (dense && sample.saved_bytes >= 0 && !identity) {
      EXPECT_EQ(kept, run.output_bytes() + sample.saved_bytes);
      ++stated;
    }
    run.backward();
    run.drop_values();
    run.gradients();  // moves them out
    EXPECT_EQ(context.allocator().live()[MemoryKind::activation], before);
    EXPECT_EQ(context.allocator().live()[MemoryKind::workspace], static_cast<Index>(sizeof(StepState)));
  }
  EXPECT_GE(stated, 5);
}

TEST_P(OpTable, RefusesWithAMessage) {
  const OpRecord& op = GetParam();
  RankContext context;
  for (const Refusal& refusal : op.refusals) {
    SCOPED_TRACE(op.name + "/" + refusal.name);
    try {
      refusal.call(context);
      ADD_FAILURE() << "was not refused";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(refusal.message), std::string::npos)
          << "the message is: " << e.what();
    }
    EXPECT_EQ(context.allocator().live().total(), 0) << "a refused call keeps memory";
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, OpTable, ::testing::ValuesIn(op_table()),
                         [](const auto& op) { return op.param.name; });

TEST(OpTableItself, HasTheOpsOfGpt2) {
  std::vector<std::string> names;
  for (const OpRecord& op : op_table()) names.push_back(op.name);
  for (const char* name :
       {"add", "cross_entropy_sum", "dropout", "embedding", "gelu", "layer_norm", "linear", "self_attention"})
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
}

}  // namespace
}  // namespace penstock::testing
