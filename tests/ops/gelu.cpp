// Op record: gelu.
#include "autograd/ops/elementwise.h"
#include "kernels/reference/reference.h"
#include "ops/table/record.h"

namespace penstock::testing {
namespace {

Sample gelu_sample(const std::string& name, Argument x) {
  Sample s;
  s.name = name;
  s.output = x.shape;
  s.arguments = {std::move(x)};
  s.saved_bytes = 0;
  s.apply = [](const Variables& in, const StepState*) { return ops::gelu(in[0]); };
  set_reference(s, [](const auto& in) {
    auto y = in[0];
    for (auto& v : y) v = reference::gelu(v);
    return y;
  });
  return s;
}

std::vector<Sample> samples() {
  return {
      gelu_sample("odd", normal("gelu.odd", Shape{3, 5, 7}, Role::activation, 0, 2)),
      gelu_sample("one", normal("gelu.one", Shape{1})),
      gelu_sample("scalar", normal("gelu.scalar", Shape{})),
      gelu_sample("empty", normal("gelu.empty", Shape{0, 4})),
      gelu_sample("size_one", normal("gelu.size_one", Shape{1, 1, 33})),
      gelu_sample("of_a_weight", normal("gelu.weight", Shape{4, 5}, Role::weight)),
      gelu_sample("transposed", laid_out(normal("gelu.transposed", Shape{5, 6}), Layout::transposed)),
      gelu_sample("sliced", laid_out(normal("gelu.sliced", Shape{2, 5, 6}), Layout::sliced)),
      gelu_sample("repeated", laid_out(floats(Shape{4}, {0.5f, 0.5f, 0.5f, 0.5f}), Layout::repeated)),
      gelu_sample("large", normal("gelu.large", Shape{3, 40001}, Role::activation, 0, 2)),
      // Known fault 6: nothing overflows, whichever branch an exponential stands on.
      gelu_sample("extreme", floats(Shape{16}, {0.0f, -0.0f, 40.0f, -40.0f, 88.0f, -88.0f, 89.0f, -89.0f,
                                                1e4f, -1e4f, 1e-30f, -1e-30f, 5.0f, -5.0f, 10.0f, -10.0f})),
  };
}

const RegisterOp record({
    .name = "gelu",
    .tolerances =
        {{DType::f32, 1e-6, 1e-6, 2e-6,
          "an exponential, a division and five roundings; for x near -5 the factor 1 + tanh cancels, "
          "which leaves an absolute error of x/2 times one rounding of 1"}},
    .samples = samples,
    .benchmarks =
        [] {
          return std::vector<Sample>{
              gelu_sample("mlp_8x1024x3072", normal("gelu.mlp", Shape{8, 1024, 3072}))};
        },
    .refusals = {{"dtype", [](RankContext& c) { ops::gelu(some(c, {2}, DType::bf16)); }, "bf16"},
                 {"no_value", [](RankContext&) { ops::gelu(Variable()); }, "gelu: input 0 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
