// Op record: linear, in both layouts, with and without bias.
#include "autograd/ops/linear.h"

#include "kernels/reference/reference.h"
#include "ops/table/record.h"

namespace penstock::testing {
namespace {

using ops::WeightLayout;

Sample linear_sample(const std::string& name, Shape x, Index outputs, WeightLayout layout, bool bias) {
  const Index inputs = x.dim(-1), rows = x.without_last().numel();
  const bool out_in = layout == WeightLayout::out_in;
  Sample s;
  s.name = name;
  s.arguments = {normal(name + ".x", x),
                 normal(name + ".w", out_in ? Shape{outputs, inputs} : Shape{inputs, outputs}, Role::weight)};
  if (bias) s.arguments.push_back(normal(name + ".b", Shape{outputs}, Role::weight));
  s.output = x.with(-1, outputs);
  s.saved_bytes = 0;
  s.apply = [layout, bias](const Variables& in, const StepState*) {
    return ops::linear(in[0], in[1], bias ? in[2] : Variable(), layout);
  };
  set_reference(s, [=](const auto& in) {
    auto y = in[0];
    y.assign(static_cast<std::size_t>(rows * outputs), 0);
    auto none = in[0];
    none.clear();
    reference::gemm(rows, outputs, inputs, false, out_in, in[0], in[1], bias ? in[2] : none, false, y);
    return y;
  });
  return s;
}

std::vector<Sample> samples() {
  constexpr auto in_out = WeightLayout::in_out;
  constexpr auto out_in = WeightLayout::out_in;
  std::vector<Sample> all{
      linear_sample("in_out", Shape{2, 3, 17}, 13, in_out, false),
      linear_sample("in_out_bias", Shape{2, 3, 17}, 13, in_out, true),
      linear_sample("out_in", Shape{2, 3, 17}, 13, out_in, false),
      linear_sample("out_in_bias", Shape{2, 3, 17}, 13, out_in, true),
      linear_sample("one_row", Shape{1, 33}, 7, in_out, true),
      linear_sample("vector", Shape{5}, 4, out_in, true),
      linear_sample("one_input", Shape{4, 1}, 6, in_out, true),
      linear_sample("one_output", Shape{4, 6}, 1, out_in, true),
      linear_sample("no_rows", Shape{0, 5}, 4, in_out, true),
      linear_sample("no_sequence", Shape{2, 0, 5}, 4, out_in, true),
      linear_sample("no_inputs", Shape{3, 0}, 4, in_out, true),
      linear_sample("large", Shape{300, 140}, 270, in_out, true),
      linear_sample("large_out_in", Shape{300, 140}, 270, out_in, false),
  };
  for (const auto layout : {Layout::transposed, Layout::sliced}) {
    Sample s =
        linear_sample(layout == Layout::sliced ? "sliced" : "transposed", Shape{3, 5, 8}, 6, in_out, true);
    s.arguments[0].layout = s.arguments[1].layout = layout;
    all.push_back(s);
  }
  Sample repeated = linear_sample("repeated_bias", Shape{3, 8}, 6, out_in, true);
  repeated.arguments[2] =
      laid_out(floats(Shape{6}, std::vector<float>(6, 0.75f), Role::weight), Layout::repeated);
  all.push_back(repeated);
  Sample extreme = linear_sample("extreme", Shape{2, 3}, 2, in_out, true);
  extreme.arguments[0] = floats(Shape{2, 3}, {1e18f, -1e18f, 1e-30f, 0.0f, -0.0f, 3e-39f});
  extreme.magnitude = 1e18;
  extreme.step = 1e12;  // linear: any step is exact, and a small one drowns in a sum of 1e18
  all.push_back(extreme);
  return all;
}

std::vector<Sample> benchmarks() {
  return {linear_sample("qkv_1024x768x2304", Shape{1024, 768}, 2304, WeightLayout::in_out, true)};
}

const RegisterOp record({
    .name = "linear",
    .tolerances =
        {{DType::f32, 1e-6, 3e-5, 4e-6,
          "sums of K products of normal numbers are about sqrt(K) in size and each addition rounds to "
          "6e-8 of that; K is at most 300"}},
    .samples = samples,
    .benchmarks = benchmarks,
    .refusals = {{"wrong_inputs",
                  [](RankContext& c) {
                    ops::linear(some(c, {2, 3}), some(c, {4, 5}));
                  },
                  "takes 4 inputs"},
                 {"wrong_inputs_out_in",
                  [](RankContext& c) {
                    ops::linear(some(c, {2, 3}), some(c, {3, 5}), {}, WeightLayout::out_in);
                  },
                  "takes 5 inputs"},
                 {"weight_of_three_dimensions",
                  [](RankContext& c) {
                    ops::linear(some(c, {2, 3}), some(c, {3, 5, 1}));
                  },
                  "linear: x (2, 3) times weight (3, 5, 1)"},
                 {"scalar",
                  [](RankContext& c) {
                    ops::linear(some(c, {}), some(c, {1, 1}));
                  },
                  "linear: x () times weight"},
                 {"wrong_bias",
                  [](RankContext& c) {
                    ops::linear(some(c, {2, 3}), some(c, {3, 5}), some(c, {3}));
                  },
                  "bias (3) for 5 outputs"},
                 {"wrong_dtype",
                  [](RankContext& c) {
                    ops::linear(some(c, {2, 3}, DType::bf16), some(c, {3, 5}));
                  },
                  "bf16"},
                 {"no_value",
                  [](RankContext& c) {
                    ops::linear(Variable(), some(c, {3, 5}));
                  },
                  "linear: input 0 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
