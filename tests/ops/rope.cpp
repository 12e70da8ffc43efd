// Op record: rope. The reference turns complex numbers by std::polar.
#include "autograd/ops/rope.h"

#include <cmath>
#include <complex>

#include "ops/table/record.h"

namespace penstock::testing {
namespace {

using ops::RopeOptions;
using ops::RopeScaling;

/// x (B, T, heads D), or (B, T, heads, D) where `split`; positions of all rows.
Sample rope_sample(const std::string& name, Index batch, Index length, Index heads, Index head,
                   const std::vector<double>& positions, const RopeOptions& options = {},
                   bool split = false) {
  const Shape shape = split ? Shape{batch, length, heads, head} : Shape{batch, length, heads * head};
  Sample s;
  s.name = name;
  s.arguments = {normal("rope." + name, shape), int32s(Shape{batch, length}, positions)};
  s.output = shape;
  s.saved_bytes = 0;
  s.apply = [=](const Variables& in, const StepState*) { return ops::rope(in[0], in[1], head, options); };
  const std::vector<double> frequencies = ops::rope_frequencies(head, options);
  set_reference(s, [=]<class Real>(const std::vector<std::vector<Real>>& in) {
    std::vector<Real> y = in[0];
    const auto half = static_cast<std::size_t>(head / 2);
    for (std::size_t first = 0; first < y.size(); first += 2 * half)
      for (std::size_t i = 0; i < half; ++i) {
        const std::size_t row = first / static_cast<std::size_t>(heads * head);
        const std::complex<double> turn = std::polar(1.0, positions[row] * frequencies[i]);
        const std::complex<Real> pair(in[0][first + i], in[0][first + half + i]);
        const std::complex<Real> turned =
            pair * std::complex<Real>(static_cast<Real>(turn.real()), static_cast<Real>(turn.imag()));
        y[first + i] = turned.real();
        y[first + half + i] = turned.imag();
      }
    return y;
  });
  return s;
}

std::vector<double> ascending(Index batch, Index length) {
  std::vector<double> positions;
  for (Index i = 0; i < batch * length; ++i) positions.push_back(static_cast<double>(i % length));
  return positions;
}

std::vector<Sample> samples() {
  std::vector<Sample> all{
      rope_sample("odd", 2, 5, 3, 14, ascending(2, 5)),
      rope_sample("head_dimension", 2, 5, 3, 14, ascending(2, 5), {}, true),
      rope_sample("one_pair", 1, 7, 1, 2, ascending(1, 7)),
      rope_sample("one_position", 3, 1, 2, 8, {4, 0, 900}),
      rope_sample("largest_head", 1, 3, 1, 256, ascending(1, 3)),
      rope_sample("no_sequences", 0, 4, 2, 8, {}),
      rope_sample("no_positions", 2, 0, 2, 8, {}),
      rope_sample("no_heads", 2, 3, 0, 8, ascending(2, 3)),
      rope_sample("packed", 1, 8, 2, 4, {0, 1, 2, 0, 1, 0, 1, 2}),
      rope_sample("other_theta", 2, 5, 2, 8, ascending(2, 5), {.theta = 500}),
      rope_sample("linear", 2, 5, 2, 8, ascending(2, 5), {.scaling = RopeScaling::linear, .factor = 4}),
      rope_sample("llama3", 1, 4, 2, 32, {0, 1, 100, 20000},
                  {.theta = 500000, .scaling = RopeScaling::llama3, .factor = 8}),
      // Positions far out and before the start: the angle keeps its digits, in all four quadrants.
      rope_sample("far", 1, 6, 2, 64, {-1, -1000, 100000, 131071, 10000000, -10000000}),
      rope_sample("large", 2, 200, 8, 64, ascending(2, 200)),
  };
  Sample transposed = rope_sample("transposed", 2, 5, 2, 6, ascending(2, 5));
  transposed.arguments[0].layout = transposed.arguments[1].layout = Layout::transposed;
  all.push_back(transposed);
  Sample sliced = rope_sample("sliced", 2, 5, 2, 6, ascending(2, 5));
  sliced.arguments[0].layout = sliced.arguments[1].layout = Layout::sliced;
  all.push_back(sliced);
  Sample repeated = rope_sample("repeated_positions", 3, 5, 2, 6, ascending(3, 5));
  repeated.arguments[1].layout = Layout::repeated;
  all.push_back(repeated);
  return all;
}

const RegisterOp record({
    .name = "rope",
    .tolerances =
        {{DType::f32, 4e-7, 1e-6, 1e-6,
          "sine and cosine rounded to fp32, two products of numbers up to 4, and a sum that may cancel"}},
    .samples = samples,
    .benchmarks =
        [] { return std::vector<Sample>{rope_sample("8x1024x12x64", 8, 1024, 12, 64, ascending(8, 1024))}; },
    .refusals = {{"odd_head",
                  [](RankContext& c) {
                    ops::rope(some(c, {1, 2, 6}), some(c, {1, 2}, DType::i32), 3, {});
                  },
                  "rope: a head size of 3"},
                 {"large_head",
                  [](RankContext& c) {
                    ops::rope(some(c, {1, 2, 512}), some(c, {1, 2}, DType::i32), 512, {});
                  },
                  "rope: a head size of 512; even ones from 2 to 256 are built"},
                 {"width",
                  [](RankContext& c) {
                    ops::rope(some(c, {1, 2, 6}), some(c, {1, 2}, DType::i32), 4, {});
                  },
                  "with D 4, not (1, 2, 6)"},
                 {"rank",
                  [](RankContext& c) {
                    ops::rope(some(c, {2, 8}), some(c, {2}, DType::i32), 4, {});
                  },
                  "not (2, 8)"},
                 {"positions",
                  [](RankContext& c) {
                    ops::rope(some(c, {1, 2, 8}), some(c, {2, 1}, DType::i32), 4, {});
                  },
                  "rope: positions (2, 1) for x (1, 2, 8)"},
                 {"positions_dtype",
                  [](RankContext& c) {
                    ops::rope(some(c, {1, 2, 8}), some(c, {1, 2}, DType::u8), 4, {});
                  },
                  "rope: positions are int32 or int64, not uint8"},
                 {"theta",
                  [](RankContext& c) {
                    ops::rope(some(c, {1, 2, 8}), some(c, {1, 2}, DType::i32), 4, {.theta = 0});
                  },
                  "rope: theta 0"},
                 {"factor",
                  [](RankContext& c) {
                    ops::rope(some(c, {1, 2, 8}), some(c, {1, 2}, DType::i32), 4,
                              {.scaling = RopeScaling::linear, .factor = -1});
                  },
                  "rope: scaling factor -1"},
                 {"llama3",
                  [](RankContext& c) {
                    ops::rope(some(c, {1, 2, 8}), some(c, {1, 2}, DType::i32), 4,
                              {.scaling = RopeScaling::llama3, .factor = 2, .high_frequency = 1});
                  },
                  "rope: llama3 scaling between 1 and 1 turns"},
                 {"dtype",
                  [](RankContext& c) {
                    ops::rope(some(c, {1, 2, 8}, DType::f16), some(c, {1, 2}, DType::i32), 4, {});
                  },
                  "fp16"},
                 {"no_value",
                  [](RankContext& c) {
                    ops::rope(some(c, {1, 2, 8}), Variable(), 4, {});
                  },
                  "rope: input 1 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
