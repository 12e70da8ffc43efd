// ThreadPool: each task once, on several threads, failures handed back.
#include "core/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace penstock {
namespace {

TEST(ThreadPool, RunsEachTaskOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const Index tasks : {0, 1, 2, 3, 7, 100, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
      pool.parallel_for(tasks, [&](Index task) { ++runs[static_cast<std::size_t>(task)]; });
      for (const auto& r : runs) ASSERT_EQ(r.load(), 1) << threads << " threads, " << tasks << " tasks";
    }
  }
}

TEST(ThreadPool, RangesCoverEverythingInGrains) {
  ThreadPool pool(3);
  for (const Index n : {0, 1, 9, 10, 11, 95}) {
    std::mutex mutex;
    std::set<std::pair<Index, Index>> ranges;
    pool.parallel_ranges(n, 10, [&](Index begin, Index end) {
      const std::lock_guard lock(mutex);
      ranges.emplace(begin, end);
    });
    std::set<std::pair<Index, Index>> wanted;
    for (Index begin = 0; begin < n; begin += 10) wanted.emplace(begin, std::min(n, begin + 10));
    EXPECT_EQ(ranges, wanted) << n;
  }
}

TEST(ThreadPool, ManyShortLoopsOneAfterTheOther) {
  ThreadPool pool(3);
  std::vector<Index> sums(5, 0);
  for (int loop = 0; loop < 1000; ++loop)
    pool.parallel_for(5, [&](Index task) { sums[static_cast<std::size_t>(task)] += task + loop; });
  for (Index task = 0; task < 5; ++task)
    EXPECT_EQ(sums[static_cast<std::size_t>(task)], 1000 * task + 1000 * 999 / 2)
        << "a loop ends before the next begins";
}

TEST(ThreadPool, WakesAfterItsThreadsSleep) {
  ThreadPool pool(2);
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // longer than the threads spin
    std::atomic<int> runs{0};
    pool.parallel_for(10, [&](Index) { ++runs; });
    EXPECT_EQ(runs.load(), 10);
  }
}

TEST(ThreadPool, TwoTasksCanWaitForEachOther) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  std::set<std::thread::id> ids;
  std::mutex mutex;
  pool.parallel_for(2, [&](Index) {
    ++arrived;
    while (arrived.load() < 2) std::this_thread::yield();
    const std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(ids.size(), 2u);
}

TEST(ThreadPool, ThrowsATasksExceptionAfterTheOthersEnded) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    EXPECT_THROW(pool.parallel_for(50,
                                   [&](Index task) {
                                     if (task == 7) throw ValueError("task {}", task);
                                   }),
                 ValueError);
    std::atomic<int> runs{0};
    pool.parallel_for(50, [&](Index) { ++runs; });
    EXPECT_EQ(runs.load(), 50) << "the pool can be used again";
  }
}

TEST(ThreadPool, NeedsAThread) {
  EXPECT_THROW(ThreadPool(0), ValueError);
  EXPECT_THROW(ThreadPool(-2), ValueError);
}

}  // namespace
}  // namespace penstock
