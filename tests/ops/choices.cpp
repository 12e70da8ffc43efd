// Op records: where, comparisons (through the choice that they make), cast.
#include "autograd/ops/arithmetic.h"
#include "ops/general.h"

namespace penstock::testing {
namespace {

Argument coin(const Shape& shape) {
  std::vector<double> values;
  for (Index i = 0; i < shape.numel(); ++i) values.push_back(i % 3 == 0 ? 1 : i % 7 == 2 ? 255 : 0);
  return flags(shape, values);
}

Sample where_sample(const std::string& name, const Shape& condition, const Shape& a, const Shape& b,
                    const Shape& out) {
  Sample s;
  s.name = name;
  s.output = out;
  s.arguments = {coin(condition), normal("where." + name + ".a", a),
                 normal("where." + name + ".b", b, Role::weight)};
  s.saved_bytes = 0;
  s.apply = [](const Variables& in, const StepState*) { return ops::where(in[0], in[1], in[2]); };
  set_reference(s, [=]<class Real>(const std::vector<std::vector<Real>>& in) {
    std::vector<Real> y;
    for (Index i = 0; i < out.numel(); ++i) {
      const auto at = coordinates(out, i);
      y.push_back(in[0][element_at(condition, at)] != 0 ? in[1][element_at(a, at)]
                                                        : in[2][element_at(b, at)]);
    }
    return y;
  });
  return s;
}

std::vector<Sample> where_samples() {
  const auto same = [](const std::string& name, const Shape& s) { return where_sample(name, s, s, s, s); };
  std::vector<Sample> all{
      same("odd", Shape{3, 5, 7}),
      same("one", Shape{1}),
      same("scalar", Shape{}),
      same("empty", Shape{0, 4}),
      same("size_one", Shape{1, 1, 33}),
      same("large", Shape{3, 40001}),
      where_sample("mask_over_heads", Shape{3, 1, 5, 7}, Shape{3, 2, 5, 7}, Shape{}, Shape{3, 2, 5, 7}),
      where_sample("all_broadcast", Shape{4, 1, 1}, Shape{5, 1}, Shape{6}, Shape{4, 5, 6}),
      where_sample("scalar_condition", Shape{}, Shape{3, 4}, Shape{4}, Shape{3, 4}),
  };
  Sample views = same("views", Shape{4, 6, 5});
  views.arguments[0].layout = Layout::transposed;
  views.arguments[1].layout = Layout::sliced;
  views.arguments[2].layout = Layout::transposed;
  all.push_back(views);
  Sample sliced = same("sliced_condition", Shape{4, 6, 5});
  sliced.arguments[0].layout = Layout::sliced;
  all.push_back(sliced);
  return all;
}

const RegisterOp where_record({
    .name = "where",
    .tolerances = {{DType::f32, 0, 0, 2e-7, "a choice; a gradient is the cotangent or its sum in double"}},
    .samples = where_samples,
    .benchmarks = [] { return std::vector<Sample>{where_samples()[5]}; },
    .refusals = {{"condition", [](RankContext& c) { ops::where(some(c, {2}), some(c, {2}), some(c, {2})); },
                  "where: the condition is uint8, not fp32"},
                 {"dtype",
                  [](RankContext& c) {
                    ops::where(some(c, {2}, DType::u8), some(c, {2}, DType::bf16), some(c, {2}));
                  },
                  "where: bf16 with fp32"},
                 {"shapes",
                  [](RankContext& c) { ops::where(some(c, {2}, DType::u8), some(c, {3}), some(c, {3})); },
                  "where: (2) and (3)"},
                 {"no_value", [](RankContext& c) { ops::where(Variable(), some(c, {2}), some(c, {2})); },
                  "where: input 0 has no value"}},
});

/// Multiples of 0.02 for a, which lie 0.01 away from those for b: no difference crosses a tie.
Argument draw_apart(const std::string& name, const Shape& shape, Role role) {
  const double shift = name.ends_with(".b") ? 0.01 : 0;
  return changed(normal(name, shape, role), [=](double v) { return std::round(50 * v) / 50 + shift; });
}

/// max(a, b), by each comparison in turn.
std::vector<Sample> comparison_samples() {
  const auto larger = [](const Variable& a, const Variable& b) {
    Variable y = ops::where(ops::less(a, b), b, a);
    y = ops::where(ops::greater(b, y), b, y);
    y = ops::where(ops::less_equal(a, b), b, y);
    y = ops::where(ops::greater_equal(a, b), a, y);
    y = ops::where(ops::equal(y, y), y, a);
    return ops::where(ops::not_equal(y, y), a, y);
  };
  std::vector<Sample> all = binary_samples(
      "compare", larger, [](auto a, auto b) { return a < b ? b : a; }, draw_apart);
  for (Sample& s : all) s.saved_bytes = s.name == "same_twice" ? -1 : 6 * s.output.numel();  // six conditions
  return all;
}

const RegisterOp comparison_record({
    .name = "comparisons",
    .tolerances = {{DType::f32, 0, 0, 2e-7, "a choice"}},
    .samples = comparison_samples,
    .benchmarks = [] { return std::vector<Sample>{comparison_samples()[5]}; },
    .refusals = {{"shapes",
                  [](RankContext& c) {
                    ops::less(some(c, {2, 3}), some(c, {3, 2}));
                  },
                  "less: (2, 3) and (3, 2)"},
                 {"two_dtypes",
                  [](RankContext& c) { ops::equal(some(c, {2}, DType::i32), some(c, {2}, DType::i64)); },
                  "equal: int32 with int64"},
                 {"dtype",
                  [](RankContext& c) { ops::greater(some(c, {2}, DType::f16), some(c, {2}, DType::f16)); },
                  "greater: compares fp32, bf16, int32, int64 or uint8, not fp16"},
                 {"no_value", [](RankContext& c) { ops::not_equal(some(c, {2}), Variable()); },
                  "not_equal: input 1 has no value"}},
});

Sample cast_sample(const std::string& name, Argument x, DType dtype) {
  Sample s;
  s.name = name;
  s.output = x.shape;
  s.arguments = {std::move(x)};
  s.saved_bytes = 0;
  s.apply = [dtype](const Variables& in, const StepState*) {
    return ops::cast(ops::cast(in[0], dtype), DType::f32);
  };
  set_reference(s, [](const auto& in) { return in[0]; });
  return s;
}

std::vector<Sample> cast_samples() {
  const auto x = [](const char* name, const Shape& shape) {
    return normal(std::string("cast.") + name, shape);
  };
  return {
      cast_sample("odd", x("odd", Shape{3, 5, 7}), DType::bf16),
      cast_sample("odd_fp16", x("odd_fp16", Shape{3, 5, 7}), DType::f16),
      cast_sample("one", x("one", Shape{1}), DType::bf16),
      cast_sample("scalar", x("scalar", Shape{}), DType::f16),
      cast_sample("empty", x("empty", Shape{2, 0}), DType::bf16),
      cast_sample("size_one", x("size_one", Shape{1, 33, 1}), DType::bf16),
      cast_sample("of_a_weight", normal("cast.weight", Shape{4, 5}, Role::weight), DType::bf16),
      cast_sample("transposed", laid_out(x("transposed", Shape{2, 5, 6}), Layout::transposed), DType::f16),
      cast_sample("sliced", laid_out(x("sliced", Shape{2, 5, 6}), Layout::sliced), DType::bf16),
      cast_sample("large", x("large", Shape{3, 40001}), DType::bf16),
      cast_sample("extreme", floats(Shape{6}, {0.0f, -0.0f, 65504.0f, -65504.0f, 6.1e-5f, 1.0f}), DType::f16),
  };
}

const RegisterOp cast_record({
    .name = "cast",
    .tolerances = {{DType::f32, 0x1p-8, 0, 0x1p-8,
                    "rounds to 8 (bf16) or 11 (fp16) binary digits, values and gradients alike"}},
    .samples = cast_samples,
    .benchmarks = [] { return std::vector<Sample>{cast_samples()[9]}; },
    .refusals =
        {{"fraction",
          [](RankContext& c) {
            ops::cast(Variable(make_tensor(c, floats(Shape{3}, {1, 2, 2.5f}))), DType::i32);
          },
          "cast: 2.5 at place 2 has no value as int32"},
         {"not_a_number", [](RankContext& c) { ops::cast(ops::div(some(c, {2}), some(c, {2})), DType::i64); },
          "nan at place 0 has no value as int64"},
         {"out_of_range",
          [](RankContext& c) {
            ops::cast(Variable(make_tensor(c, floats(Shape{1}, {2147483648.0f}))), DType::i32);
          },
          "cast: 2147483648 at place 0 has no value as int32"},
         {"negative_byte",
          [](RankContext& c) { ops::cast(Variable(make_tensor(c, int32s(Shape{1}, {-1}))), DType::u8); },
          "cast: -1 at place 0 has no value as uint8"},
         {"too_long",
          [](RankContext& c) {
            ops::cast(Variable(make_tensor(c, int64s(Shape{2}, {7, 4294967296.0}))), DType::i32);
          },
          "cast: 4294967296 at place 1 has no value as int32"},
         {"fp64", [](RankContext& c) { ops::cast(some(c, {2}), DType::f64); }, "cast: from fp32 to fp64"},
         {"no_value", [](RankContext&) { ops::cast(Variable(), DType::bf16); },
          "cast: input 0 has no value"}},
    .fp32_alone = true,  // its samples name the types
});

}  // namespace
}  // namespace penstock::testing
