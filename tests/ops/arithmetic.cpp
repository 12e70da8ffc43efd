// Op records: sub, mul, div (add has a file of its own), and the forms with a number.
#include "autograd/ops/arithmetic.h"

#include "ops/general.h"

namespace penstock::testing {
namespace {

using Operation = Variable (*)(const Variable&, const Variable&);

std::vector<Refusal> refusals(const std::string& name, Operation op) {
  return {
      {"shapes",
       [=](RankContext& c) {
         op(some(c, {2, 3}), some(c, {3, 2}));
       },
       name + ": (2, 3) and (3, 2)"},
      {"two_is_not_one",
       [=](RankContext& c) {
         op(some(c, {4, 2}), some(c, {4, 4}));
       },
       name + ": (4, 2) and (4, 4)"},
      {"empty_is_not_one", [=](RankContext& c) { op(some(c, {0}), some(c, {2})); }, name + ": (0) and (2)"},
      {"dtype", [=](RankContext& c) { op(some(c, {2}), some(c, {2}, DType::bf16)); },
       name + ": fp32 with bf16"},
      {"integers", [=](RankContext& c) { op(some(c, {2}, DType::i32), some(c, {2})); },
       name + ": computes with fp32 or bf16, not int32"},
      {"no_value", [=](RankContext& c) { op(some(c, {2}), Variable()); }, name + ": input 1 has no value"}};
}

template <class Samples>
std::function<std::vector<Sample>()> one_benchmark(Samples samples) {
  return [=] {
    for (Sample& s : samples())
      if (s.name == "large") return std::vector<Sample>{s};
    return std::vector<Sample>{};
  };
}

std::vector<Sample> sub_samples() {
  return binary_samples(
      "sub", Operation(ops::sub), [](auto a, auto b) { return a - b; }, draw_normal);
}
std::vector<Sample> mul_samples() {
  return binary_samples(
      "mul", Operation(ops::mul), [](auto a, auto b) { return a * b; }, draw_normal);
}
std::vector<Sample> div_samples() {
  std::vector<Sample> all = binary_samples(
      "div", Operation(ops::div), [](auto a, auto b) { return a / b; }, draw_away_from_zero);
  Sample extreme = all[0];
  extreme.name = "extreme";  // b^2 would overflow, or vanish
  extreme.output = Shape{4};
  extreme.arguments = {floats(Shape{4}, {1e30f, -2e30f, 3e30f, 1e30f}),
                       floats(Shape{4}, {3e30f, 5e29f, -1e30f, 7e30f}, Role::weight)};
  extreme.step = 1e24;
  extreme.gradient_slack = 4;
  set_reference(extreme, [](const auto& in) {
    auto y = in[0];
    for (std::size_t i = 0; i < y.size(); ++i) y[i] /= in[1][i];
    return y;
  });
  all.push_back(extreme);
  return all;
}

const RegisterOp sub_record({
    .name = "sub",
    .tolerances = {{DType::f32, 6e-8, 0, 2e-7,
                    "one rounding; a gradient is the cotangent or its sum in double"}},
    .samples = sub_samples,
    .benchmarks = one_benchmark(sub_samples),
    .refusals = refusals("sub", ops::sub),
});

const RegisterOp mul_record({
    .name = "mul",
    .tolerances = {{DType::f32, 6e-8, 0, 2e-6,
                    "one rounding; a gradient is a product, or the sum of rounded products in double, which "
                    "may cancel"},
                   in_bf16(1.01, 0, 4, "a gradient is rounded before its sum, which may cancel, and after")},
    .samples = mul_samples,
    .benchmarks = one_benchmark(mul_samples),
    .refusals = refusals("mul", ops::mul),
});

const RegisterOp div_record({
    .name = "div",
    .tolerances = {{DType::f32, 1.3e-7, 0, 2e-6,
                    "one rounding; the divisor's gradient has three, and cancels in a sum"},
                   in_bf16(1.01, 0, 4, "a gradient is rounded before its sum, which may cancel, and after")},
    .samples = div_samples,
    .benchmarks = one_benchmark(div_samples),
    .refusals = refusals("div", ops::div),
});

std::vector<Sample> affine_samples() {
  return unary_samples(
      "affine", [](const Variable& x) { return ops::add(ops::mul(ops::add(x, 1.5f), -0.75f), 0.25f); },
      [](auto v) { return (v + decltype(v)(1.5)) * decltype(v)(-0.75) + decltype(v)(0.25); }, draw_normal,
      {0.0f, -0.0f, 1e30f, -1e30f, 1e-30f, -1e-45f, 16777216.0f});
}

const RegisterOp affine_record({
    .name = "add_and_mul_by_a_number",
    .tolerances = {{DType::f32, 2e-7, 2e-7, 2e-7, "three roundings, of which the sums may cancel"},
                   in_bf16(3, 4, 3, "three roundings, the first of numbers up to four")},
    .samples = affine_samples,
    .benchmarks = one_benchmark(affine_samples),
    .refusals = {{"dtype", [](RankContext& c) { ops::add(some(c, {2}, DType::f16), 1.0f); },
                  "add: computes with fp32 or bf16, not fp16"},
                 {"integers", [](RankContext& c) { ops::mul(some(c, {2}, DType::i64), 2.0f); },
                  "mul: computes with fp32 or bf16, not int64"},
                 {"no_value", [](RankContext&) { ops::mul(Variable(), 2.0f); }, "mul: input 0 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
