// The communicator of in-process ranks: the shared scenarios for 1 to 5 ranks, and what threads alone can
// show of failures.
#include "parallel/comm/thread_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "parallel/comm/failure.h"
#include "tests/parallel/comm/scenarios.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class ThreadScenario : public ::testing::TestWithParam<std::tuple<testing::Scenario, int>> {};

TEST_P(ThreadScenario, Passes) {
  const auto& [scenario, ranks] = GetParam();
  std::atomic<int> passed{0};
  run_ranks(
      ranks,
      [&, &run = scenario.run](Communicator& comm) {
        RankContext context;
        run(comm, context);
        comm.barrier();
        ++passed;
      },
      60);
  EXPECT_EQ(passed, ranks);
}

std::vector<std::tuple<testing::Scenario, int>> cases() {
  std::vector<std::tuple<testing::Scenario, int>> result;
  for (const testing::Scenario& scenario : testing::all_scenarios())
    for (int ranks = scenario.min_ranks; ranks <= 5; ++ranks) result.emplace_back(scenario, ranks);
  return result;
}

INSTANTIATE_TEST_SUITE_P(Comm, ThreadScenario, ::testing::ValuesIn(cases()), [](const auto& test) {
  return std::get<0>(test.param).name + "_" + std::to_string(std::get<1>(test.param));
});

TEST(ThreadGroup, RefusesNoRanksAndUnknownRanks) {
  EXPECT_THROW(ThreadGroup(0), ValueError);
  EXPECT_THROW(run_ranks(-1, [](Communicator&) {}), ValueError);
  EXPECT_THROW(ThreadGroup(2).communicator(2), ValueError);
  EXPECT_THROW(ThreadGroup(2).communicator(-1), ValueError);
}

/// An exception type that nothing else throws.
struct Peculiar : std::runtime_error {
  using std::runtime_error::runtime_error;
  int number = 0;
};

// Known fault 43, in threads: the failure of one rank ends the others' waits, whatever they wait in, and is
// what the caller gets.
TEST(RunRanks, ThrowsTheFirstFailureAsItWas) {
  for (int culprit = 0; culprit < 4; ++culprit) {
    std::atomic<int> released{0};
    const auto start = Clock::now();
    try {
      run_ranks(
          4,
          [&](Communicator& comm) {
            RankContext context;
            const auto part = comm.split(0, comm.rank());  // waits in sub-groups are released as well
            if (comm.rank() == culprit) {
              std::this_thread::sleep_for(std::chrono::milliseconds(50));
              Peculiar failure("the very reason");
              failure.number = 7 + culprit;
              throw failure;
            }
            const Tensor tensor = Tensor::zeros(context, {100000});
            const int place = (comm.rank() - culprit + 4) % 4;
            try {
              if (place == 1) part->barrier();
              if (place == 2)
                part->recv(tensor, culprit, 1, {}, context.stream()).host_wait(60, "the receiver");
              if (place == 3) {
                Work sending = comm.send(tensor, culprit, 2, {}, context.stream());
                while (!sending.test()) comm.progress();
              }
            } catch (const CommError& error) {
              const std::string message = error.what();
              if (message.find(fmt::format("rank {}: the very reason", culprit)) != std::string::npos &&
                  (place != 2 || message.find("the receiver") != std::string::npos))
                ++released;
              throw;
            }
          },
          60);
      FAIL() << "nothing was thrown";
    } catch (const Peculiar& failure) {
      EXPECT_STREQ(failure.what(), "the very reason");
      EXPECT_EQ(failure.number, 7 + culprit);
    }
    EXPECT_EQ(released, 3);
    EXPECT_LT(seconds_since(start), 10);
  }
}

TEST(RunRanks, TheCauseCountsAndNotTheLowestRank) {
  // Ranks 0 and 1 answer the failure of rank 2 with exceptions of other types.
  try {
    run_ranks(3, [](Communicator& comm) {
      if (comm.rank() == 2) throw ShapeError("the cause");
      try {
        comm.barrier();
      } catch (const CommError&) {
        throw IoError("a consequence");
      }
    });
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "the cause");
  }
}

TEST(RunRanks, AlsoWhatIsNoException) {
  try {
    run_ranks(2, [](Communicator& comm) {
      if (comm.rank() == 1) throw 42;
      comm.barrier();
    });
    FAIL();
  } catch (int number) {
    EXPECT_EQ(number, 42);
  }
}

TEST(RunRanks, OneRankThrowsToo) {
  EXPECT_THROW(run_ranks(1, [](Communicator&) { throw ValueError("alone"); }), ValueError);
}

TEST(RunRanks, ADeadlineOfACollectiveNamesWhoIsMissing) {
  try {
    run_ranks(
        3,
        [](Communicator& comm) {
          if (comm.rank() == 1)
            std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // a rank that is stuck
          else
            comm.barrier();
        },
        0.3);
    FAIL();
  } catch (const CommError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("barrier"), std::string::npos) << message;
    // Rank 0 misses rank 1, rank 2 misses rank 0: whoever was first.
    EXPECT_TRUE(message.find("0.3 s for rank 1") != std::string::npos ||
                message.find("0.3 s for rank 0") != std::string::npos)
        << message;
  }
}

// A rank that returned early sends nothing any more: who waits for it learns so at once and not at the
// deadline.
TEST(RunRanks, WaitingForARankThatEndedFails) {
  const auto start = Clock::now();
  try {
    run_ranks(
        2,
        [](Communicator& comm) {
          RankContext context;
          const Tensor tensor = Tensor::zeros(context, {3});
          if (comm.rank() == 1) {
            comm.send(tensor, 0, 1, {}, context.stream());  // this one counts still
            return;
          }
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          comm.recv(tensor, 1, 1, {}, context.stream()).host_wait(60, "first");
          comm.recv(tensor, 1, 1, {}, context.stream()).host_wait(60, "second");
        },
        60);
    FAIL();
  } catch (const CommError& error) {
    EXPECT_STREQ(error.what(), "second: rank 1 has ended");
  }
  EXPECT_LT(seconds_since(start), 10);
}

TEST(ThreadGroup, AbortFromOutsideReleasesAWaiter) {
  const ThreadGroup group(2);
  std::string message;
  std::thread waiter([&] {
    const auto comm = group.communicator(0);
    try {
      comm->barrier();
    } catch (const CommError& error) {
      message = error.what();
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  group.abort("stopped by a watcher");
  group.abort("too late");
  waiter.join();
  EXPECT_NE(message.find("stopped by a watcher"), std::string::npos) << message;
  EXPECT_THROW(group.communicator(1)->progress(), CommError);
  EXPECT_EQ(group.failed_rank(), -1);
}

// No copy but the receiver's: the sender's tensor is held, not duplicated, and let go of on the sender's
// side.
TEST(ThreadGroup, AMessageTakesNoMemoryOfItsOwn) {
  run_ranks(
      2,
      [](Communicator& comm) {
        RankContext context;
        {
          Tensor tensor = Tensor::zeros(context, {1000});
          Work work = comm.rank() == 0 ? comm.send(tensor, 1, 1, {}, context.stream())
                                       : comm.recv(tensor, 0, 1, {}, context.stream());
          tensor = Tensor();
          EXPECT_EQ(context.allocator().live().total(), 4000);  // the work keeps it
          work.host_wait(60, "message");
        }
        EXPECT_EQ(context.allocator().live().total(), 0);
        EXPECT_EQ(context.allocator().peak_total(), 4000);
      },
      60);
}

// Many small messages in all directions with the receives in another order than the sends: for the thread
// sanitizer.
TEST(ThreadGroup, Crossfire) {
  constexpr int ranks = 5, rounds = 200;
  run_ranks(
      ranks,
      [](Communicator& comm) {
        RankContext context;
        for (int round = 0; round < rounds; ++round) {
          std::vector<Work> works;
          std::vector<Tensor> in;
          for (int peer = 0; peer < ranks; ++peer) {
            const std::vector<float> value(static_cast<std::size_t>(round),
                                           static_cast<float>(comm.rank() * 1000 + round));
            works.push_back(
                comm.send(Tensor::from(context, {round}, value), peer, round % 3, {}, context.stream()));
          }
          for (int peer = ranks - 1; peer >= 0; --peer) {
            in.push_back(Tensor::zeros(context, {round}));
            works.push_back(comm.recv(in.back(), peer, round % 3, {}, context.stream()));
            if (peer == 2) comm.progress();
          }
          for (Work& work : works) work.host_wait(60, "crossfire");
          for (int peer = 0; peer < ranks; ++peer) {
            const std::vector<float> expected(static_cast<std::size_t>(round),
                                              static_cast<float>(peer * 1000 + round));
            ASSERT_EQ(in[static_cast<std::size_t>(ranks - 1 - peer)].to_vector<float>(), expected);
          }
        }
      },
      60);
}

TEST(Work, OneThatIsNothingIsComplete) {
  Work work;
  EXPECT_TRUE(work.test());
  work.host_wait(0, "nothing");
}

TEST(JobFailure, TheFirstStands) {
  JobFailure failure;
  EXPECT_FALSE(failure.is_set());
  EXPECT_EQ(failure.rank(), -1);
  EXPECT_TRUE(failure.set("first", 3));
  EXPECT_FALSE(failure.set("second", 1));
  EXPECT_EQ(failure.reason(), "first");
  EXPECT_EQ(failure.rank(), 3);
}

}  // namespace
}  // namespace penstock
