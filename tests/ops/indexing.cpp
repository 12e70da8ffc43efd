// Op records: gather, index_select.
#include <algorithm>

#include "autograd/ops/shape_ops.h"
#include "ops/general.h"

namespace penstock::testing {
namespace {

Sample gather_sample(const std::string& name, const Shape& x, int dimension, const Shape& index,
                     bool wide = false) {
  const int d = dimension < 0 ? dimension + x.rank() : dimension;
  Sample s;
  s.name = name;
  s.output = index;
  s.arguments = {normal("gather." + name, x), ids("gather.index." + name, index, std::max<Index>(x[d], 1))};
  if (wide) s.arguments[1].dtype = DType::i64;
  s.saved_bytes = 0;
  s.apply = [=](const Variables& in, const StepState*) { return ops::gather(in[0], dimension, in[1]); };
  set_reference(s, [=]<class Real>(const std::vector<std::vector<Real>>& in) {
    std::vector<Real> y;
    for (Index i = 0; i < index.numel(); ++i) {
      auto at = coordinates(index, i);
      at[static_cast<std::size_t>(d)] = static_cast<Index>(in[1][static_cast<std::size_t>(i)]);
      y.push_back(in[0][element_at(x, at)]);
    }
    return y;
  });
  return s;
}

std::vector<Sample> gather_samples() {
  std::vector<Sample> all{
      gather_sample("odd", Shape{3, 5, 7}, 1, Shape{3, 4, 7}),
      gather_sample("int64", Shape{3, 5, 7}, 1, Shape{3, 9, 7}, true),
      gather_sample("last", Shape{4, 11}, -1, Shape{4, 1}),
      gather_sample("first", Shape{4, 5}, 0, Shape{20, 5}),  // every row is met several times
      gather_sample("vector", Shape{6}, 0, Shape{15}),
      gather_sample("one", Shape{1}, 0, Shape{1}),
      gather_sample("of_one_row", Shape{1, 70}, 0, Shape{5, 70}),
      gather_sample("nothing", Shape{3, 5}, 1, Shape{3, 0}),
      gather_sample("no_rows", Shape{0, 5}, 1, Shape{0, 2}),
      gather_sample("large", Shape{50, 200, 3}, 1, Shape{50, 300, 3}),
  };
  Sample views = gather_sample("views", Shape{4, 6}, 1, Shape{4, 9});
  views.arguments[0].layout = Layout::transposed;
  views.arguments[1].layout = Layout::sliced;
  all.push_back(views);
  Sample sliced = gather_sample("sliced", Shape{4, 6}, 0, Shape{3, 6});
  sliced.arguments[0].layout = Layout::sliced;
  sliced.arguments[1].layout = Layout::transposed;
  all.push_back(sliced);
  return all;
}

Variable index_of(RankContext& c, const Shape& shape, double value) {
  return Variable(
      make_tensor(c, int32s(shape, std::vector<double>(static_cast<std::size_t>(shape.numel()), value))));
}

const RegisterOp gather_record({
    .name = "gather",
    .tolerances = {{DType::f32, 0, 0, 1e-6, "a copy; a gradient adds what goes to one element, in fp32"}},
    .samples = gather_samples,
    .benchmarks = [] { return std::vector<Sample>{gather_samples()[9]}; },
    .refusals = {{"index_too_large",
                  [](RankContext& c) {
                    ops::gather(some(c, {3, 5}), 1, index_of(c, {3, 2}, 5));
                  },
                  "gather: index 5 at place 0 is outside 0..4"},
                 {"index_negative",
                  [](RankContext& c) {
                    ops::gather(some(c, {3, 5}), 1, index_of(c, {3, 2}, -1));
                  },
                  "gather: index -1 at place 0 is outside 0..4"},
                 {"sizes",
                  [](RankContext& c) {
                    ops::gather(some(c, {3, 5}), 1, index_of(c, {2, 5}, 0));
                  },
                  "gather: an index of shape (2, 5) into dimension 1 of (3, 5)"},
                 {"rank",
                  [](RankContext& c) {
                    ops::gather(some(c, {3, 5}), 1, index_of(c, {3}, 0));
                  },
                  "gather: an index of shape (3) into dimension 1 of (3, 5)"},
                 {"dtype",
                  [](RankContext& c) {
                    ops::gather(some(c, {3, 5}), 1, some(c, {3, 5}));
                  },
                  "gather: an index is int32 or int64, not fp32"},
                 {"dimension", [](RankContext& c) { ops::gather(some(c, {3}), 1, index_of(c, {3}, 0)); },
                  "gather: dimension 1 of a tensor of shape (3)"},
                 {"no_value", [](RankContext& c) { ops::gather(some(c, {3}), 0, Variable()); },
                  "gather: input 1 has no value"}},
});

Sample select_sample(const std::string& name, const Shape& x, int dimension, const std::vector<double>& index,
                     Role role = Role::activation) {
  const int d = dimension < 0 ? dimension + x.rank() : dimension;
  const Shape out = x.with(d, static_cast<Index>(index.size()));
  Sample s;
  s.name = name;
  s.output = out;
  s.arguments = {normal("index_select." + name, x, role), int64s(Shape{out[d]}, index)};
  if (name.size() % 2 == 0) s.arguments[1].dtype = DType::i32;
  s.saved_bytes = 0;
  s.apply = [=](const Variables& in, const StepState*) { return ops::index_select(in[0], dimension, in[1]); };
  set_reference(s, [=]<class Real>(const std::vector<std::vector<Real>>& in) {
    std::vector<Real> y;
    for (Index i = 0; i < out.numel(); ++i) {
      auto at = coordinates(out, i);
      at[static_cast<std::size_t>(d)] =
          static_cast<Index>(index[static_cast<std::size_t>(at[static_cast<std::size_t>(d)])]);
      y.push_back(in[0][element_at(x, at)]);
    }
    return y;
  });
  return s;
}

std::vector<Sample> select_samples() {
  std::vector<double> many;
  for (int i = 0; i < 300; ++i) many.push_back(i * 37 % 50);
  std::vector<Sample> all{
      select_sample("odd", Shape{3, 5, 7}, 1, {4, 0, 2, 2}),
      select_sample("rows", Shape{5, 3}, 0, {1, 1, 1, 4, 1}),
      select_sample("last", Shape{3, 5}, -1, {4, 3, 2, 1, 0, 0, 0}),
      select_sample("vector", Shape{4}, 0, {3, 3}),
      select_sample("one", Shape{1}, 0, {0}),
      select_sample("nothing", Shape{3, 5}, 0, {}),
      select_sample("no_columns", Shape{3, 0}, 0, {2, 1}),
      select_sample("of_a_weight", Shape{6, 70}, 0, {5, 0, 5}, Role::weight),
      select_sample("large", Shape{2, 50, 130}, 1, many),
  };
  Sample views = select_sample("views", Shape{4, 6}, 1, {5, 1, 1});
  views.arguments[0].layout = Layout::transposed;
  views.arguments[1].layout = Layout::sliced;
  all.push_back(views);
  Sample repeated = select_sample("repeated_index", Shape{4, 6}, 0, {2, 2, 2});
  repeated.arguments[0].layout = Layout::sliced;
  repeated.arguments[1].layout = Layout::repeated;
  all.push_back(repeated);
  return all;
}

const RegisterOp select_record({
    .name = "index_select",
    .tolerances = {{DType::f32, 0, 0, 1e-6, "a copy; a gradient adds what goes to one element, in fp32"}},
    .samples = select_samples,
    .benchmarks = [] { return std::vector<Sample>{select_samples()[8]}; },
    .refusals = {{"index_too_large",
                  [](RankContext& c) {
                    ops::index_select(some(c, {3, 5}), 0, index_of(c, {2}, 3));
                  },
                  "index_select: index 3 at place 0 is outside 0..2"},
                 {"not_a_list",
                  [](RankContext& c) {
                    ops::index_select(some(c, {3, 5}), 0, index_of(c, {2, 1}, 0));
                  },
                  "index_select: an index of shape (2, 1) into dimension 0 of (3, 5)"},
                 {"dtype",
                  [](RankContext& c) { ops::index_select(some(c, {3}), 0, some(c, {3}, DType::u8)); },
                  "index_select: an index is int32 or int64, not uint8"},
                 {"dimension",
                  [](RankContext& c) { ops::index_select(some(c, {3}), 1, index_of(c, {3}, 0)); },
                  "index_select: dimension 1 of a tensor of shape (3)"},
                 {"no_value", [](RankContext& c) { ops::index_select(Variable(), 0, index_of(c, {3}, 0)); },
                  "index_select: input 0 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
