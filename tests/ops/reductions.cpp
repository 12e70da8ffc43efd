// Op records: sum, mean, max over axes.
#include "autograd/ops/reductions.h"

#include "autograd/ops/arithmetic.h"
#include "ops/general.h"

namespace penstock::testing {
namespace {

using Reduction = Variable (*)(const Variable&, const std::vector<int>&, bool);

bool reduced(const std::vector<int>& axes, int d, int rank) {
  for (const int axis : axes)
    if (axis == d || axis + rank == d) return true;
  return axes.empty();
}

/// By coordinates: `add` takes an element into the result, `finish` is told how many there were.
template <class Add, class Finish>
Sample reduction_sample(const std::string& name, Reduction op, Argument x, const std::vector<int>& axes,
                        bool keepdims, double start, Add add, Finish finish) {
  const Shape shape = x.shape;
  Shape kept = shape;
  std::vector<Index> left;
  for (int d = 0; d < shape.rank(); ++d) {
    const bool gone = reduced(axes, d, shape.rank());
    if (gone) kept = kept.with(d, 1);
    if (!gone || keepdims) left.push_back(gone ? 1 : shape[d]);
  }
  Sample s;
  s.name = name;
  s.output = Shape(left);
  s.view = kept == shape;  // nothing to reduce
  s.arguments = {std::move(x)};
  s.saved_bytes = 0;
  s.apply = [=](const Variables& in, const StepState*) { return op(in[0], axes, keepdims); };
  set_reference(s, [=]<class Real>(const std::vector<std::vector<Real>>& in) {
    std::vector<Real> y(static_cast<std::size_t>(kept.numel()), static_cast<Real>(start));
    for (Index i = 0; i < shape.numel(); ++i) {
      Real& to = y[element_at(kept, coordinates(shape, i))];
      to = add(to, in[0][static_cast<std::size_t>(i)]);
    }
    for (Real& v : y) v = finish(v, static_cast<Real>(kept.numel() == 0 ? 1 : shape.numel() / kept.numel()));
    return y;
  });
  return s;
}

template <class Add, class Finish, class Draw>
std::vector<Sample> reduction_samples(const std::string& op_name, Reduction op, double start, Add add,
                                      Finish finish, Draw draw) {
  const auto sample = [&](const std::string& name, const Shape& shape, const std::vector<int>& axes,
                          bool keepdims = false, Role role = Role::activation) {
    return reduction_sample(name, op, draw(op_name + "." + name, shape, role), axes, keepdims, start, add,
                            finish);
  };
  std::vector<Sample> all{
      sample("everything", Shape{3, 5, 7}, {}),
      sample("last", Shape{3, 5, 7}, {-1}),
      sample("first", Shape{3, 5, 7}, {0}),
      sample("middle_kept", Shape{3, 5, 7}, {1}, true),
      sample("outer_two", Shape{3, 5, 7}, {0, 2}),
      sample("inner_two_kept", Shape{3, 5, 7}, {-1, -2}, true),
      sample("alternating", Shape{3, 2, 5, 2, 4}, {0, 2, 4}),
      sample("scalar", Shape{}, {}),
      sample("one", Shape{1}, {0}),
      sample("size_one_axis", Shape{4, 1, 5}, {1}),
      sample("over_a_size_one", Shape{4, 1, 5}, {0, 2}),
      sample("of_a_weight", Shape{4, 65}, {0}, false, Role::weight),
      sample("no_rows", Shape{0, 4}, {1}),
      sample("large_row", Shape{2, 40001}, {1}),
      sample("large_column", Shape{1023, 130}, {0}),
      sample("eight_dimensions", Shape{2, 2, 2, 2, 2, 2, 2, 2}, {1, 3, 5, 7}),
  };
  for (const Layout layout : {Layout::transposed, Layout::sliced}) {
    all.push_back(sample(layout == Layout::sliced ? "sliced" : "transposed", Shape{2, 5, 6}, {0, 2}));
    all.back().arguments[0].layout = layout;
  }
  // Known faults 8 and 11: lengths at which a cut goes wrong.
  for (const Index n : {Index{3}, Index{31}, Index{32}, Index{33}, Index{1023}, Index{1025}})
    all.push_back(sample("length_" + std::to_string(n), Shape{2, n}, {1}));
  return all;
}

std::vector<Refusal> refusals(const std::string& name, Reduction op) {
  return {{"axis",
           [=](RankContext& c) {
             op(some(c, {2, 3}), {2}, false);
           },
           name + ": dimension 2 of a tensor of shape (2, 3)"},
          {"axis_of_a_scalar", [=](RankContext& c) { op(some(c, Shape{}), {0}, false); },
           name + ": dimension 0 of a tensor of shape ()"},
          {"twice",
           [=](RankContext& c) {
             op(some(c, {2, 3}), {1, -1}, false);
           },
           name + ": dimension -1 is named twice"},
          {"dtype", [=](RankContext& c) { op(some(c, {2}, DType::f16), {}, false); },
           name + ": computes with fp32 or bf16, not fp16"},
          {"integers", [=](RankContext& c) { op(some(c, {2}, DType::i64), {}, false); },
           name + ": computes with fp32 or bf16, not int64"},
          {"no_value", [=](RankContext&) { op(Variable(), {}, false); }, name + ": input 0 has no value"}};
}

std::vector<Refusal> refusals_of_nothing(const std::string& name, Reduction op) {
  std::vector<Refusal> all = refusals(name, op);
  all.push_back({"of_nothing",
                 [=](RankContext& c) {
                   op(some(c, {3, 0}), {1}, false);
                 },
                 name + ": of nothing, over empty dimensions of (3, 0)"});
  return all;
}

const auto plus = [](auto sum, auto v) { return sum + v; };

std::vector<Sample> sum_samples() {
  std::vector<Sample> all = reduction_samples(
      "sum", ops::sum, 0, plus, [](auto v, auto) { return v; }, draw_normal);
  all.push_back(reduction_sample("of_nothing", ops::sum, normal("sum.of_nothing", Shape{3, 0}), {1}, false, 0,
                                 plus, [](auto v, auto) { return v; }));
  for (Sample& s : all)  // what the fp32 loop of the comparison loses
    s.magnitude = 1 + static_cast<double>(s.arguments[0].shape.numel()) / 40;
  return all;
}

std::vector<Sample> mean_samples() {
  return reduction_samples(
      "mean", ops::mean, 0, plus, [](auto v, auto n) { return v / n; }, draw_normal);
}

std::vector<Sample> max_samples() {
  std::vector<Sample> all = reduction_samples(
      "max", ops::max, -1e30, [](auto top, auto v) { return v > top ? v : top; },
      [](auto v, auto) { return v; },
      [](const std::string&, const Shape& shape, Role role) { return distinct(shape, role); });
  for (Sample& s : all) {
    s.step = 1e-5;  // ten times that is far below the distance of two values
    s.fp32_alone = s.arguments[0].shape.numel() > 256;
  }
  return all;
}

const RegisterOp sum_record({
    .name = "sum",
    .tolerances = {{DType::f32, 1e-6, 1e-6, 2e-7,
                    "summed in double, rounded once a group of axes; a gradient is the cotangent itself"}},
    .samples = sum_samples,
    .benchmarks =
        [] {
          return std::vector<Sample>{sum_samples()[13], sum_samples()[14]};
        },
    .refusals = refusals("sum", ops::sum),
});

const RegisterOp mean_record({
    .name = "mean",
    .tolerances = {{DType::f32, 1e-6, 1e-6, 3e-7,
                    "as the sum, divided in double; a gradient is a product with the rounded 1/n"}},
    .samples = mean_samples,
    .benchmarks = [] { return std::vector<Sample>{mean_samples()[13]}; },
    .refusals = refusals_of_nothing("mean", ops::mean),
});

const RegisterOp max_record({
    .name = "max",
    .tolerances = {{DType::f32, 0, 0, 2e-7, "a choice"}},
    .samples = max_samples,
    .benchmarks = [] { return std::vector<Sample>{max_samples()[13]}; },
    .refusals = refusals_of_nothing("max", ops::max),
});

}  // namespace
}  // namespace penstock::testing
