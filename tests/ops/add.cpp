// Op record: add.
#include "autograd/ops/elementwise.h"
#include "ops/table/record.h"

namespace penstock::testing {
namespace {

Sample add_sample(const std::string& name, const Shape& shape) {
  Sample s;
  s.name = name;
  s.arguments = {normal(name + ".a", shape), normal(name + ".b", shape, Role::weight)};
  s.output = shape;
  s.saved_bytes = 0;
  s.apply = [](const Variables& in, const StepState*) { return ops::add(in[0], in[1]); };
  set_reference(s, [](const auto& in) {
    auto y = in[0];
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += in[1][i];
    return y;
  });
  return s;
}

std::vector<Sample> samples() {
  std::vector<Sample> all{add_sample("odd", Shape{3, 5, 7}),       add_sample("one", Shape{1}),
                          add_sample("scalar", Shape{}),           add_sample("empty", Shape{2, 0, 3}),
                          add_sample("size_one", Shape{1, 31, 1}), add_sample("large", Shape{3, 40001})};
  Sample views = add_sample("views", Shape{4, 6, 5});
  views.arguments[0].layout = Layout::transposed;
  views.arguments[1].layout = Layout::sliced;
  all.push_back(views);
  Sample twice = add_sample("same_twice", Shape{2, 9});
  twice.arguments.pop_back();
  twice.apply = [](const Variables& in, const StepState*) { return ops::add(in[0], in[0]); };
  set_reference(twice, [](const auto& in) {
    auto y = in[0];
    for (auto& v : y) v += v;
    return y;
  });
  all.push_back(twice);
  Sample extreme = add_sample("extreme", Shape{6});
  extreme.arguments = {floats(Shape{6}, {1e38f, -1e38f, 1e-45f, 0.0f, -0.0f, 16777216.0f}),
                       floats(Shape{6}, {1e38f, 1e38f, 1e-45f, -0.0f, -0.0f, 1.0f}, Role::weight)};
  all.push_back(extreme);
  return all;
}

const RegisterOp record({
    .name = "add",
    .tolerances = {{DType::f32, 6e-8, 0, 2e-7, "one rounding; the gradient is the cotangent itself"}},
    .samples = samples,
    .benchmarks =
        [] {
          return std::vector<Sample>{add_sample("residual_8x1024x768", Shape{8, 1024, 768})};
        },
    .refusals = {{"shapes",
                  [](RankContext& c) {
                    ops::add(some(c, {2, 3}), some(c, {3, 2}));
                  },
                  "add: (2, 3) and (3, 2)"},
                 {"no_broadcast",
                  [](RankContext& c) {
                    ops::add(some(c, {2, 3}), some(c, {3}));
                  },
                  "add: (2, 3) and (3)"},
                 {"dtypes", [](RankContext& c) { ops::add(some(c, {2}), some(c, {2}, DType::bf16)); },
                  "bf16"},
                 {"no_value", [](RankContext& c) { ops::add(some(c, {2}), Variable()); },
                  "add: input 1 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
