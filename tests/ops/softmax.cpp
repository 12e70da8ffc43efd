// Op records: softmax, log_softmax.
#include "autograd/ops/softmax.h"

#include "ops/general.h"

namespace penstock::testing {
namespace {

Sample softmax_sample(const std::string& name, Argument x, bool logarithm) {
  const Index cols = x.shape.dim(-1), rows = x.shape.without_last().numel();
  Sample s;
  s.name = name;
  s.output = x.shape;
  s.arguments = {std::move(x)};
  s.saved_bytes = 0;
  s.apply = [=](const Variables& in, const StepState*) {
    return logarithm ? ops::log_softmax(in[0]) : ops::softmax(in[0]);
  };
  set_reference(s, [=]<class Real>(const std::vector<std::vector<Real>>& in) {
    std::vector<Real> y = in[0];
    for (Index r = 0; r < rows; ++r) {
      Real* row = y.data() + r * cols;
      Real top = cols > 0 ? row[0] : 0, total = 0;
      for (Index i = 0; i < cols; ++i) top = row[i] > top ? row[i] : top;
      for (Index i = 0; i < cols; ++i) total += std::exp(row[i] - top);
      for (Index i = 0; i < cols; ++i) {
        const Real below = row[i] - top;
        row[i] = logarithm ? below - std::log(total) : std::exp(below) / total;
      }
    }
    return y;
  });
  return s;
}

std::vector<Sample> samples(bool logarithm) {
  const auto x = [&](const char* name, const Shape& shape, Role role = Role::activation) {
    return softmax_sample(name, normal(std::string("softmax.") + name, shape, role, 0, 2), logarithm);
  };
  std::vector<Sample> all{
      x("odd", Shape{3, 5, 7}),
      x("one", Shape{1}),
      x("one_class", Shape{4, 1}),
      x("no_rows", Shape{0, 5}),
      x("no_columns", Shape{3, 0}),
      x("of_a_weight", Shape{4, 5}, Role::weight),
      x("large", Shape{30, 4001}),
      x("length_31", Shape{2, 31}),
      x("length_64", Shape{1, 64}),
      x("length_65", Shape{1, 65}),
      softmax_sample("transposed", laid_out(normal("softmax.transposed", Shape{2, 5, 6}), Layout::transposed),
                     logarithm),
      softmax_sample("sliced", laid_out(normal("softmax.sliced", Shape{2, 5, 6}), Layout::sliced), logarithm),
      softmax_sample("repeated", laid_out(floats(Shape{2, 3}, {1, 2, 3, 1, 2, 3}), Layout::repeated),
                     logarithm),
  };
  Sample extreme = softmax_sample(
      "extreme", floats(Shape{4, 3}, {1e4f, 0, -1e4f, 88, 89, 90, -1e5f, 0, -1e5f, -3e4f, -3e4f, -3e4f}),
      logarithm);
  extreme.step = 1e-4;
  extreme.gradient_slack = 20;  // the differences' own error in a number of size 1e4
  all.push_back(extreme);
  return all;
}

std::vector<Refusal> refusals(const std::string& name, Variable (*op)(const Variable&)) {
  return {{"scalar", [=](RankContext& c) { op(some(c, Shape{})); },
           name + ": a tensor without dimensions has no rows"},
          {"dtype", [=](RankContext& c) { op(some(c, {2}, DType::f16)); },
           name + ": computes with fp32 or bf16, not fp16"},
          {"no_value", [=](RankContext&) { op(Variable()); }, name + ": input 0 has no value"}};
}

const RegisterOp softmax_record({
    .name = "softmax",
    .tolerances = {{DType::f32, 1e-6, 1e-7, 2e-6,
                    "an exponential of a rounded difference, a sum of chains of 64, two roundings"}},
    .samples = [] { return samples(false); },
    .benchmarks = [] { return std::vector<Sample>{samples(false)[6]}; },
    .refusals = refusals("softmax", ops::softmax),
});

const RegisterOp log_softmax_record({
    .name = "log_softmax",
    .tolerances = {{DType::f32, 5e-7, 1e-6, 2e-6,
                    "two differences of numbers of size 10; a gradient has an exponential of their error"}},
    .samples = [] { return samples(true); },
    .benchmarks = [] { return std::vector<Sample>{samples(true)[6]}; },
    .refusals = refusals("log_softmax", ops::log_softmax),
});

}  // namespace
}  // namespace penstock::testing
