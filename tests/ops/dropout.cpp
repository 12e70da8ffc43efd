// Op record: dropout.
#include "autograd/ops/dropout.h"

#include "core/philox.h"
#include "ops/table/record.h"
#include "ops/table/run.h"

namespace penstock::testing {
namespace {

constexpr std::uint64_t key = 0x123456789ABCDEFULL;

Sample dropout_sample(const std::string& name, const Shape& x, float probability,
                      const std::vector<double>& sequences) {
  Sample s;
  s.name = name;
  s.arguments = {normal(name + ".x", x), int64s(Shape{x[0]}, sequences)};
  s.output = x;
  s.saved_bytes = 0;
  s.apply = [probability](const Variables& in, const StepState* state) {
    return ops::dropout(in[0], probability, key, state, in[1]);
  };
  set_reference(s, [=]<class Real>(const std::vector<std::vector<Real>>& in) {
    std::vector<Real> y = in[0];
    const std::size_t elements = sequences.empty() ? 0 : y.size() / sequences.size();
    for (std::size_t b = 0; b < sequences.size(); ++b)
      for (std::size_t e = 0; e < elements; ++e) {
        const std::uint32_t word =
            philox_element(RandomKey{key}, static_cast<std::uint32_t>(sample_state().step),
                           static_cast<std::uint32_t>(sequences[b]), e);
        const bool keep = uniform_float(word) >= probability;
        y[b * elements + e] *= keep ? Real(1) / (Real(1) - static_cast<Real>(probability)) : Real(0);
      }
    return y;
  });
  return s;
}

std::vector<Sample> samples() {
  std::vector<Sample> all{
      dropout_sample("odd", Shape{3, 5, 7}, 0.3f, {4, 0, 9}),
      dropout_sample("ascending", Shape{4, 33}, 0.1f, {0, 1, 2, 3}),
      dropout_sample("nearly_all", Shape{2, 31}, 0.95f, {0, 1}),
      dropout_sample("one", Shape{1}, 0.5f, {3}),
      dropout_sample("size_one", Shape{1, 1, 9}, 0.5f, {100000}),
      dropout_sample("no_sequences", Shape{0, 4}, 0.5f, {}),
      dropout_sample("no_elements", Shape{3, 0}, 0.5f, {0, 1, 2}),
      dropout_sample("large", Shape{2, 40001}, 0.1f, {7, 8}),
  };
  Sample views = dropout_sample("transposed", Shape{4, 6, 5}, 0.4f, {5, 5, 5, 5});
  views.arguments[0].layout = Layout::transposed;
  views.arguments[1].layout = Layout::repeated;
  all.push_back(views);
  Sample sliced = dropout_sample("sliced", Shape{4, 6}, 0.4f, {1, 2, 3, 4});
  sliced.arguments[0].layout = sliced.arguments[1].layout = Layout::sliced;
  all.push_back(sliced);
  Sample none = dropout_sample("probability_zero", Shape{3, 4}, 0.0f, {0, 1, 2});
  all.push_back(none);
  return all;
}

Variable drop(RankContext& c, float probability, const Shape& x = {2, 3}, const Shape& sequences = {2},
              DType dtype = DType::i64) {
  static const StepState state;
  return ops::dropout(some(c, x), probability, key, &state, some(c, sequences, dtype));
}

const RegisterOp record({
    .name = "dropout",
    .tolerances = {{DType::f32, 2e-7, 0, 4e-7, "a quotient and a product"}},
    .samples = samples,
    .benchmarks =
        [] {
          return std::vector<Sample>{
              dropout_sample("8x1024x768", Shape{8, 1024, 768}, 0.1f, {0, 1, 2, 3, 4, 5, 6, 7})};
        },
    .refusals = {{"one", [](RankContext& c) { drop(c, 1.0f); }, "dropout: probability 1 is not in [0, 1)"},
                 {"negative", [](RankContext& c) { drop(c, -0.1f); },
                  "dropout: probability -0.1 is not in [0, 1)"},
                 {"nan", [](RankContext& c) { drop(c, __builtin_nanf("")); },
                  "dropout: probability nan is not in [0, 1)"},
                 {"sequences",
                  [](RankContext& c) {
                    drop(c, 0.5f, {2, 3}, {3});
                  },
                  "dropout: sequence numbers (3) for x (2, 3)"},
                 {"scalar", [](RankContext& c) { drop(c, 0.5f, {}, {1}); },
                  "dropout: sequence numbers (1) for x ()"},
                 {"sequence_dtype",
                  [](RankContext& c) {
                    drop(c, 0.5f, {2, 3}, {2}, DType::u8);
                  },
                  "dropout: sequence numbers are int32 or int64, not uint8"},
                 {"no_value",
                  [](RankContext& c) {
                    ops::dropout(some(c, {2, 3}), 0.5f, key, nullptr, Variable());
                  },
                  "dropout: input 1 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
