// What fused ops promise beside values: the bits of what they replace, and memory.
#include <gtest/gtest.h>

#include "autograd/ops/add_norm.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/gelu.h"
#include "ops/table/run.h"

namespace penstock::testing {
namespace {

struct NormResults {
  std::vector<float> sum, normal, dx, dbranch, dgain;
};

/// Runs sum and norm of some 300 x 67 numbers, with gradients into both outputs.
template <class Function>
NormResults run_norm(Function&& function, bool bias) {
  RankContext context({.threads = 2, .poison = true});
  const Shape shape{300, 67}, row{67};
  Tape tape(context, nullptr);
  const auto input = [&](const char* name, const Shape& s) {
    return tape.input(make_tensor(context, normal(name, s)), true);
  };
  const Variable x = input("x", shape), branch = input("branch", shape), gain = input("gain", row);
  const ops::SumAndNorm r = function(x, branch, gain, bias ? input("bias", row) : Variable());
  tape.backward(Variables{r.sum, r.normal}, Tensors{make_tensor(context, normal("dsum", shape)),
                                                    make_tensor(context, normal("dnormal", shape))});
  return {r.sum.tensor().to_vector<float>(), r.normal.tensor().to_vector<float>(),
          tape.take_grad(x).to_vector<float>(), tape.take_grad(branch).to_vector<float>(),
          tape.take_grad(gain).to_vector<float>()};
}

void expect_rounded_alike(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(static_cast<double>(a[i]), static_cast<double>(b[i]), 2e-6) << i;
}

void expect_like_composed(const NormResults& fused, const NormResults& composed) {
  EXPECT_EQ(fused.sum, composed.sum);
  EXPECT_EQ(fused.normal, composed.normal);
  EXPECT_EQ(fused.dgain, composed.dgain);
  EXPECT_EQ(fused.dx, fused.dbranch);
  expect_rounded_alike(fused.dx, composed.dx);  // one rounding less, where the two paths meet
}

TEST(AddNorm, LayerNormHasTheBitsOfTwoOps) {
  for (const bool bias : {true, false})
    expect_like_composed(run_norm([](auto&&... v) { return ops::add_layer_norm(v...); }, bias),
                         run_norm([](auto&&... v) { return ops::composed::add_layer_norm(v...); }, bias));
}

TEST(AddNorm, RmsNormHasTheBitsOfTwoOps) {
  expect_like_composed(
      run_norm([](const auto& x, const auto& b, const auto& g, auto&&) { return ops::add_rms_norm(x, b, g); },
               false),
      run_norm([](const auto& x, const auto& b, const auto& g,
                  auto&&) { return ops::composed::add_rms_norm(x, b, g); },
               false));
}

/// Backward of a loss over logits that an op made; `keep` holds on to them.
struct LossRun {
  Index peak = 0;  // bytes of activations in the backward, above those live before it
  std::vector<float> gradient;
  std::vector<float> kept;
};

LossRun run_loss(bool keep) {
  const Shape shape{64, 500};
  RankContext context({.threads = 1, .poison = true});
  Tape tape(context, nullptr);
  const Variable x = tape.input(make_tensor(context, normal("logits", shape)), true);
  Variable logits = ops::gelu(x);
  const Variable targets(make_tensor(context, ids("targets", Shape{64}, 500)));
  const Variable loss = ops::cross_entropy_sum(logits, targets);
  if (!keep) logits = {};
  const Tensor seed = Tensor::from(context, Shape{1}, std::vector<float>{0.5f});
  context.allocator().reset_peak();
  const Index before = context.allocator().live()[MemoryKind::activation];
  tape.backward(Variables{loss}, Tensors{seed});
  LossRun run;
  run.peak = context.allocator().peak()[MemoryKind::activation] - before;
  run.gradient = tape.take_grad(x).to_vector<float>();
  if (keep) run.kept = logits.tensor().to_vector<float>();
  return run;
}

// The gradient of the logits takes their memory when nobody else reads them: the backward of the loss needs
// none, and the op before it needs one gradient.
TEST(CrossEntropy, WritesItsGradientOverTheLogits) {
  const LossRun alone = run_loss(false), held = run_loss(true);
  const Index bytes = 64 * 500 * static_cast<Index>(sizeof(float));
  EXPECT_LE(alone.peak, bytes);
  EXPECT_GT(held.peak, 2 * bytes - 1000) << "a second copy where someone holds the logits";
  EXPECT_EQ(alone.gradient, held.gradient);
}

TEST(CrossEntropy, LeavesLogitsAloneThatSomeoneHolds) {
  const LossRun held = run_loss(true);
  RankContext context({.threads = 1});
  const Variable again = ops::gelu(Variable(make_tensor(context, normal("logits", Shape{64, 500}))));
  EXPECT_EQ(held.kept, again.tensor().to_vector<float>());
}

}  // namespace
}  // namespace penstock::testing
