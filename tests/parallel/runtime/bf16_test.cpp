// Training in bf16: activations and weights in use are bf16, master weights, gradients and sums fp32. The
// same promises hold as in fp32: bits that no layout changes, memory known in advance, and a stated distance
// from the run in fp32.
#include <cmath>

#include "parallel/runtime/support.h"

namespace penstock::testing {
namespace {

Training bf16_training(const Model& model, const Plan& plan) {
  Training t = uneven_training(model, plan);
  t.compute = DType::bf16;
  return t;
}

TEST(Bf16, EverySplitGivesTheBitsOfOneRank) {
  for (const bool tied : {true, false}) {
    const Model model = make_gpt2("small", small_gpt2(0.1f, tied));
    const Outcome one = train(bf16_training(model, named_plan("gpipe", 1, 3)));
    for (const Index pp : {1, 2, 3, 4})
      for (const char* schedule : {"gpipe", "1f1b"}) {
        Training t = bf16_training(model, named_plan(schedule, pp, 3));
        t.threads = pp <= 2 ? 2 : 1;
        EXPECT_TRUE(same_bits(one, train(t))) << schedule << " pp " << pp << " tied " << tied;
      }
  }
}

TEST(Bf16, DelayedWeightHalvesGiveTheSameBits) {
  const Model model = make_gpt2("small", small_gpt2(0.1f));
  const Outcome one = train(bf16_training(model, named_plan("gpipe", 1, 3)));
  const Plan plan = plan_of({"0F0 0F1 0F2 0I0 0I1 0W0 0I2 0W1 0W2", "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"});
  EXPECT_TRUE(same_bits(one, train(bf16_training(model, plan))));
}

TEST(Bf16, PeakIsPredictedToTheByte) {
  const Model model = make_gpt2("small", small_gpt2(0.1f));
  for (const Index pp : {1, 2, 3}) {
    const Training t = bf16_training(model, named_plan("1f1b", pp, 4));
    AdamW optimizer{kernels::AdamWSettings{}};
    const TrainingSetup setup{.model = t.model,
                              .plan = executable(t.plan),
                              .partition = t.partition,
                              .optimizer = &optimizer,
                              .micro_batch_size = t.micro_batch,
                              .compute = DType::bf16};
    const auto source = t.source();
    EXPECT_EQ(predict_peak_bytes(setup, *source), train(t).peaks) << "pp " << pp;
  }
}

TEST(Bf16, HalvesActivationsAndAddsHalfToTheWeights) {
  const Model model = make_gpt2("small", small_gpt2());
  Training t = bf16_training(model, named_plan("gpipe", 2, 8));
  const Outcome narrow = train(t);
  t.compute = DType::f32;
  const Outcome wide = train(t);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(2 * narrow.live_before[rank][MemoryKind::parameter],
              3 * wide.live_before[rank][MemoryKind::parameter]);
    const auto transient = [&](const Outcome& o) {
      return static_cast<double>(o.peaks[rank] - o.live_before[rank].total());
    };
    // Statistics and log-sum-exps stay fp32, ids int32, and products have a workspace.
    EXPECT_LT(transient(narrow), 0.65 * transient(wide)) << "rank " << rank;
  }
}

/// Gradients of four layers, each number rounded to 8 bits on its way: about the root of the number of
/// roundings times 2^-9 of the largest.
TEST(Bf16, GradientsLieNearThoseOfFp32) {
  const Model model = make_gpt2("small", small_gpt2());
  Training t = bf16_training(model, named_plan("gpipe", 1, 3));
  const Outcome narrow = train(t);
  t.compute = DType::f32;
  const Outcome wide = train(t);
  const double distance = relative_difference(wide.first_gradients, narrow.first_gradients);
  EXPECT_LT(distance, 0.05);
  EXPECT_GT(distance, 1e-4) << "bf16 was not used";
  for (std::size_t i = 0; i < wide.steps.size(); ++i)
    EXPECT_NEAR(narrow.steps[i].loss, wide.steps[i].loss, 0.01) << "step " << i;
}

}  // namespace
}  // namespace penstock::testing
