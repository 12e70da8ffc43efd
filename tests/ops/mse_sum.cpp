// Op record: mse_sum.
#include "autograd/ops/losses.h"

#include "ops/general.h"

namespace penstock::testing {
namespace {

Sample mse_sample(const std::string& name, const Shape& shape, Role target = Role::data) {
  Sample s;
  s.name = name;
  s.output = Shape{1};
  s.arguments = {normal("mse." + name + ".x", shape), normal("mse." + name + ".target", shape, target)};
  s.saved_bytes = 0;
  s.apply = [](const Variables& in, const StepState*) { return ops::mse_sum(in[0], in[1]); };
  set_reference(s, []<class Real>(const std::vector<std::vector<Real>>& in) {
    Real sum = 0;
    for (std::size_t i = 0; i < in[0].size(); ++i) sum += (in[0][i] - in[1][i]) * (in[0][i] - in[1][i]);
    return std::vector<Real>{sum};
  });
  return s;
}

std::vector<Sample> samples() {
  std::vector<Sample> all{
      mse_sample("odd", Shape{3, 5, 7}),
      mse_sample("one", Shape{1}),
      mse_sample("scalar", Shape{}),
      mse_sample("empty", Shape{0, 4}),
      mse_sample("size_one", Shape{1, 33, 1}),
      mse_sample("of_a_weight", Shape{4, 5}, Role::weight),
      mse_sample("two_activations", Shape{4, 5}, Role::activation),
      mse_sample("large", Shape{3, 40001}),
      mse_sample("several_blocks", Shape{16384 + 1}),
  };
  Sample views = mse_sample("views", Shape{4, 6}, Role::activation);
  views.arguments[0].layout = Layout::transposed;
  views.arguments[1].layout = Layout::sliced;
  all.push_back(views);
  Sample extreme = mse_sample("extreme", Shape{3});
  extreme.arguments[0] = floats(Shape{3}, {1e18f, -1e18f, 1.0f});
  extreme.arguments[1] = floats(Shape{3}, {-1e18f, 1e18f, 1.0f}, Role::data);
  extreme.step = 1e12;
  all.push_back(extreme);
  for (Sample& s :
       all) {  // the fp32 loop of the comparison, and the differences, lose digits of a sum of n squares
    const auto n = static_cast<double>(s.arguments[0].shape.numel());
    s.magnitude = 12 * n;
    if (n > 1000) s.step = 1e-3;
  }
  return all;
}

const RegisterOp record({
    .name = "mse_sum",
    .tolerances = {{DType::f32, 1e-6, 1e-6, 1e-6, "in double, rounded once; a gradient has three roundings"}},
    .samples = samples,
    .benchmarks = [] { return std::vector<Sample>{samples()[7]}; },
    .refusals = {{"shapes",
                  [](RankContext& c) {
                    ops::mse_sum(some(c, {2, 3}), some(c, {3}));
                  },
                  "mse_sum: (2, 3) and the target (3)"},
                 {"dtype", [](RankContext& c) { ops::mse_sum(some(c, {2}), some(c, {2}, DType::bf16)); },
                  "mse_sum: fp32 with bf16"},
                 {"no_value", [](RankContext& c) { ops::mse_sum(some(c, {2}), Variable()); },
                  "mse_sum: input 1 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
