// Memory of a run: predicted to the byte for every rank, steady from step to step, and all given back.
#include "parallel/runtime/toy_model.h"

namespace penstock::testing {
namespace {

Training gpt_training(const Model& model, const std::string& schedule, Index pp, Index micro_batches) {
  return uneven_training(model, named_plan(schedule, pp, micro_batches));
}

std::vector<Index> predicted(const Training& t) {
  AdamW optimizer{kernels::AdamWSettings{}};
  const TrainingSetup setup{.model = t.model,
                            .plan = executable(t.plan),
                            .partition = t.partition,
                            .optimizer = &optimizer,
                            .micro_batch_size = t.micro_batch};
  const auto source = t.source();
  return predict_peak_bytes(setup, *source);
}

TEST(Memory, PeakIsPredictedToTheByte) {
  for (const bool tied : {true, false}) {
    const Model model = make_gpt2("small", small_gpt2(0.1f, tied));
    for (Index pp = 1; pp <= 4; ++pp) {
      for (const Index m : {Index{1}, Index{2}, pp + 1, 3 * pp}) {
        for (const char* schedule : {"gpipe", "1f1b"}) {
          const Training t = gpt_training(model, schedule, pp, m);
          EXPECT_EQ(predicted(t), train(t).peaks)
              << schedule << " pp " << pp << " m " << m << " tied " << tied;
        }
      }
    }
  }
}

TEST(Memory, PeakOfAUsersModelIsPredictedToTheByte) {
  const Model model = make_toy();
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (Index pp = 1; pp <= 5; ++pp) {
      const Training t = toy_training(model, named_plan(schedule, pp, 7));
      EXPECT_EQ(predicted(t), train(t).peaks) << schedule << " pp " << pp;
    }
  }
}

TEST(Memory, PeakOfForeignPlansIsPredictedToTheByte) {
  const Model model = make_gpt2("small", small_gpt2());
  Training t = gpt_training(model, "gpipe", 2, 3);
  for (const auto& rows : {std::vector<std::string>{"0F0 0F1 0F2 0I0 0I1 0W0 0I2 0W1 0W2",
                                                    "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"},
                           {"0F0 0F1 3F0 3B0 0F2 3F1 3B1 0B0 3F2 3B2 0B1 0B2",
                            "1F0 2F0 1F1 2F1 2B0 1B0 1F2 2F2 2B1 1B1 2B2 1B2"}}) {
    t.plan = plan_of(rows);
    t.partition = even_partition(model, t.plan.stages);
    EXPECT_EQ(predicted(t), train(t).peaks) << rows[0];
  }
}

/// Peak bytes above what a rank holds between steps.
Index transient(const Outcome& o, std::size_t rank) { return o.peaks[rank] - o.live_before[rank].total(); }

TEST(Memory, OneForwardOneBackwardHoldsFewerMicroBatchesThanGPipe) {
  const Model model = make_gpt2("small", small_gpt2());
  constexpr Index pp = 4, m = 12;
  const Outcome gpipe = train(gpt_training(model, "gpipe", pp, m)),
                one_f = train(gpt_training(model, "1f1b", pp, m));
  for (std::size_t rank = 0; rank < pp; ++rank) {
    // GPipe holds all of them, 1F1B pp - rank.
    const double share =
        static_cast<double>(transient(one_f, rank)) / static_cast<double>(transient(gpipe, rank));
    const double in_flight = static_cast<double>(pp - static_cast<Index>(rank)) / static_cast<double>(m);
    EXPECT_LT(share, in_flight + 0.25) << "rank " << rank;
    EXPECT_GT(share, in_flight - 0.05) << "rank " << rank;
  }
}

TEST(Memory, OneForwardOneBackwardDoesNotGrowWithMicroBatches) {
  const Model model = make_gpt2("small", small_gpt2());
  const Outcome few = train(gpt_training(model, "1f1b", 3, 6)),
                many = train(gpt_training(model, "1f1b", 3, 30));
  for (std::size_t rank = 0; rank < 3; ++rank)
    EXPECT_LE(many.peaks[rank], few.peaks[rank] + 64 * 8 * 24) << "rank " << rank;
}

TEST(Memory, NothingIsLeftAfterAStep) {
  const Model gpt = make_gpt2("small", small_gpt2(0.1f)), toy = make_toy();
  for (const Training& t : {gpt_training(gpt, "1f1b", 3, 5), gpt_training(gpt, "gpipe", 2, 3),
                            toy_training(toy, named_plan("1f1b", 4, 4))}) {
    const Outcome o = train(t);
    for (std::size_t rank = 0; rank < o.live_after.size(); ++rank) {
      EXPECT_EQ(o.live_after[rank].by_kind, o.live_before[rank].by_kind) << "rank " << rank;
      EXPECT_EQ(o.live_after[rank][MemoryKind::activation], 0);
      EXPECT_EQ(o.live_after[rank][MemoryKind::communication], 0);
      EXPECT_EQ(o.live_after[rank][MemoryKind::optimizer], 2 * o.live_after[rank][MemoryKind::parameter]);
    }
  }
}

TEST(Memory, ASteadyStepTakesNothingFromTheSystem) {
  const Model model = make_gpt2("small", small_gpt2(0.1f));
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (Index pp = 1; pp <= 4; ++pp) {
      Training t = gpt_training(model, schedule, pp, 2 * pp + 1);
      t.steps = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
      const Outcome o = train(t);
      for (const auto& of_rank : o.system_allocations)
        EXPECT_EQ(of_rank[1], of_rank.back()) << schedule << " pp " << pp;
    }
  }
}

}  // namespace
}  // namespace penstock::testing
