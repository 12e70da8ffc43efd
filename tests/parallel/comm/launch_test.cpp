// launch without MPI: ranks as threads, failures, and what ranks agree on. Under mpirun: comm_main.mpi.cpp.
#include "parallel/comm/launch.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <set>

namespace penstock::testing {
namespace {

std::set<int> ranks_of(const LaunchOptions& options, int size) {
  std::mutex mutex;
  std::set<int> ranks;
  launch(options, [&](Communicator& world) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(world.size(), size);
    EXPECT_EQ(world.deadline_seconds(), options.deadline_seconds);
    ranks.insert(world.rank());
  });
  return ranks;
}

TEST(Launch, RunsTheBodyAsEveryRank) {
  EXPECT_EQ(ranks_of({}, 1), std::set<int>{0});
  EXPECT_EQ(ranks_of({.threads = 1, .deadline_seconds = 7}, 1), std::set<int>{0});
  EXPECT_EQ(ranks_of({.threads = 3, .deadline_seconds = 20}, 3), (std::set<int>{0, 1, 2}));
  for (const Index threads : {Index{0}, Index{-1}, Index{1} << 40})
    EXPECT_THROW(ranks_of({.threads = threads}, 1), ValueError) << threads;
}

TEST(Launch, ThrowsTheFirstFailureAsItWas) {
  std::atomic<int> released = 0;
  try {
    launch({.threads = 3, .deadline_seconds = 60}, [&](Communicator& world) {
      if (world.rank() == 1) throw ShapeError("the very reason");
      try {
        world.barrier();
      } catch (const CommError& error) {
        if (std::string(error.what()).find("rank 1: the very reason") != std::string::npos) ++released;
        throw;
      }
    });
    FAIL() << "nothing was thrown";
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "the very reason");
  }
  EXPECT_EQ(released, 2);
}

TEST(Launch, WithoutALauncherThereIsNoJobToJoin) {
  Launch ranks;
  EXPECT_EQ(ranks.world(), nullptr);
  EXPECT_EQ(ranks.size(), 1);
  EXPECT_FALSE(ranks.host_name().empty());
  EXPECT_EQ(ranks.host_name(), local_host_name());
  EXPECT_NO_THROW(ranks.refuse_threads(2));
  ranks.abort("nobody hears it");
}

TEST(Agree, WhatOneRefusesAllRefuse) {
  for (int culprit = -1; culprit < 3; ++culprit) {
    std::atomic<int> refused = 0, agreed = 0;
    launch({.threads = 3}, [&](Communicator& world) {
      try {
        agree(world, [&] {
          if (world.rank() != culprit) return;
          if (culprit == 1) throw std::filesystem::filesystem_error("no such file", {});
          throw ShapeError("bad input");
        });
        ++agreed;
      } catch (const ValueError& error) {
        const std::string expected = culprit == 1 ? "no such file" : "bad input";
        if (std::string(error.what()).find(expected) != std::string::npos) ++refused;
      }
    });
    EXPECT_EQ(agreed, culprit < 0 ? 3 : 0);
    EXPECT_EQ(refused, culprit < 0 ? 0 : 3);
  }
}

TEST(DefaultThreads, RanksOfAMachineShareItsProcessors) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  const int cpus = CPU_COUNT(&mask);
  for (const int ranks : {1, 2, 3}) {
    launch({.threads = ranks}, [&](Communicator& world) {
      EXPECT_EQ(default_threads(world, "here"), std::max(1, cpus / ranks));
      EXPECT_EQ(default_threads(world, std::to_string(world.rank())), cpus);  // each on its own machine
    });
  }
}

}  // namespace
}  // namespace penstock::testing
