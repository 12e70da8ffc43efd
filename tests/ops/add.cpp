// Op record: add.
#include "autograd/ops/arithmetic.h"
#include "ops/general.h"

namespace penstock::testing {
namespace {

Variable add(const Variable& a, const Variable& b) { return ops::add(a, b); }

std::vector<Sample> samples() {
  std::vector<Sample> all = binary_samples(
      "add", add, [](auto a, auto b) { return a + b; }, draw_normal);
  Sample extreme = all[0];
  extreme.name = "extreme";
  extreme.output = Shape{6};
  extreme.arguments = {floats(Shape{6}, {1e38f, -1e38f, 1e-45f, 0.0f, -0.0f, 16777216.0f}),
                       floats(Shape{6}, {1e38f, 1e38f, 1e-45f, -0.0f, -0.0f, 16777215.0f}, Role::weight)};
  set_reference(extreme, [](const auto& in) {
    auto y = in[0];
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += in[1][i];
    return y;
  });
  all.push_back(extreme);
  return all;
}

Sample residual() {
  Sample s = samples()[0];
  s.name = "residual_8x1024x768";
  s.output = Shape{8, 1024, 768};
  s.arguments = {normal("add.residual.a", s.output), normal("add.residual.b", s.output)};
  return s;
}

const RegisterOp record({
    .name = "add",
    .tolerances = {{DType::f32, 6e-8, 0, 2e-7,
                    "one rounding; a gradient is the cotangent or its sum in double"}},
    .samples = samples,
    .benchmarks = [] { return std::vector<Sample>{residual()}; },
    .refusals = {{"shapes",
                  [](RankContext& c) {
                    add(some(c, {2, 3}), some(c, {3, 2}));
                  },
                  "add: (2, 3) and (3, 2)"},
                 {"two_is_not_one",
                  [](RankContext& c) {
                    add(some(c, {2, 3}), some(c, {2}));
                  },
                  "add: (2, 3) and (2)"},
                 {"dtypes", [](RankContext& c) { add(some(c, {2}), some(c, {2}, DType::bf16)); },
                  "add: fp32 with bf16"},
                 {"no_value", [](RankContext& c) { add(some(c, {2}), Variable()); },
                  "add: input 1 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
