// Op records: add_layer_norm and add_rms_norm. Each sample reads the sum, the norm, or both, so that every
// gradient is met alone and with the other.
#include "autograd/ops/add_norm.h"

#include <cmath>

#include "autograd/ops/arithmetic.h"
#include "autograd/ops/gelu.h"
#include "kernels/reference/reference.h"
#include "ops/table/record.h"

namespace penstock::testing {
namespace {

enum class Read { sum, norm, both };  // both: sum + gelu(norm)
enum class Kind { layer, layer_without_bias, rms };

template <class Real>
std::vector<Real> add_norm_reference(Read read, Kind kind, Index rows, Index cols, Real eps,
                                     const std::vector<std::vector<Real>>& in) {
  std::vector<Real> sum = in[0], normal;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += in[1][i];
  if (read == Read::sum) return sum;
  if (kind == Kind::rms) {
    normal.resize(sum.size());
    for (Index r = 0; r < rows; ++r) {
      Real squares = 0;
      for (Index j = 0; j < cols; ++j)
        squares += sum[reference::at(r * cols + j)] * sum[reference::at(r * cols + j)] / Real(cols);
      for (Index j = 0; j < cols; ++j)
        normal[reference::at(r * cols + j)] =
            sum[reference::at(r * cols + j)] / std::sqrt(squares + eps) * in[2][reference::at(j)];
    }
  } else {
    const std::vector<Real> bias = kind == Kind::layer ? in[3] : std::vector<Real>(in[2].size(), Real(0));
    normal = reference::layer_norm<Real>(rows, cols, eps, sum, in[2], bias).y;
  }
  if (read == Read::norm) return normal;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += reference::gelu(normal[i]);
  return sum;
}

Sample add_norm_sample(const std::string& name, Kind kind, Read read, const Shape& shape, float eps = 1e-5f) {
  const Index cols = shape.dim(-1), rows = shape.without_last().numel();
  const bool layer = kind != Kind::rms;
  Sample s;
  s.name = name;
  s.output = shape;
  s.arguments = {normal(name + ".x", shape, Role::activation, 0.5, 2), normal(name + ".branch", shape),
                 normal(name + ".gain", Shape{cols}, Role::weight, 1, 0.5)};
  if (kind == Kind::layer) s.arguments.push_back(normal(name + ".bias", Shape{cols}, Role::weight));
  // Statistics of the rows; beside the output the sum, and for gelu the norm.
  const Index others = read == Read::both ? 2 : read == Read::norm ? 1 : 0;
  s.saved_bytes = ((layer ? 2 : 1) * rows + others * shape.numel()) * static_cast<Index>(sizeof(float));
  s.apply = [=](const Variables& in, const StepState*) {
    const ops::SumAndNorm r =
        layer ? ops::add_layer_norm(in[0], in[1], in[2], in.size() > 3 ? in[3] : Variable(), eps)
              : ops::add_rms_norm(in[0], in[1], in[2], eps);
    if (read == Read::both) return ops::add(r.sum, ops::gelu(r.normal));
    return read == Read::sum ? r.sum : r.normal;
  };
  set_reference(s, [=]<class Real>(const std::vector<std::vector<Real>>& in) {
    return add_norm_reference<Real>(read, kind, rows, cols, static_cast<Real>(eps), in);
  });
  return s;
}

std::vector<Sample> samples_of(Kind kind) {
  std::vector<Sample> all{
      add_norm_sample("sum", kind, Read::sum, Shape{2, 3, 17}),
      add_norm_sample("norm", kind, Read::norm, Shape{2, 3, 17}),
      add_norm_sample("both", kind, Read::both, Shape{2, 3, 17}),
      add_norm_sample("one_row", kind, Read::both, Shape{1, 33}),
      add_norm_sample("vector", kind, Read::both, Shape{5}),
      add_norm_sample("one_column", kind, Read::both, Shape{4, 1}, 0.1f),
      add_norm_sample("no_rows", kind, Read::both, Shape{0, 6}),
      add_norm_sample("no_columns", kind, Read::both, Shape{3, 0}),
      add_norm_sample("other_eps", kind, Read::both, Shape{3, 9}, 0.5f),
      add_norm_sample("large", kind, Read::both, Shape{600, 130}),
  };
  for (const Layout layout : {Layout::transposed, Layout::sliced}) {
    Sample s =
        add_norm_sample(layout == Layout::sliced ? "sliced" : "transposed", kind, Read::both, Shape{2, 5, 6});
    s.arguments[0].layout = s.arguments[1].layout = layout;
    all.push_back(s);
  }
  Sample weight = add_norm_sample("of_a_weight", kind, Read::both, Shape{2, 4});
  weight.arguments[1].role = Role::weight;
  all.push_back(weight);
  Sample twice = add_norm_sample("x_twice", kind, Read::both, Shape{2, 7});
  twice.arguments.erase(twice.arguments.begin() + 1);
  const auto apply = twice.apply;
  const auto in_double = twice.reference;
  const auto in_fp32 = twice.reference_fp32;
  const auto doubled = [](auto in) {
    in.insert(in.begin(), in[0]);
    return in;
  };
  twice.apply = [=](const Variables& in, const StepState* state) { return apply(doubled(in), state); };
  twice.reference = [=](const std::vector<std::vector<double>>& in) { return in_double(doubled(in)); };
  twice.reference_fp32 = [=](const std::vector<std::vector<float>>& in) { return in_fp32(doubled(in)); };
  all.push_back(twice);
  return all;
}

std::vector<Sample> layer_samples() {
  std::vector<Sample> all = samples_of(Kind::layer);
  all.push_back(add_norm_sample("without_bias", Kind::layer_without_bias, Read::both, Shape{2, 3, 17}));
  all.push_back(add_norm_sample("norm_without_bias", Kind::layer_without_bias, Read::norm, Shape{4, 9}));
  return all;
}

constexpr std::string_view reason =
    "one addition, then sums over at most 130 columns of numbers of size 2, a root, and products with the "
    "gain; the gradients add two such sums, over the columns or over at most 600 rows";

const RegisterOp layer_record({
    .name = "add_layer_norm",
    .tolerances = {{DType::f32, 2e-6, 2e-6, 6e-6, reason},
                   in_bf16(3, 4, 8, "the sum is rounded before it is normalised; sums over rows may cancel")},
    .samples = layer_samples,
    .benchmarks =
        [] {
          return std::vector<Sample>{
              add_norm_sample("8x1024x768", Kind::layer, Read::norm, Shape{8, 1024, 768})};
        },
    .refusals = {{"branch",
                  [](RankContext& c) {
                    ops::add_layer_norm(some(c, {2, 3}), some(c, {3}), some(c, {3}), some(c, {3}));
                  },
                  "add_layer_norm: (2, 3) and (3)"},
                 {"gain",
                  [](RankContext& c) {
                    ops::add_layer_norm(some(c, {2, 3}), some(c, {2, 3}), some(c, {2}), some(c, {3}));
                  },
                  "add_layer_norm: gain (2) for x (2, 3)"},
                 {"bias",
                  [](RankContext& c) {
                    ops::add_layer_norm(some(c, {2, 3}), some(c, {2, 3}), some(c, {3}), some(c, {1, 3}));
                  },
                  "add_layer_norm: bias (1, 3) for x (2, 3)"},
                 {"scalar",
                  [](RankContext& c) {
                    ops::add_layer_norm(some(c, {}), some(c, {}), some(c, {1}), some(c, {1}));
                  },
                  "add_layer_norm: x without dimensions"},
                 {"dtype",
                  [](RankContext& c) {
                    ops::add_layer_norm(some(c, {2, 3}), some(c, {2, 3}, DType::bf16), some(c, {3}), {});
                  },
                  "bf16"},
                 {"no_value",
                  [](RankContext& c) {
                    ops::add_layer_norm(some(c, {2, 3}), {}, some(c, {3}), {});
                  },
                  "add_layer_norm: input 1 has no value"}},
});

const RegisterOp rms_record({
    .name = "add_rms_norm",
    .tolerances = {{DType::f32, 2e-6, 2e-6, 6e-6, reason},
                   in_bf16(3, 4, 8, "the sum is rounded before it is normalised; sums over rows may cancel")},
    .samples = [] { return samples_of(Kind::rms); },
    .benchmarks =
        [] {
          return std::vector<Sample>{
              add_norm_sample("8x1024x768", Kind::rms, Read::norm, Shape{8, 1024, 768})};
        },
    .refusals = {{"branch",
                  [](RankContext& c) {
                    ops::add_rms_norm(some(c, {2, 3}), some(c, {2, 1}), some(c, {3}));
                  },
                  "add_rms_norm: (2, 3) and (2, 1)"},
                 {"gain",
                  [](RankContext& c) {
                    ops::add_rms_norm(some(c, {2, 3}), some(c, {2, 3}), some(c, {2}));
                  },
                  "add_rms_norm: gain (2) for x (2, 3)"},
                 {"no_value",
                  [](RankContext& c) {
                    ops::add_rms_norm(some(c, {2, 3}), some(c, {2, 3}), Variable());
                  },
                  "add_rms_norm: input 2 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
