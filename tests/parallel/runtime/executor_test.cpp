// The executor itself: receives posted ahead, sends that do not pile up, words of errors, refusal of plans
// that do not fit, and use after a failure.
#include "parallel/pipeline/runtime/executor.h"

#include <chrono>
#include <numeric>
#include <thread>

#include "parallel/pipeline/schedule/lower.h"
#include "parallel/runtime/toy_model.h"
#include "support/temp_folder.h"

namespace penstock::testing {
namespace {

/// Passes messages on and writes down what was asked for; may change a header or swallow a message.
class Watcher final : public Communicator {
 public:
  explicit Watcher(Communicator& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int job_rank(int rank) const override { return inner_.job_rank(rank); }
  Work send(const Tensor& tensor, int peer, int tag, const MessageHeader& header, Stream& stream) override {
    events.push_back(fmt::format("send {} {}", header.direction == 0 ? "F" : "B", header.micro_batch));
    if (swallow) return {};
    MessageHeader sent = header;
    sent.micro_batch += lie;
    return inner_.send(tensor, peer, tag, sent, stream);
  }
  Work recv(const Tensor& tensor, int peer, int tag, const MessageHeader& header, Stream& stream) override {
    events.push_back(fmt::format("recv {} {}", header.direction == 0 ? "F" : "B", header.micro_batch));
    return inner_.recv(tensor, peer, tag, header, stream);
  }
  std::unique_ptr<Communicator> split(int color, int key) override { return inner_.split(color, key); }
  void abort(const std::string& reason) noexcept override { inner_.abort(reason); }
  void progress() override { inner_.progress(); }

  std::vector<std::string> events;
  bool swallow = false;
  std::int32_t lie = 0;

 protected:
  void send_bytes(std::span<const std::byte>, int, const std::string&) override {
    throw ValueError("no collectives here");
  }
  std::vector<std::byte> recv_bytes(int, const std::string&) override {
    throw ValueError("no collectives here");
  }

 private:
  Communicator& inner_;
};

/// One rank with its part of a toy.
struct Rank {
  Rank(Communicator& pipeline, const Model& model, Index stages, double deadline = 60)
      : context({.deadline_seconds = deadline}),
        partition(even_partition(model, stages)),
        weights(context, model, blocks(partition, pipeline.rank(), stages, pipeline.size()),
                {.gradients = true}),
        executor({&context, &pipeline, &model, partition, &weights, 7}) {
    weights.initialize(7);
  }

  static std::vector<int> blocks(const Partition& partition, int rank, Index stages, int ranks) {
    std::vector<int> all;
    for (Index s = rank; s < stages; s += ranks)
      for (int b = partition[static_cast<std::size_t>(s)].begin;
           b < partition[static_cast<std::size_t>(s)].end; ++b)
        all.push_back(b);
    return all;
  }

  PassResult run(const Plan& plan, BatchSource& source, Index micro_batch_size = 1) {
    weights.begin_step();
    return executor.run(
        plan, source,
        {.mode = Mode::train, .micro_batch_size = micro_batch_size, .state = {.step = 1, .loss_seed = 0.1f}});
  }

  RankContext context;
  Partition partition;
  WeightStore weights;
  Executor executor;
};

std::size_t place(const std::vector<std::string>& events, const std::string& event) {
  return static_cast<std::size_t>(std::find(events.begin(), events.end(), event) - events.begin());
}

TEST(Executor, ReceivesArePostedBeforeTheyAreNeeded) {
  std::vector<std::vector<std::string>> events(2);
  const Plan plan = lower(named_plan("1f1b", 2, 4));
  Model model = make_toy([&](int block, const BlockContext& context) {
    if (context.mode == Mode::train && context.rank->device().kind == DeviceKind::cpu &&
        (block == 0 || block == 3))
      events[block == 0 ? 0 : 1].push_back("run");
  });
  run_ranks(2, [&](Communicator& inner) {
    Watcher pipeline(inner);
    ToySource source(4);
    Rank rank(pipeline, model, 2);
    auto& mine = events[static_cast<std::size_t>(inner.rank())];
    rank.executor.run(plan, source, {.mode = Mode::train, .state = {.step = 1}});
    mine.insert(mine.end(), pipeline.events.begin(), pipeline.events.end());
    std::erase(pipeline.events, "run");
    // Rank 0: F0 F1 B0 F2 ...: the first gradients are asked for before the first activation is sent.
    if (inner.rank() == 0) {
      EXPECT_LT(place(pipeline.events, "recv B 0"), place(pipeline.events, "send F 1"));
    } else {
      // Rank 1: F0 B0 F1 B1: the next activations are on their way while the first one is worked on.
      EXPECT_LT(place(pipeline.events, "recv F 1"), place(pipeline.events, "send B 0"));
      EXPECT_LT(place(pipeline.events, "recv F 2"), place(pipeline.events, "send B 1"));
    }
    // Every message of the plan, once: the toy's boundary behind the third block has four values, of which
    // three have gradients.
    EXPECT_EQ(std::count(pipeline.events.begin(), pipeline.events.end(),
                         inner.rank() == 0 ? "send F 2" : "recv F 2"),
              4);
    EXPECT_EQ(std::count(pipeline.events.begin(), pipeline.events.end(),
                         inner.rank() == 0 ? "recv B 3" : "send B 3"),
              3);
  });
  for (const auto& mine : events) EXPECT_EQ(std::count(mine.begin(), mine.end(), "run"), 4);
}

TEST(Executor, AMessageWithAnotherHeaderIsNamedWithItsWaiter) {
  const Model model = make_toy();
  const Plan plan = lower(named_plan("1f1b", 2, 2));
  const std::string words = message_of<CommError>([&] {
    run_ranks(2, [&](Communicator& inner) {
      Watcher pipeline(inner);
      pipeline.lie = inner.rank() == 0 ? 5 : 0;
      ToySource source(2);
      Rank rank(pipeline, model, 2);
      rank.run(plan, source);
    });
  });
  for (const char* part :
       {"rank 1, stage 1, micro-batch 0: 1RECV_F0", "micro-batch 5", "micro-batch 0, forward"})
    EXPECT_NE(words.find(part), std::string::npos) << part << " in " << words;
}

TEST(Executor, AMessageThatDoesNotComeIsNamedWithItsWaiter) {
  const Model model = make_toy();
  const Plan plan = lower(named_plan("1f1b", 3, 2));
  std::atomic<bool> over = false;
  std::string words;
  EXPECT_THROW(run_ranks(3,
                         [&](Communicator& inner) {
                           Watcher pipeline(inner);
                           pipeline.swallow = inner.rank() == 2;  // no gradients come back to stage 1
                           ToySource source(2);
                           Rank rank(pipeline, model, 3, inner.rank() == 1 ? 0.3 : 60.0);
                           if (inner.rank() == 1) {
                             words = message_of<CommError>([&] { rank.run(plan, source); });
                             over = true;
                             throw CommError("enough");
                           }
                           if (inner.rank() == 2) {
                             rank.run(plan, source);
                             while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                           } else {
                             rank.run(plan, source);
                           }
                         }),
               CommError);
  for (const char* part : {"rank 1, stage 1, micro-batch 0: 1RECV_B0", "waited 0.3 s", "rank 2"})
    EXPECT_NE(words.find(part), std::string::npos) << part << " in " << words;
}

TEST(Executor, ABlockThatFailsIsNamedWithItsAction) {
  bool fail = true;
  const Model model = make_toy([&](int block, const BlockContext& context) {
    if (block == 3 && context.sequence_ids.defined() && !context.sequence_ids.is_meta() &&
        context.sequence_ids.to_vector<std::int64_t>()[0] == 1)
      require<ValueError>(!fail, "a bad value");
  });
  run_ranks(1, [&](Communicator& pipeline) {
    ToySource source(3);
    const Plan plan = lower(plan_of({"0F0 0F1 1F0 1F1 1B0 0B0 1B1 0B1 0F2 1F2 1B2 0B2"}));
    Rank rank(pipeline, model, 2);
    EXPECT_EQ(message_of<ValueError>([&] { rank.run(plan, source); }), "1F1 in block swap: a bad value");
    // Parts of the failed pass are there; nothing runs on top of them.
    EXPECT_NE(message_of<ValueError>([&] { rank.run(plan, source); }).find("reset()"), std::string::npos);
    fail = false;
    rank.executor.reset();
    const PassResult again = rank.run(plan, source);
    EXPECT_EQ(rank.context.allocator().live()[MemoryKind::activation], 0);
    Rank fresh(pipeline, model, 2);
    EXPECT_EQ(again.loss_sums, fresh.run(plan, source).loss_sums);
    rank.weights.finish_gradients();
    fresh.weights.finish_gradients();
    for (int b = 0; b < model.size(); ++b)
      for (const Parameter& p : model.block(b).parameters())
        EXPECT_EQ(rank.weights.gradient_of(b, p.index).to_vector<float>(),
                  fresh.weights.gradient_of(b, p.index).to_vector<float>())
            << p.name;
  });
}

TEST(Executor, GoesOnAfterAFailedPassOfAPipeline) {
  // Rank 0's data fails in the second micro-batch; rank 1 finds out by its deadline, with receives of the
  // first attempt still posted.
  std::atomic<bool> fail = true;
  const Model model = make_toy();
  const Plan plan = lower(named_plan("1f1b", 2, 4));
  std::vector<double> sums, expected;
  run_ranks(1, [&](Communicator& alone) {
    ToySource source(4);
    Rank rank(alone, model, 1);
    expected = rank.run(lower(named_plan("gpipe", 1, 4)), source).loss_sums;
  });
  run_ranks(2, [&](Communicator& pipeline) {
    ToySource source(4, [&](Index, SequenceSpan s, std::vector<float>&) {
      require<ValueError>(!fail || pipeline.rank() == 1 || s.first != 1, "damaged data");
    });
    Rank rank(pipeline, model, 2, 0.2);
    for (int attempt = 0; attempt < 3; ++attempt) {
      EXPECT_THROW(rank.run(plan, source), Error);
      rank.executor.reset();
      pipeline.barrier();
    }
    fail = false;
    pipeline.barrier();
    const PassResult result = rank.run(plan, source);
    if (pipeline.rank() == 1) sums = result.loss_sums;
  });
  EXPECT_EQ(sums, expected);
}

TEST(Executor, RefusesPlansThatDoNotFit) {
  const Model model = make_toy();
  run_ranks(1, [&](Communicator& pipeline) {
    ToySource source(5);
    Rank rank(pipeline, model, 1);
    const auto words = [&](const Plan& plan) {
      return message_of<ValueError>([&] { rank.run(plan, source, 2); });
    };
    EXPECT_NE(words(lower(named_plan("1f1b", 2, 3))).find("for 1 ranks wanted, not 1f1b for 2"),
              std::string::npos);
    EXPECT_NE(
        words(lower(named_plan("1f1b", 1, 2))).find("5 sequences in micro-batches of 2 are not the plan's 2"),
        std::string::npos);
    EXPECT_NE(words(lower(named_plan("1f1b", 1, 4))).find("are not the plan's 4"), std::string::npos);
    EXPECT_NE(words(lower(plan_of({"0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1 0F2 1F2 1B2 0B2"})))
                  .find("a plan with 2 stages"),
              std::string::npos);
    EXPECT_NE(words(named_plan("1f1b", 1, 3)).find("a lowered plan"), std::string::npos);
    // None of these left anything behind.
    EXPECT_EQ(rank.run(lower(named_plan("1f1b", 1, 3)), source, 2).loss_sums.size(), 3u);
  });
}

TEST(Executor, KindsThatItCannotRunAreRefusedByName) {
  const Model model = make_toy();
  run_ranks(1, [&](Communicator& pipeline) {
    ToySource source(1);
    Rank rank(pipeline, model, 1);
    EXPECT_NE(message_of<ValueError>([&] {
                rank.run(lower(plan_of({"0F0 0RECOMPUTE0 0B0"})), source);
              }).find("0RECOMPUTE0"),
              std::string::npos);
  });
}

TEST(Executor, TimesEveryComputeAction) {
  const Model model = make_toy();
  run_ranks(2, [&](Communicator& pipeline) {
    ToySource source(3);
    Rank rank(pipeline, model, 2);
    const PassResult result = rank.run(
        lower(plan_of({"0F0 0F1 (0F2;0B0)OVERLAP_F_B 0B1 0B2", "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"})),
        source);
    std::string text;
    double last = 0;
    for (const TimedAction& a : result.actions) {
      text += to_text(a.action) + " ";
      EXPECT_LE(last, a.start);
      EXPECT_LE(a.start, a.end);
      last = a.end;
    }
    EXPECT_EQ(text,
              pipeline.rank() == 0 ? "0F0 0F1 0F2 0B0 0B1 0B2 " : "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2 ");
    EXPECT_EQ(result.loss_sums.size(), pipeline.rank() == 1 ? 3u : 0u);
  });
}

TEST(Executor, GeometryMayChangeFromPassToPass) {
  // Fault 31: buffers sized by the first micro-batch. Batches of 5, 2, 5 and one sequence with one executor.
  const Model model = make_toy();
  run_ranks(2, [&](Communicator& pipeline) {
    Rank rank(pipeline, model, 2);
    for (const Index batch : {5, 2, 5, 1}) {
      ToySource source(batch);
      const PassResult result = rank.run(lower(named_plan("1f1b", 2, div_up(batch, Index{3}))), source, 3);
      if (pipeline.rank() == 1) {
        EXPECT_EQ(result.loss_sums.size(), batch == 5 ? 2u : 1u);
      }
    }
  });
}

}  // namespace
}  // namespace penstock::testing
