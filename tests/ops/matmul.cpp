// Op record: matmul.
#include "autograd/ops/matmul.h"

#include "ops/general.h"

namespace penstock::testing {
namespace {

/// A plain product over coordinates of the result.
Sample matmul_sample(const std::string& name, const Shape& a, const Shape& b, const Shape& out,
                     const ops::MatmulOptions& options = {}, Role role_b = Role::weight) {
  const Index k = a.dim(options.transpose_a ? -2 : -1);
  Sample s;
  s.name = name;
  s.output = out;
  s.arguments = {normal("matmul." + name + ".a", a), normal("matmul." + name + ".b", b, role_b)};
  s.saved_bytes = 0;
  s.magnitude = 1 + std::sqrt(static_cast<double>(k));
  s.apply = [=](const Variables& in, const StepState*) { return ops::matmul(in[0], in[1], options); };
  set_reference(s, [=]<class Real>(const std::vector<std::vector<Real>>& in) {
    std::vector<Real> y;
    for (Index i = 0; i < out.numel(); ++i) {
      const auto at = coordinates(out, i);
      const std::size_t last = at.size() - 1;
      Real sum = 0;
      for (Index p = 0; p < k; ++p) {
        auto from_a = at, from_b = at;
        (options.transpose_a ? from_a[last] : from_a[last - 1]) = at[last - 1];
        (options.transpose_a ? from_a[last - 1] : from_a[last]) = p;
        (options.transpose_b ? from_b[last - 1] : from_b[last]) = at[last];
        (options.transpose_b ? from_b[last] : from_b[last - 1]) = p;
        sum += in[0][element_at(a, from_a)] * in[1][element_at(b, from_b)];
      }
      y.push_back(sum);
    }
    return y;
  });
  return s;
}

std::vector<Sample> samples() {
  std::vector<Sample> all{
      matmul_sample("odd", Shape{5, 7}, Shape{7, 3}, Shape{5, 3}),
      matmul_sample("one", Shape{1, 1}, Shape{1, 1}, Shape{1, 1}),
      matmul_sample("row_times_column", Shape{1, 33}, Shape{33, 1}, Shape{1, 1}),
      matmul_sample("batch", Shape{2, 3, 5, 7}, Shape{2, 3, 7, 4}, Shape{2, 3, 5, 4}),
      matmul_sample("batch_times_matrix", Shape{2, 3, 5, 7}, Shape{7, 4}, Shape{2, 3, 5, 4}),
      matmul_sample("matrix_times_batch", Shape{5, 7}, Shape{3, 7, 4}, Shape{3, 5, 4}),
      matmul_sample("broadcast_both", Shape{2, 1, 5, 7}, Shape{3, 7, 2}, Shape{2, 3, 5, 2}),
      matmul_sample("batch_of_one", Shape{1, 5, 7}, Shape{1, 7, 4}, Shape{1, 5, 4}),
      matmul_sample("batch_times_batch_of_one", Shape{3, 5, 7}, Shape{1, 7, 4}, Shape{3, 5, 4}),
      matmul_sample("no_rows", Shape{0, 7}, Shape{7, 3}, Shape{0, 3}),
      matmul_sample("no_inner", Shape{2, 5, 0}, Shape{2, 0, 3}, Shape{2, 5, 3}),
      matmul_sample("no_batch", Shape{0, 5, 7}, Shape{0, 7, 3}, Shape{0, 5, 3}),
      matmul_sample("transposed_b", Shape{2, 5, 7}, Shape{2, 4, 7}, Shape{2, 5, 4}, {.transpose_b = true}),
      matmul_sample("transposed_a", Shape{2, 7, 5}, Shape{2, 7, 4}, Shape{2, 5, 4}, {.transpose_a = true}),
      matmul_sample("transposed_both", Shape{7, 5}, Shape{3, 4, 7}, Shape{3, 5, 4},
                    {.transpose_a = true, .transpose_b = true}),
      matmul_sample("transposed_a_of_a_batch", Shape{3, 7, 5}, Shape{7, 4}, Shape{3, 5, 4},
                    {.transpose_a = true}),
      matmul_sample("transposed_b_for_all", Shape{3, 5, 7}, Shape{4, 7}, Shape{3, 5, 4},
                    {.transpose_b = true}),
      matmul_sample("both_activations", Shape{2, 5, 7}, Shape{2, 7, 4}, Shape{2, 5, 4}, {}, Role::activation),
      matmul_sample("large", Shape{2, 33, 65}, Shape{2, 65, 70}, Shape{2, 33, 70}),
  };
  Sample views = matmul_sample("views", Shape{4, 6, 5}, Shape{5, 3}, Shape{4, 6, 3});
  views.arguments[0].layout = Layout::transposed;
  views.arguments[1].layout = Layout::sliced;
  all.push_back(views);
  Sample twice = matmul_sample("same_twice", Shape{5, 5}, Shape{5, 5}, Shape{5, 5});
  twice.arguments.pop_back();
  twice.apply = [](const Variables& in, const StepState*) { return ops::matmul(in[0], in[0]); };
  const auto product = matmul_sample("same_twice", Shape{5, 5}, Shape{5, 5}, Shape{5, 5});
  twice.reference = [product](const auto& in) { return product.reference({in[0], in[0]}); };
  twice.reference_fp32 = [product](const auto& in) { return product.reference_fp32({in[0], in[0]}); };
  all.push_back(twice);
  return all;
}

const RegisterOp record({
    .name = "matmul",
    .tolerances = {{DType::f32, 1e-6, 1e-6, 2e-6,
                    "sums of up to 65 products of unit normals in fp32, in any order"}},
    .samples = samples,
    .benchmarks =
        [] {
          return std::vector<Sample>{matmul_sample("scores_8x12x1024x64", Shape{8, 12, 1024, 64},
                                                   Shape{8, 12, 1024, 64}, Shape{8, 12, 1024, 1024},
                                                   {.transpose_b = true}, Role::activation)};
        },
    .refusals = {{"inner",
                  [](RankContext& c) {
                    ops::matmul(some(c, {2, 3}), some(c, {2, 3}));
                  },
                  "matmul: (2, 3) times (2, 3)"},
                 {"inner_transposed",
                  [](RankContext& c) {
                    ops::matmul(some(c, {2, 3}), some(c, {3, 4}), {.transpose_b = true});
                  },
                  "matmul: (2, 3) times (3, 4) transposed"},
                 {"vector",
                  [](RankContext& c) {
                    ops::matmul(some(c, {3}), some(c, {3, 4}));
                  },
                  "matmul: (3) and (3, 4) are not both matrices"},
                 {"batches",
                  [](RankContext& c) {
                    ops::matmul(some(c, {2, 5, 3}), some(c, {4, 3, 5}));
                  },
                  "matmul: (2) and (4)"},
                 {"dtype",
                  [](RankContext& c) {
                    ops::matmul(some(c, {2, 3}), some(c, {3, 2}, DType::bf16));
                  },
                  "matmul: fp32 with bf16"},
                 {"no_value",
                  [](RankContext& c) {
                    ops::matmul(some(c, {2, 3}), Variable());
                  },
                  "matmul: input 1 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
