// Op record: swiglu.
#include "autograd/ops/swiglu.h"

#include <cmath>

#include "ops/table/record.h"

namespace penstock::testing {
namespace {

Sample swiglu_sample(const std::string& name, Argument gate, Argument up) {
  Sample s;
  s.name = name;
  s.output = gate.shape;
  s.arguments = {std::move(gate), std::move(up)};
  s.saved_bytes = 0;
  s.apply = [](const Variables& in, const StepState*) { return ops::swiglu(in[0], in[1]); };
  set_reference(s, []<class Real>(const std::vector<std::vector<Real>>& in) {
    std::vector<Real> y(in[0].size());
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = in[0][i] / (1 + std::exp(-in[0][i])) * in[1][i];
    return y;
  });
  return s;
}

Sample swiglu_sample(const std::string& name, const Shape& shape, Layout layout = Layout::dense,
                     Role role = Role::activation) {
  return swiglu_sample(name, laid_out(normal(name + ".gate", shape, Role::activation, 0, 2), layout),
                       laid_out(normal(name + ".up", shape, role), layout));
}

std::vector<Sample> samples() {
  const std::vector<float> ends{0.0f,  -0.0f, 40.0f, -40.0f, 87.0f, -87.0f,  88.0f,   89.0f, -89.0f,
                                -95.f, 1e4f,  -1e4f, 1e-30f, 5.0f,  -1e-30f, -100.0f, 20.0f, -20.0f};
  const auto n = static_cast<Index>(ends.size());
  std::vector<Sample> all{
      swiglu_sample("odd", Shape{3, 5, 7}),
      swiglu_sample("one", Shape{1}),
      swiglu_sample("scalar", Shape{}),
      swiglu_sample("empty", Shape{0, 4}),
      swiglu_sample("size_one", Shape{1, 1, 33}),
      swiglu_sample("up_is_a_weight", Shape{4, 5}, Layout::dense, Role::weight),
      swiglu_sample("transposed", Shape{5, 6}, Layout::transposed),
      swiglu_sample("sliced", Shape{2, 5, 6}, Layout::sliced),
      swiglu_sample("large", Shape{3, 40001}),
      // Known fault 6: nothing overflows, whichever side an exponential stands on.
      swiglu_sample("extreme", floats(Shape{n}, ends), normal("swiglu.extreme.up", Shape{n})),
  };
  Sample twice = swiglu_sample("same_twice", Shape{2, 9});
  twice.arguments.pop_back();
  twice.apply = [](const Variables& in, const StepState*) { return ops::swiglu(in[0], in[0]); };
  set_reference(twice, []<class Real>(const std::vector<std::vector<Real>>& in) {
    std::vector<Real> y = in[0];
    for (Real& v : y) v = v * v / (1 + std::exp(-v));
    return y;
  });
  all.push_back(twice);
  return all;
}

const RegisterOp record({
    .name = "swiglu",
    .tolerances = {{DType::f32, 1e-6, 1e-7, 2e-6, "an exponential, a division and four roundings"}},
    .samples = samples,
    .benchmarks =
        [] {
          return std::vector<Sample>{swiglu_sample("mlp_8x1024x2048", Shape{8, 1024, 2048})};
        },
    .refusals = {{"shapes",
                  [](RankContext& c) {
                    ops::swiglu(some(c, {2, 3}), some(c, {3, 2}));
                  },
                  "swiglu: gate (2, 3) and up (3, 2)"},
                 {"no_broadcast",
                  [](RankContext& c) {
                    ops::swiglu(some(c, {2, 3}), some(c, {3}));
                  },
                  "swiglu: gate (2, 3) and up (3)"},
                 {"dtype", [](RankContext& c) { ops::swiglu(some(c, {2}), some(c, {2}, DType::bf16)); },
                  "bf16"},
                 {"no_value", [](RankContext& c) { ops::swiglu(some(c, {2}), Variable()); },
                  "swiglu: input 1 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
