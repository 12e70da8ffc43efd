// Op record: gelu, in both forms, with and without bias.
#include "autograd/ops/gelu.h"

#include <cmath>

#include "kernels/reference/reference.h"
#include "ops/table/record.h"

namespace penstock::testing {
namespace {

using ops::GeluForm;

template <class Real>
Real gelu_of(GeluForm form, Real x) {
  // erfc of the other side: 1 + erf would cancel for negative x.
  return form == GeluForm::tanh ? reference::gelu(x) : x / 2 * std::erfc(-x / std::sqrt(Real(2)));
}

Sample gelu_sample(const std::string& name, Argument x, GeluForm form = GeluForm::tanh, bool bias = false) {
  Sample s;
  s.name = name;
  s.output = x.shape;
  const auto cols = static_cast<std::size_t>(x.shape.rank() > 0 ? x.shape.dim(-1) : 1);
  s.arguments = {std::move(x)};
  if (bias)
    s.arguments.push_back(normal("gelu." + name + ".bias", Shape{static_cast<Index>(cols)}, Role::weight));
  s.saved_bytes = 0;
  s.apply = [=](const Variables& in, const StepState*) {
    return ops::gelu(in[0], form, bias ? in[1] : Variable());
  };
  set_reference(s, [=](const auto& in) {
    auto y = in[0];
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = gelu_of(form, bias ? y[i] + in[1][i % cols] : y[i]);
    return y;
  });
  return s;
}

/// Known fault 6: nothing overflows, whichever branch an exponential stands on.
Argument extremes() {
  return floats(Shape{16}, {0.0f, -0.0f, 40.0f, -40.0f, 88.0f, -88.0f, 89.0f, -89.0f, 1e4f, -1e4f, 1e-30f,
                            -1e-30f, 5.0f, -5.0f, 10.0f, -10.0f});
}

std::vector<Sample> samples() {
  const auto x = [](const char* name, const Shape& shape, double deviation = 1) {
    return normal(std::string("gelu.") + name, shape, Role::activation, 0, deviation);
  };
  std::vector<Sample> all{
      gelu_sample("odd", x("odd", Shape{3, 5, 7}, 2)),
      gelu_sample("one", x("one", Shape{1})),
      gelu_sample("scalar", x("scalar", Shape{})),
      gelu_sample("empty", x("empty", Shape{0, 4})),
      gelu_sample("size_one", x("size_one", Shape{1, 1, 33})),
      gelu_sample("of_a_weight", normal("gelu.weight", Shape{4, 5}, Role::weight)),
      gelu_sample("transposed", laid_out(x("transposed", Shape{5, 6}), Layout::transposed)),
      gelu_sample("sliced", laid_out(x("sliced", Shape{2, 5, 6}), Layout::sliced)),
      gelu_sample("repeated", laid_out(floats(Shape{4}, {0.5f, 0.5f, 0.5f, 0.5f}), Layout::repeated)),
      gelu_sample("large", x("large", Shape{3, 40001}, 2)),
      gelu_sample("extreme", extremes()),
      gelu_sample("erf", x("erf", Shape{3, 5, 7}, 2), GeluForm::erf),
      gelu_sample("erf_scalar", x("erf_scalar", Shape{}), GeluForm::erf),
      gelu_sample("large_erf", x("large_erf", Shape{3, 40001}, 3), GeluForm::erf),
      gelu_sample("extreme_erf", extremes(), GeluForm::erf),
  };
  for (const GeluForm form : {GeluForm::tanh, GeluForm::erf}) {
    const std::string prefix = form == GeluForm::tanh ? "bias_" : "erf_bias_";
    all.push_back(gelu_sample(prefix + "odd", x("bias_odd", Shape{3, 5, 7}), form, true));
    all.push_back(gelu_sample(prefix + "one_column", x("bias_one_column", Shape{5, 1}), form, true));
    all.push_back(gelu_sample(prefix + "empty", x("bias_empty", Shape{0, 4}), form, true));
    all.push_back(gelu_sample("large_" + prefix, x("bias_large", Shape{70, 1100}), form, true));
  }
  Sample sliced = gelu_sample("bias_sliced", laid_out(x("bias_sliced", Shape{2, 5, 6}), Layout::sliced),
                              GeluForm::erf, true);
  sliced.arguments[1] =
      laid_out(floats(Shape{6}, std::vector<float>(6, 0.75f), Role::weight), Layout::repeated);
  all.push_back(sliced);
  return all;
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
    .refusals = {{"dtype", [](RankContext& c) { ops::gelu(some(c, {2}, DType::f16)); }, "fp16"},
                 {"bias",
                  [](RankContext& c) {
                    ops::gelu(some(c, {2, 3}), GeluForm::erf, some(c, {2}));
                  },
                  "gelu: bias (2) for x (2, 3)"},
                 {"bias_of_a_scalar",
                  [](RankContext& c) { ops::gelu(some(c, {}), GeluForm::erf, some(c, {1})); },
                  "gelu: bias (1) for x ()"},
                 {"no_value", [](RankContext&) { ops::gelu(Variable()); }, "gelu: input 0 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
