// Op records: reshape, transpose, permute, slice, expand, concat, split.
#include "autograd/ops/shape_ops.h"

#include "autograd/ops/arithmetic.h"
#include "ops/general.h"

namespace penstock::testing {
namespace {

/// `from` gives, for each element of the result, the element of x that it is.
template <class Apply, class From>
Sample view_sample(const std::string& name, Argument x, const Shape& out, Apply apply, From from) {
  Sample s;
  s.name = name;
  s.output = out;
  s.view = true;
  s.saved_bytes = 0;
  s.arguments = {std::move(x)};
  s.apply = [apply](const Variables& in, const StepState*) { return apply(in[0]); };
  set_reference(s, [=]<class Real>(const std::vector<std::vector<Real>>& in) {
    std::vector<Real> y;
    for (Index i = 0; i < out.numel(); ++i) y.push_back(in[0][from(coordinates(out, i), i)]);
    return y;
  });
  return s;
}

/// The layouts and roles that every view must bear, for one geometry.
template <class Make>
std::vector<Sample> with_layouts(std::vector<Sample> all, Make make) {
  for (const auto& [name, layout] :
       {std::pair{"transposed", Layout::transposed}, std::pair{"sliced", Layout::sliced}}) {
    all.push_back(make(name, Role::activation));
    all.back().arguments[0].layout = layout;
  }
  all.push_back(make("of_a_weight", Role::weight));
  return all;
}

const Tolerance exact{DType::f32, 0, 0, 2e-7,
                      "moves values; a gradient is the cotangent or its sum in double"};

std::vector<Sample> first(const std::vector<Sample>& samples) { return {samples[0]}; }

Sample reshape_sample(const std::string& name, const Shape& from, const Shape& to,
                      const std::vector<Index>& sizes, Role role = Role::activation) {
  return view_sample(
      name, normal("reshape." + name, from, role), to,
      [=](const Variable& x) { return ops::reshape(x, sizes); },
      [](const std::vector<Index>&, Index i) { return static_cast<std::size_t>(i); });
}

std::vector<Sample> reshape_samples() {
  return with_layouts({reshape_sample("odd", Shape{3, 5, 14}, Shape{3, 5, 2, 7}, {3, 5, 2, 7}),
                       reshape_sample("inferred", Shape{4, 6}, Shape{3, 8}, {3, -1}),
                       reshape_sample("flat", Shape{4, 6}, Shape{24}, {-1}),
                       reshape_sample("to_scalar", Shape{1, 1}, Shape{}, {}),
                       reshape_sample("from_scalar", Shape{}, Shape{1, 1}, {1, -1}),
                       reshape_sample("empty", Shape{0, 4}, Shape{2, 0}, {2, 0}),
                       reshape_sample("same", Shape{5}, Shape{5}, {5}),
                       reshape_sample("large", Shape{300, 400}, Shape{120000}, {120000})},
                      [](const char* name, Role role) {
                        return reshape_sample(name, Shape{4, 6, 5}, Shape{6, 20}, {6, 20}, role);
                      });
}

const RegisterOp reshape_record({
    .name = "reshape",
    .tolerances = {exact},
    .samples = reshape_samples,
    .benchmarks = [] { return first(reshape_samples()); },
    .refusals = {{"elements",
                  [](RankContext& c) {
                    ops::reshape(some(c, {2, 3}), {4});
                  },
                  "reshape: (2, 3) has 6 elements, (4) has 4"},
                 {"two_open",
                  [](RankContext& c) {
                    ops::reshape(some(c, {2, 3}), {-1, -1});
                  },
                  "are -1"},
                 {"no_multiple",
                  [](RankContext& c) {
                    ops::reshape(some(c, {2, 3}), {4, -1});
                  },
                  "reshape: (2, 3) has no shape (4, -1)"},
                 {"open_of_nothing",
                  [](RankContext& c) {
                    ops::reshape(some(c, {0}), {0, -1});
                  },
                  "reshape: (0) has no shape (0, -1)"},
                 {"negative", [](RankContext& c) { ops::reshape(some(c, {2}), {-2}); },
                  "reshape: the size -2 is negative"},
                 {"no_value", [](RankContext&) { ops::reshape(Variable(), {1}); },
                  "reshape: input 0 has no value"}},
});

Sample transpose_sample(const std::string& name, const Shape& x, int a, int b, Role role = Role::activation) {
  const int p = a < 0 ? a + x.rank() : a, q = b < 0 ? b + x.rank() : b;
  return view_sample(
      name, normal("transpose." + name, x, role), x.with(p, x[q]).with(q, x[p]),
      [=](const Variable& v) { return ops::transpose(v, a, b); },
      [=](std::vector<Index> at, Index) {
        std::swap(at[static_cast<std::size_t>(p)], at[static_cast<std::size_t>(q)]);
        return element_at(x, at);
      });
}

std::vector<Sample> transpose_samples() {
  return with_layouts(
      {transpose_sample("odd", Shape{3, 5, 7}, 0, 2), transpose_sample("last_two", Shape{3, 5, 7}, -1, -2),
       transpose_sample("itself", Shape{3, 5}, 1, 1), transpose_sample("one", Shape{1, 1}, 0, 1),
       transpose_sample("row", Shape{1, 33}, 0, 1), transpose_sample("empty", Shape{0, 4}, 0, 1),
       transpose_sample("large", Shape{300, 400}, 0, 1), transpose_sample("heads", Shape{2, 9, 3, 4}, 1, 2)},
      [](const char* name, Role role) {
        return transpose_sample(name, Shape{4, 6, 5}, 1, 2, role);
      });
}

const RegisterOp transpose_record({
    .name = "transpose",
    .tolerances = {exact},
    .samples = transpose_samples,
    .benchmarks = [] { return first(transpose_samples()); },
    .refusals = {{"dimension",
                  [](RankContext& c) {
                    ops::transpose(some(c, {2, 3}), 0, 2);
                  },
                  "transpose: dimension 2 of a tensor of shape (2, 3)"},
                 {"of_a_scalar", [](RankContext& c) { ops::transpose(some(c, Shape{}), 0, 0); },
                  "transpose: dimension 0 of a tensor of shape ()"},
                 {"no_value", [](RankContext&) { ops::transpose(Variable(), 0, 1); },
                  "transpose: input 0 has no value"}},
});

Sample permute_sample(const std::string& name, const Shape& x, const std::vector<int>& order,
                      Role role = Role::activation) {
  std::vector<Index> sizes;
  for (const int d : order) sizes.push_back(x.dim(d));
  return view_sample(
      name, normal("permute." + name, x, role), Shape(sizes),
      [=](const Variable& v) { return ops::permute(v, order); },
      [=](const std::vector<Index>& at, Index) {
        std::vector<Index> from(at.size());
        for (std::size_t d = 0; d < order.size(); ++d)
          from[static_cast<std::size_t>(order[d] < 0 ? order[d] + x.rank() : order[d])] = at[d];
        return element_at(x, from);
      });
}

std::vector<Sample> permute_samples() {
  return with_layouts(
      {permute_sample("odd", Shape{3, 5, 7}, {2, 0, 1}),
       permute_sample("other_way", Shape{3, 5, 7}, {1, 2, 0}),
       permute_sample("negative", Shape{2, 3, 4, 5}, {-1, 0, -3, 2}),
       permute_sample("itself", Shape{3, 5}, {0, 1}), permute_sample("scalar", Shape{}, {}),
       permute_sample("one", Shape{1}, {0}), permute_sample("empty", Shape{0, 4, 2}, {1, 2, 0}),
       permute_sample("large", Shape{30, 40, 50}, {2, 1, 0})},
      [](const char* name, Role role) {
        return permute_sample(name, Shape{4, 6, 5}, {2, 0, 1}, role);
      });
}

const RegisterOp permute_record({
    .name = "permute",
    .tolerances = {exact},
    .samples = permute_samples,
    .benchmarks = [] { return first(permute_samples()); },
    .refusals = {{"twice",
                  [](RankContext& c) {
                    ops::permute(some(c, {2, 3}), {0, 0});
                  },
                  "permute: the order (0, 0) of the dimensions of (2, 3)"},
                 {"too_few",
                  [](RankContext& c) {
                    ops::permute(some(c, {2, 3}), {0});
                  },
                  "permute: the order (0) of the dimensions of (2, 3)"},
                 {"dimension",
                  [](RankContext& c) {
                    ops::permute(some(c, {2, 3}), {0, 2});
                  },
                  "permute: dimension 2 of a tensor of shape (2, 3)"},
                 {"no_value", [](RankContext&) { ops::permute(Variable(), {0}); },
                  "permute: input 0 has no value"}},
});

Sample slice_sample(const std::string& name, const Shape& x, int dimension, Index begin, Index end,
                    Index step = 1, Role role = Role::activation) {
  const int d = dimension < 0 ? dimension + x.rank() : dimension;
  return view_sample(
      name, normal("slice." + name, x, role), x.with(d, (end - begin + step - 1) / step),
      [=](const Variable& v) { return ops::slice(v, dimension, begin, end, step); },
      [=](std::vector<Index> at, Index) {
        at[static_cast<std::size_t>(d)] = begin + step * at[static_cast<std::size_t>(d)];
        return element_at(x, at);
      });
}

std::vector<Sample> slice_samples() {
  return with_layouts(
      {slice_sample("odd", Shape{3, 5, 7}, 1, 1, 4), slice_sample("last", Shape{3, 5, 7}, -1, 2, 7),
       slice_sample("every_second", Shape{3, 5, 7}, 2, 1, 7, 2),
       slice_sample("every_third", Shape{8, 2}, 0, 0, 8, 3),
       slice_sample("step_beyond", Shape{5, 2}, 0, 3, 5, 9), slice_sample("all", Shape{4}, 0, 0, 4),
       slice_sample("nothing", Shape{4, 3}, 0, 2, 2), slice_sample("of_nothing", Shape{0, 3}, 1, 1, 3),
       slice_sample("large", Shape{300, 400}, 1, 17, 390)},
      [](const char* name, Role role) {
        return slice_sample(name, Shape{4, 6, 5}, 2, 1, 5, 2, role);
      });
}

const RegisterOp slice_record({
    .name = "slice",
    .tolerances = {exact},
    .samples = slice_samples,
    .benchmarks = [] { return first(slice_samples()); },
    .refusals = {{"beyond",
                  [](RankContext& c) {
                    ops::slice(some(c, {2, 3}), 1, 0, 4);
                  },
                  "slice: 0:4 in steps of 1 of dimension 1 of (2, 3)"},
                 {"backwards",
                  [](RankContext& c) {
                    ops::slice(some(c, {2, 3}), 1, 2, 1);
                  },
                  "slice: 2:1 in steps of 1 of dimension 1 of (2, 3)"},
                 {"negative",
                  [](RankContext& c) {
                    ops::slice(some(c, {2, 3}), 1, -1, 1);
                  },
                  "slice: -1:1"},
                 {"step",
                  [](RankContext& c) {
                    ops::slice(some(c, {2, 3}), 1, 0, 3, 0);
                  },
                  "slice: 0:3 in steps of 0"},
                 {"dimension", [](RankContext& c) { ops::slice(some(c, {2}), -2, 0, 1); },
                  "slice: dimension -2 of a tensor of shape (2)"},
                 {"no_value", [](RankContext&) { ops::slice(Variable(), 0, 0, 1); },
                  "slice: input 0 has no value"}},
});

Sample expand_sample(const std::string& name, const Shape& x, const Shape& to, Role role = Role::activation) {
  return view_sample(
      name, normal("expand." + name, x, role), to, [=](const Variable& v) { return ops::expand(v, to); },
      [=](const std::vector<Index>& at, Index) { return element_at(x, at); });
}

std::vector<Sample> expand_samples() {
  return with_layouts(
      {expand_sample("odd", Shape{3, 1, 7}, Shape{3, 5, 7}),
       expand_sample("leading", Shape{5}, Shape{2, 3, 5}), expand_sample("scalar", Shape{}, Shape{4, 33}),
       expand_sample("itself", Shape{3, 5}, Shape{3, 5}), expand_sample("ones", Shape{1}, Shape{1, 1, 1}),
       expand_sample("to_nothing", Shape{3, 1}, Shape{3, 0}),
       expand_sample("alternating", Shape{1, 3, 1, 2}, Shape{4, 3, 5, 2}),
       expand_sample("large", Shape{1, 130}, Shape{1023, 130})},
      [](const char* name, Role role) {
        return expand_sample(name, Shape{4, 6, 5}, Shape{2, 4, 6, 5}, role);
      });
}

const RegisterOp expand_record({
    .name = "expand",
    .tolerances = {exact},
    .samples = expand_samples,
    .benchmarks = [] { return first(expand_samples()); },
    .refusals = {{"size",
                  [](RankContext& c) {
                    ops::expand(some(c, {2, 3}), Shape{4, 3});
                  },
                  "expand: (2, 3) and (4, 3)"},
                 {"smaller",
                  [](RankContext& c) {
                    ops::expand(some(c, {2, 3}), Shape{1, 3});
                  },
                  "expand: (2, 3) to (1, 3)"},
                 {"fewer",
                  [](RankContext& c) {
                    ops::expand(some(c, {2, 3}), Shape{3});
                  },
                  "expand: (2, 3) to (3)"},
                 {"no_value", [](RankContext&) { ops::expand(Variable(), Shape{1}); },
                  "expand: input 0 has no value"}},
});

Sample concat_sample(const std::string& name, const std::vector<Shape>& shapes, int dimension,
                     const Shape& out) {
  const int d = dimension < 0 ? dimension + out.rank() : dimension;
  Sample s;
  s.name = name;
  s.output = out;
  s.saved_bytes = 0;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    s.arguments.push_back(
        normal("concat." + name + std::to_string(i), shapes[i], i == 1 ? Role::weight : Role::activation));
  s.apply = [=](const Variables& in, const StepState*) { return ops::concat(in, dimension); };
  set_reference(s, [=]<class Real>(const std::vector<std::vector<Real>>& in) {
    std::vector<Real> y;
    for (Index i = 0; i < out.numel(); ++i) {
      auto at = coordinates(out, i);
      Index& place = at[static_cast<std::size_t>(d)];
      std::size_t part = 0;
      for (; place >= shapes[part][d]; ++part) place -= shapes[part][d];
      y.push_back(in[part][element_at(shapes[part], at)]);
    }
    return y;
  });
  return s;
}

std::vector<Sample> concat_samples() {
  std::vector<Sample> all{
      concat_sample("odd", {Shape{3, 1, 5}, Shape{3, 7, 5}, Shape{3, 2, 5}}, 1, Shape{3, 10, 5}),
      concat_sample("first", {Shape{2, 3}, Shape{4, 3}}, 0, Shape{6, 3}),
      concat_sample("last", {Shape{2, 3}, Shape{2, 1}}, -1, Shape{2, 4}),
      concat_sample("one_part", {Shape{4, 3}}, 0, Shape{4, 3}),
      concat_sample("with_nothing", {Shape{2, 3}, Shape{2, 0}, Shape{2, 1}}, 1, Shape{2, 4}),
      concat_sample("empty", {Shape{0, 3}, Shape{0, 2}}, 1, Shape{0, 5}),
      concat_sample("vectors", {Shape{1}, Shape{1}, Shape{33}}, 0, Shape{35}),
      concat_sample("large", {Shape{300, 100}, Shape{300, 300}}, 1, Shape{300, 400}),
  };
  Sample views = concat_sample("views", {Shape{4, 6}, Shape{4, 5}}, 1, Shape{4, 11});
  views.arguments[0].layout = Layout::transposed;
  views.arguments[1].layout = Layout::sliced;
  all.push_back(views);
  Sample twice = concat_sample("same_twice", {Shape{2, 3}, Shape{2, 3}}, 1, Shape{2, 6});
  twice.arguments.pop_back();
  twice.apply = [](const Variables& in, const StepState*) { return ops::concat({in[0], in[0]}, 1); };
  set_reference(twice, [](const auto& in) {
    const auto& x = in[0];
    return std::vector{x[0], x[1], x[2], x[0], x[1], x[2], x[3], x[4], x[5], x[3], x[4], x[5]};
  });
  all.push_back(twice);
  return all;
}

const RegisterOp concat_record({
    .name = "concat",
    .tolerances = {exact},
    .samples = concat_samples,
    .benchmarks = [] { return first(concat_samples()); },
    .refusals = {{"nothing", [](RankContext&) { ops::concat({}, 0); }, "concat: of nothing"},
                 {"sizes",
                  [](RankContext& c) {
                    ops::concat({some(c, {2, 3}), some(c, {3, 3})}, 1);
                  },
                  "concat: (2, 3) and (3, 3) along dimension 1"},
                 {"ranks",
                  [](RankContext& c) {
                    ops::concat({some(c, {2, 3}), some(c, {2})}, 0);
                  },
                  "concat: (2, 3) and (2) along dimension 0"},
                 {"dtypes",
                  [](RankContext& c) {
                    ops::concat({some(c, {2}), some(c, {2}, DType::i32)}, 0);
                  },
                  "concat: fp32 and int32"},
                 {"dimension",
                  [](RankContext& c) {
                    ops::concat({some(c, {2}), some(c, {2})}, 1);
                  },
                  "concat: dimension 1 of a tensor of shape (2)"},
                 {"no_value",
                  [](RankContext& c) {
                    ops::concat({some(c, {2}), Variable()}, 0);
                  },
                  "concat: input 1 has no value"}},
});

/// Two parts that swap places, times 2 and 1, and one that nothing depends on.
Sample split_sample(const std::string& name, const Shape& x, int dimension, const std::vector<Index>& sizes,
                    Role role = Role::activation) {
  const int d = dimension < 0 ? dimension + x.rank() : dimension;
  const Index a = sizes[0], b = sizes[1];
  const Shape out = x.with(d, a + b);
  Sample s = view_sample(
      name, normal("split." + name, x, role), out,
      [=](const Variable& v) {
        const Variables parts = ops::split(v, sizes, dimension);
        return ops::concat({parts[1], parts[0]}, dimension);
      },
      [=](std::vector<Index> at, Index) {
        Index& place = at[static_cast<std::size_t>(d)];
        place = place < b ? a + place : place - b;
        return element_at(x, at);
      });
  s.view = false;
  return s;
}

std::vector<Sample> split_samples() {
  return with_layouts(
      {split_sample("odd", Shape{3, 10, 5}, 1, {1, 7, 2}), split_sample("halves", Shape{3, 8}, -1, {4, 4}),
       split_sample("rows", Shape{5, 3}, 0, {2, 3}), split_sample("with_nothing", Shape{3, 5}, 1, {0, 2, 3}),
       split_sample("ones", Shape{2}, 0, {1, 1}), split_sample("empty", Shape{0, 4}, 1, {1, 3}),
       split_sample("unused_rest", Shape{9}, 0, {2, 3, 0, 4}),
       split_sample("large", Shape{300, 400}, 1, {100, 300})},
      [](const char* name, Role role) {
        return split_sample(name, Shape{4, 6, 5}, 2, {1, 3, 1}, role);
      });
}

const RegisterOp split_record({
    .name = "split",
    .tolerances = {exact},
    .samples = split_samples,
    .benchmarks = [] { return first(split_samples()); },
    .refusals = {{"too_much",
                  [](RankContext& c) {
                    ops::split(some(c, {5}), {2, 4}, 0);
                  },
                  "split: parts of (2, 4) of dimension 0 of (5)"},
                 {"too_little",
                  [](RankContext& c) {
                    ops::split(some(c, {5}), {2, 2}, 0);
                  },
                  "split: parts of (2, 2) of dimension 0 of (5)"},
                 {"negative",
                  [](RankContext& c) {
                    ops::split(some(c, {5}), {6, -1}, 0);
                  },
                  "split: parts of (6, -1)"},
                 {"no_parts", [](RankContext& c) { ops::split(some(c, {0}), {}, 0); }, "split: parts of ()"},
                 {"dimension", [](RankContext& c) { ops::split(some(c, {5}), {5}, 1); },
                  "split: dimension 1 of a tensor of shape (5)"},
                 {"no_value", [](RankContext&) { ops::split(Variable(), {1}, 0); },
                  "split: input 0 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
