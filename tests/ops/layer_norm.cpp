// Op record: layer_norm.
#include "autograd/ops/layer_norm.h"

#include "kernels/reference/reference.h"
#include "ops/table/record.h"

namespace penstock::testing {
namespace {

Sample layer_norm_sample(const std::string& name, Argument x, float eps = 1e-5f) {
  const Index cols = x.shape.dim(-1), rows = x.shape.without_last().numel();
  Sample s;
  s.name = name;
  s.output = x.shape;
  s.arguments = {std::move(x), normal(name + ".gain", Shape{cols}, Role::weight, 1, 0.5),
                 normal(name + ".bias", Shape{cols}, Role::weight)};
  s.saved_bytes = 2 * rows * static_cast<Index>(sizeof(float));  // mean and 1/deviation of each row
  s.apply = [eps](const Variables& in, const StepState*) {
    return ops::layer_norm(in[0], in[1], in[2], eps);
  };
  set_reference(s, [=]<class Real>(const std::vector<std::vector<Real>>& in) {
    return reference::layer_norm<Real>(rows, cols, static_cast<Real>(eps), in[0], in[1], in[2]).y;
  });
  return s;
}

std::vector<Sample> samples() {
  std::vector<Sample> all{
      layer_norm_sample("odd", normal("layer_norm.odd", Shape{2, 3, 17}, Role::activation, 0.5, 2)),
      layer_norm_sample("one_row", normal("layer_norm.one_row", Shape{1, 33})),
      layer_norm_sample("vector", normal("layer_norm.vector", Shape{5})),
      layer_norm_sample("one_column", normal("layer_norm.one_column", Shape{4, 1})),
      layer_norm_sample("no_rows", normal("layer_norm.no_rows", Shape{0, 6})),
      layer_norm_sample("no_columns", normal("layer_norm.no_columns", Shape{3, 0})),
      layer_norm_sample("other_eps", normal("layer_norm.other_eps", Shape{3, 9}, Role::activation, 0, 0.1),
                        0.1f),
      layer_norm_sample("large", normal("layer_norm.large", Shape{600, 130})),
      layer_norm_sample("transposed",
                        laid_out(normal("layer_norm.transposed", Shape{5, 6}), Layout::transposed)),
      layer_norm_sample("sliced", laid_out(normal("layer_norm.sliced", Shape{2, 5, 6}), Layout::sliced)),
  };
  Sample biasless = layer_norm_sample("without_bias", normal("layer_norm.without_bias", Shape{3, 9}));
  biasless.arguments.pop_back();
  biasless.apply = [](const Variables& in, const StepState*) {
    return ops::layer_norm(in[0], in[1], Variable());
  };
  set_reference(biasless, []<class Real>(const std::vector<std::vector<Real>>& in) {
    const std::vector<Real> none(9, Real(0));
    return reference::layer_norm<Real>(3, 9, Real(1e-5f), in[0], in[1], none).y;
  });
  all.push_back(biasless);
  Sample repeated = layer_norm_sample("repeated_weights", normal("layer_norm.repeated", Shape{3, 6}));
  repeated.arguments[1] =
      laid_out(floats(Shape{6}, std::vector<float>(6, 1.5f), Role::weight), Layout::repeated);
  repeated.arguments[2] =
      laid_out(floats(Shape{6}, std::vector<float>(6, -0.5f), Role::weight), Layout::repeated);
  all.push_back(repeated);
  // A row far from zero: the variance is that of the rest, not a difference of squares.
  Sample far =
      layer_norm_sample("far_from_zero", normal("layer_norm.far", Shape{2, 16}, Role::activation, 1000, 1));
  far.magnitude = 300;  // x - mean has an error of half a unit of 1000, 3e-5
  far.gradient_slack = 30;
  all.push_back(far);
  Sample huge = layer_norm_sample("huge", normal("layer_norm.huge", Shape{2, 40}, Role::activation, 0, 1e9));
  all.push_back(huge);
  Sample flat = layer_norm_sample("flat_row", floats(Shape{2, 4}, {3, 3, 3, 3, 0, 0, 0, 0}));
  all.push_back(flat);
  return all;
}

const RegisterOp record({
    .name = "layer_norm",
    .tolerances =
        {{DType::f32, 2e-6, 2e-6, 6e-6,
          "sums over at most 130 columns of numbers of size 1, a root, and products with the gain; the "
          "gradients add two such sums, over the columns or over at most 600 rows"}},
    .samples = samples,
    .benchmarks =
        [] {
          return std::vector<Sample>{
              layer_norm_sample("8x1024x768", normal("layer_norm.gpt2", Shape{8, 1024, 768}))};
        },
    .refusals = {{"gain",
                  [](RankContext& c) {
                    ops::layer_norm(some(c, {2, 3}), some(c, {2}), some(c, {3}));
                  },
                  "layer_norm: gain (2) and bias (3) for x (2, 3)"},
                 {"bias",
                  [](RankContext& c) {
                    ops::layer_norm(some(c, {2, 3}), some(c, {3}), some(c, {1, 3}));
                  },
                  "layer_norm: gain (3) and bias (1, 3) for x (2, 3)"},
                 {"scalar", [](RankContext& c) { ops::layer_norm(some(c, {}), some(c, {1}), some(c, {1})); },
                  "layer_norm: x without dimensions"},
                 {"dtype",
                  [](RankContext& c) {
                    ops::layer_norm(some(c, {2, 3}, DType::bf16), some(c, {3}), some(c, {3}));
                  },
                  "bf16"},
                 {"no_value",
                  [](RankContext& c) {
                    ops::layer_norm(some(c, {2, 3}), Variable(), some(c, {3}));
                  },
                  "layer_norm: input 1 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
