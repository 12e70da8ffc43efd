// Op records: rms_norm, and head_rms_norm, the same over each head.
#include "autograd/ops/rms_norm.h"

#include <cmath>

#include "ops/table/record.h"

namespace penstock::testing {
namespace {

/// Rows of `cols` elements, each divided by its root mean square. The whole of `values` is so many rows.
template <class Real>
std::vector<Real> rms_normalised(Index cols, Real eps, const std::vector<Real>& values,
                                 const std::vector<Real>& gain) {
  std::vector<Real> y(values.size());
  const auto width = static_cast<std::size_t>(cols);
  for (std::size_t first = 0; first < values.size(); first += width) {
    double squares = 0;  // a row of 1e25 has a square sum beyond fp32
    for (std::size_t j = 0; j < width; ++j)
      squares += static_cast<double>(values[first + j]) * static_cast<double>(values[first + j]);
    const auto root =
        static_cast<Real>(std::sqrt(squares / static_cast<double>(cols) + static_cast<double>(eps)));
    for (std::size_t j = 0; j < width; ++j) y[first + j] = values[first + j] / root * gain[j];
  }
  return y;
}

Sample rms_norm_sample(const std::string& name, Argument x, float eps = 1e-5f, Index head = 0) {
  const Index cols = head > 0 ? head : x.shape.dim(-1);
  const Index rows = cols > 0 ? x.shape.numel() / cols : x.shape.without_last().numel();
  Sample s;
  s.name = name;
  s.output = x.shape;
  s.arguments = {std::move(x), normal(name + ".gain", Shape{cols}, Role::weight, 1, 0.5)};
  s.saved_bytes = rows * static_cast<Index>(sizeof(float));  // 1 / root mean square of each row
  s.apply = [eps, head](const Variables& in, const StepState*) {
    return head > 0 ? ops::head_rms_norm(in[0], in[1], eps) : ops::rms_norm(in[0], in[1], eps);
  };
  set_reference(s, [=]<class Real>(const std::vector<std::vector<Real>>& in) {
    return rms_normalised<Real>(cols, static_cast<Real>(eps), in[0], in[1]);
  });
  return s;
}

std::vector<Sample> samples() {
  const auto x = [](const char* name, const Shape& shape, double mean = 0, double deviation = 1) {
    return normal(std::string("rms_norm.") + name, shape, Role::activation, mean, deviation);
  };
  std::vector<Sample> all{
      rms_norm_sample("odd", x("odd", Shape{2, 3, 17}, 0.5, 2)),
      rms_norm_sample("one_row", x("one_row", Shape{1, 33})),
      rms_norm_sample("vector", x("vector", Shape{5})),
      rms_norm_sample("one_column", x("one_column", Shape{4, 1}), 0.5f),
      rms_norm_sample("no_rows", x("no_rows", Shape{0, 6})),
      rms_norm_sample("no_columns", x("no_columns", Shape{3, 0})),
      rms_norm_sample("other_eps", x("other_eps", Shape{3, 9}, 0, 0.1), 0.1f),
      rms_norm_sample("large", x("large", Shape{600, 130})),
      rms_norm_sample("transposed", laid_out(x("transposed", Shape{5, 6}), Layout::transposed)),
      rms_norm_sample("sliced", laid_out(x("sliced", Shape{2, 5, 6}), Layout::sliced)),
      rms_norm_sample("zeros", floats(Shape{2, 4}, {0, 0, 0, 0, 1, 0, 0, 0}), 0.5f),
  };
  Sample repeated = rms_norm_sample("repeated_gain", x("repeated", Shape{3, 6}));
  repeated.arguments[1] =
      laid_out(floats(Shape{6}, std::vector<float>(6, 1.5f), Role::weight), Layout::repeated);
  all.push_back(repeated);
  // Known fault 2: rows of 1e9, longer than the share of a lane; and where the square overflows fp32.
  for (const Index columns : {4, 65, 128})
    all.push_back(rms_norm_sample(
        "of_1e9_" + std::to_string(columns),
        floats(Shape{2, columns}, std::vector<float>(static_cast<std::size_t>(2 * columns), 1e9f))));
  all.push_back(rms_norm_sample("huge", x("huge", Shape{2, 40}, 0, 1e25)));
  return all;
}

std::vector<Sample> head_samples() {
  const auto x = [](const char* name, const Shape& shape) {
    return normal(std::string("head_rms_norm.") + name, shape, Role::activation, 0.3, 1.5);
  };
  return {
      rms_norm_sample("three_heads", x("three_heads", Shape{2, 3, 21}), 1e-6f, 7),
      rms_norm_sample("one_head", x("one_head", Shape{2, 3, 16}), 1e-6f, 16),
      rms_norm_sample("of_one", x("of_one", Shape{3, 5}), 0.5f, 1),
      rms_norm_sample("dimension_of_heads", x("dimension_of_heads", Shape{2, 2, 4, 8}), 1e-6f, 8),
      rms_norm_sample("vector", x("vector", Shape{12}), 1e-6f, 4),
      rms_norm_sample("no_rows", x("no_rows", Shape{0, 6}), 1e-6f, 3),
      rms_norm_sample("transposed", laid_out(x("transposed", Shape{5, 6}), Layout::transposed), 1e-6f, 2),
      rms_norm_sample("sliced", laid_out(x("sliced", Shape{2, 5, 6}), Layout::sliced), 1e-6f, 3),
      rms_norm_sample("large", x("large", Shape{100, 8 * 64}), 1e-6f, 64),
  };
}

constexpr std::string_view reason =
    "squares are summed in double, a root, and two products with it; the gradients add one such sum over the "
    "columns, or over at most 800 rows";

const RegisterOp record({
    .name = "rms_norm",
    .tolerances = {{DType::f32, 1e-6, 1e-6, 4e-6, reason}},
    .samples = samples,
    .benchmarks =
        [] {
          return std::vector<Sample>{
              rms_norm_sample("8x1024x768", normal("rms_norm.gpt2", Shape{8, 1024, 768}))};
        },
    .refusals = {{"gain",
                  [](RankContext& c) {
                    ops::rms_norm(some(c, {2, 3}), some(c, {2}));
                  },
                  "rms_norm: gain (2) for x (2, 3)"},
                 {"gain_of_a_head",
                  [](RankContext& c) {
                    ops::rms_norm(some(c, {2, 4}), some(c, {2}));
                  },
                  "rms_norm: gain (2) for x (2, 4)"},
                 {"gain_of_two_dimensions",
                  [](RankContext& c) {
                    ops::rms_norm(some(c, {2, 3}), some(c, {1, 3}));
                  },
                  "rms_norm: gain (1, 3) is not of one dimension"},
                 {"scalar", [](RankContext& c) { ops::rms_norm(some(c, {}), some(c, {1})); },
                  "rms_norm: x without dimensions"},
                 {"dtype",
                  [](RankContext& c) {
                    ops::rms_norm(some(c, {2, 3}, DType::bf16), some(c, {3}));
                  },
                  "bf16"},
                 {"no_value",
                  [](RankContext& c) {
                    ops::rms_norm(some(c, {2, 3}), Variable());
                  },
                  "rms_norm: input 1 has no value"}},
});

const RegisterOp head_record({
    .name = "head_rms_norm",
    .tolerances = {{DType::f32, 1e-6, 1e-6, 4e-6, reason}},
    .samples = head_samples,
    .benchmarks =
        [] {
          return std::vector<Sample>{
              rms_norm_sample("8x1024x12x64", normal("rms_norm.heads", Shape{8, 1024, 768}), 1e-6f, 64)};
        },
    .refusals = {{"gain",
                  [](RankContext& c) {
                    ops::head_rms_norm(some(c, {2, 7}), some(c, {3}));
                  },
                  "head_rms_norm: gain (3) for x (2, 7)"},
                 {"gain_of_nothing",
                  [](RankContext& c) {
                    ops::head_rms_norm(some(c, {2, 7}), some(c, {0}));
                  },
                  "head_rms_norm: gain (0) for x (2, 7)"},
                 {"no_value", [](RankContext& c) { ops::head_rms_norm(Variable(), some(c, {3})); },
                  "head_rms_norm: input 0 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
