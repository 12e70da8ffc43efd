// Op record: cross_entropy_sum.
#include "autograd/ops/cross_entropy.h"

#include "kernels/cross_entropy.h"
#include "kernels/reference/reference.h"
#include "ops/table/record.h"

namespace penstock::testing {
namespace {

Sample cross_entropy_sample(const std::string& name, Argument logits, Argument targets,
                            float smoothing = 0.0f) {
  const Index vocabulary = logits.shape.dim(-1), rows = targets.shape.numel();
  Sample s;
  s.name = name;
  s.arguments = {std::move(logits), std::move(targets)};
  s.output = Shape{1};
  // The log-sum-exp of each row, and the count beside the sum.
  s.saved_bytes = rows * static_cast<Index>(sizeof(float)) + static_cast<Index>(sizeof(double));
  s.apply = [=](const Variables& in, const StepState*) {
    return ops::cross_entropy_sum(in[0], in[1], smoothing);
  };
  set_reference(s, [=]<class Real>(const std::vector<std::vector<Real>>& in) {
    Real sum = 0;
    for (Index r = 0; r < rows; ++r) {
      const auto target = static_cast<Index>(in[1][static_cast<std::size_t>(r)]);
      if (target == kernels::ignored_target) continue;
      const Real* row = in[0].data() + r * vocabulary;
      // -sum over classes of q log p, q = (1 - smoothing) onehot + smoothing / vocabulary
      const Real lse = reference::log_sum_exp(row, vocabulary);
      Real everyone = 0;
      for (Index j = 0; j < vocabulary; ++j) everyone += (lse - row[j]) / static_cast<Real>(vocabulary);
      if (smoothing > 0) sum += static_cast<Real>(smoothing) * everyone;
      sum += (1 - static_cast<Real>(smoothing)) * (lse - row[target]);
    }
    return std::vector<Real>{sum};
  });
  return s;
}

std::vector<Sample> samples() {
  const auto logits = [](const char* name, const Shape& shape, double deviation = 2) {
    return normal(std::string("cross_entropy.") + name, shape, Role::activation, 0, deviation);
  };
  std::vector<Sample> all{
      cross_entropy_sample("odd", logits("odd", Shape{2, 3, 11}), ids("cross_entropy.odd", Shape{2, 3}, 11)),
      cross_entropy_sample("some_ignored", logits("some_ignored", Shape{5, 7}),
                           int32s(Shape{5}, {-1, 0, 6, -1, 3})),
      // Known fault 18: a sequence without a valid target, alone and among others.
      cross_entropy_sample("all_ignored", logits("all_ignored", Shape{2, 7}), int32s(Shape{2}, {-1, -1})),
      cross_entropy_sample("sequence_ignored", logits("sequence_ignored", Shape{2, 2, 7}),
                           int32s(Shape{2, 2}, {-1, -1, 4, 0})),
      cross_entropy_sample("one_row", logits("one_row", Shape{1, 33}), int32s(Shape{1}, {32})),
      cross_entropy_sample("vector", logits("vector", Shape{6}), int32s(Shape{}, {2})),
      cross_entropy_sample("one_class", logits("one_class", Shape{3, 1}), int32s(Shape{3}, {0, 0, -1})),
      cross_entropy_sample("no_rows", logits("no_rows", Shape{0, 9}), int32s(Shape{0}, {})),
      cross_entropy_sample("large", logits("large", Shape{300, 257}),
                           ids("cross_entropy.large", Shape{300}, 257)),
      cross_entropy_sample("transposed", laid_out(logits("transposed", Shape{4, 5}), Layout::transposed),
                           int32s(Shape{4}, {0, 1, -1, 4})),
      cross_entropy_sample("sliced", laid_out(logits("sliced", Shape{2, 3, 5}), Layout::sliced),
                           laid_out(int32s(Shape{2, 3}, {0, 1, -1, 4, 2, 2}), Layout::transposed)),
  };
  all.push_back(cross_entropy_sample("smoothed", logits("smoothed", Shape{5, 7}),
                                     int32s(Shape{5}, {-1, 0, 6, -1, 3}), 0.1f));
  all.push_back(cross_entropy_sample("only_smoothing", logits("only_smoothing", Shape{3, 4}),
                                     int32s(Shape{3}, {1, 2, 0}), 1.0f));
  all.push_back(cross_entropy_sample("large_smoothed", logits("large_smoothed", Shape{300, 257}),
                                     ids("cross_entropy.large_smoothed", Shape{300}, 257), 0.25f));
  Sample sure = cross_entropy_sample(
      "extreme", floats(Shape{4, 3}, {1e4f, 0, -1e4f, -1e4f, 0, 1e4f, 88, 89, 90, -1e30f, 0, -1e30f}),
      int32s(Shape{4}, {0, 0, 2, 1}));
  sure.magnitude = 1e3;  // a sum of 20,000
  sure.step = 1e-4;
  all.push_back(sure);
  return all;
}

const RegisterOp record({
    .name = "cross_entropy_sum",
    .tolerances =
        {{DType::f32, 1e-6, 2e-6, 2e-6,
          "the log-sum-exp of a row is one fp32 number of size 10; rows add up in fp64. A gradient is an "
          "exponential of a difference of such numbers"}},
    .samples = samples,
    .benchmarks =
        [] {
          return std::vector<Sample>{
              cross_entropy_sample("256x50257", normal("cross_entropy.gpt2", Shape{256, 50257}),
                                   ids("cross_entropy.gpt2.targets", Shape{256}, 50257))};
        },
    .refusals =
        {{"shape",
          [](RankContext& c) {
            ops::cross_entropy_sum(some(c, {2, 3, 5}), some(c, {3, 2}, DType::i32));
          },
          "cross_entropy: targets (3, 2) for logits (2, 3, 5)"},
         {"scalar", [](RankContext& c) { ops::cross_entropy_sum(some(c, {}), some(c, {}, DType::i32)); },
          "cross_entropy: targets () for logits ()"},
         {"target_dtype",
          [](RankContext& c) {
            ops::cross_entropy_sum(some(c, {2, 5}), some(c, {2}, DType::u8));
          },
          "cross_entropy: targets are int32 or int64, not uint8"},
         {"target_too_large",
          [](RankContext& c) {
            ops::cross_entropy_sum(some(c, {2, 5}), Variable(make_tensor(c, int32s(Shape{2}, {0, 5}))));
          },
          "target 5 in row 1 is outside 0..4"},
         {"smoothing",
          [](RankContext& c) {
            ops::cross_entropy_sum(some(c, {2, 5}), some(c, {2}, DType::i32), 1.5f);
          },
          "cross_entropy: label smoothing 1.5 is outside 0..1"},
         {"target_of_torch",
          [](RankContext& c) {
            ops::cross_entropy_sum(some(c, {1, 5}), Variable(make_tensor(c, int32s(Shape{1}, {-100}))));
          },
          "target -100 in row 0"},
         {"dtype",
          [](RankContext& c) {
            ops::cross_entropy_sum(some(c, {2, 5}, DType::f16), some(c, {2}, DType::i32));
          },
          "fp16"},
         {"no_value", [](RankContext& c) { ops::cross_entropy_sum(Variable(), some(c, {2}, DType::i32)); },
          "cross_entropy: input 0 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
