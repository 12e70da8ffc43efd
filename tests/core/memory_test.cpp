// The allocator's books, its reuse of memory, and what a rank owns.
#include "core/memory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <thread>

#include "core/tensor.h"
#include "support/temp_folder.h"

namespace penstock {
namespace {

using testing::message_of;

TEST(Allocator, CountsBytesByKindExactly) {
  Allocator memory(Device{});
  void* a = memory.allocate(100, MemoryKind::parameter);
  void* b = memory.allocate(1, MemoryKind::activation);
  void* none = memory.allocate(0, MemoryKind::activation);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b) % 64, 0u);
  EXPECT_EQ(memory.live()[MemoryKind::parameter], 100);
  EXPECT_EQ(memory.live()[MemoryKind::activation], 1);
  EXPECT_EQ(memory.live().total(), 101);
  memory.release(a, 100, MemoryKind::parameter);
  void* c = memory.allocate(50, MemoryKind::workspace);
  EXPECT_EQ(memory.peak()[MemoryKind::parameter], 100);
  EXPECT_EQ(memory.peak()[MemoryKind::workspace], 50);
  EXPECT_EQ(memory.peak_total(), 101) << "the peak of the sum, not the sum of the peaks";
  EXPECT_EQ(memory.live().total(), 51);
  memory.reset_peak();
  EXPECT_EQ(memory.peak_total(), 51);
  EXPECT_EQ(memory.peak()[MemoryKind::parameter], 0);
  memory.release(b, 1, MemoryKind::activation);
  memory.release(none, 0, MemoryKind::activation);
  memory.release(c, 50, MemoryKind::workspace);
  EXPECT_EQ(memory.live().total(), 0);
}

TEST(Allocator, HandsFreedMemoryOutAgain) {
  for (const Index bytes : {Index{1}, Index{64}, Index{65}, Index{4096}, Index{5000}, Index{1000003}}) {
    Allocator memory(Device{});
    void* first = memory.allocate(bytes, MemoryKind::activation);
    memory.release(first, bytes, MemoryKind::activation);
    const Index before = memory.system_allocations();
    void* second = memory.allocate(bytes, MemoryKind::gradient);
    EXPECT_EQ(first, second) << bytes;
    void* third = memory.allocate(bytes, MemoryKind::gradient);
    EXPECT_NE(second, third) << "live memory is nobody else's";
    EXPECT_EQ(memory.system_allocations(), before + 1);
    memory.release(second, bytes, MemoryKind::gradient);
    memory.release(third, bytes, MemoryKind::gradient);
  }
}

TEST(Allocator, EveryByteThatWasAskedForIsThere) {
  Allocator memory(Device{});
  for (Index bytes = 1; bytes < 200000; bytes = bytes * 5 / 4 + 1) {
    auto* p = static_cast<unsigned char*>(memory.allocate(bytes, MemoryKind::activation));
    std::fill_n(p, bytes, static_cast<unsigned char>(0xAB));  // a sanitizer sees what is too short
    EXPECT_EQ(p[bytes - 1], 0xAB);
    memory.release(p, bytes, MemoryKind::activation);
  }
}

TEST(Allocator, RefusesAbsurdSizes) {
  Allocator memory(Device{});
  for (const Index bytes : {Index{-1}, Index{1} << 48})
    EXPECT_NE(message_of<DeviceError>([&] {
                memory.allocate(bytes, MemoryKind::activation);
              }).find("allocation of"),
              std::string::npos);
  EXPECT_EQ(memory.live().total(), 0);
}

TEST(Allocator, OnMetaItOnlyCounts) {
  Allocator memory(Device{DeviceKind::meta, 0});
  EXPECT_EQ(memory.allocate(Index{1} << 45, MemoryKind::parameter), nullptr);
  EXPECT_EQ(memory.live()[MemoryKind::parameter], Index{1} << 45);
  EXPECT_EQ(memory.system_allocations(), 0);
  memory.release(nullptr, Index{1} << 45, MemoryKind::parameter);
  EXPECT_EQ(memory.live().total(), 0);
}

TEST(Allocator, PoisonsFreedMemoryWithNaN) {
  RankContext context({.poison = true});
  const float* data = nullptr;
  {
    const Tensor t = Tensor::zeros(context, Shape{100});
    data = t.data_as<float>();
  }
  const Tensor again = Tensor::empty(context, Shape{100});
  ASSERT_EQ(again.data_as<float>(), data);
  for (const float v : again.to_vector<float>()) EXPECT_TRUE(std::isnan(v));
}

TEST(Allocator, TakesMemoryBackFromOtherThreads) {
  RankContext context;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 1; k < 500; ++k) {
        const Tensor t = Tensor::empty(context, Shape{k});
        const Tensor copy = t;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(context.allocator().live().total(), 0);
  EXPECT_GE(context.allocator().peak_total(), 499 * 4);
}

TEST(Allocator, OutlivesItsRankWhileATensorDoes) {
  Tensor last;
  std::shared_ptr<Allocator> allocator;
  {
    RankContext context;
    allocator = context.shared_allocator();
    last = Tensor::zeros(context, Shape{5});
  }
  EXPECT_EQ(allocator->live().total(), 20);
  last = {};
  EXPECT_EQ(allocator->live().total(), 0);
}

TEST(RankContextTest, RanksCountForThemselves) {
  RankContext a, b;
  const Tensor t = Tensor::zeros(a, Shape{10});
  EXPECT_EQ(a.allocator().live().total(), 40);
  EXPECT_EQ(b.allocator().live().total(), 0);
}

TEST(RankContextTest, KeepsOneCacheAType) {
  struct Primitives {
    int made = 0;
  };
  RankContext a, b;
  a.cache<Primitives>().made = 3;
  EXPECT_EQ(a.cache<Primitives>().made, 3);
  EXPECT_EQ(b.cache<Primitives>().made, 0);
}

TEST(RankContextTest, RefusesWhatIsNotBuilt) {
  EXPECT_NE(message_of<DeviceError>([] {
              RankContext context({.device = {DeviceKind::cuda, 0}});
            }).find("cuda is not yet built"),
            std::string::npos);
  EXPECT_NE(
      message_of<ValueError>([] { RankContext context({.threads = 0}); }).find("at least one compute thread"),
      std::string::npos);
}

}  // namespace
}  // namespace penstock
