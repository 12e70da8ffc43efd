// The data order, against the formulas written out the long way. The row is 0, 1, 2, ..., so a window's first
// input tells its place.
#include "data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace penstock {
namespace {

using testing::message_of;
using Ids = std::vector<std::int32_t>;
using Order = std::vector<std::int64_t>;

TokenRow counting_row(int tokens) {
  Ids ids(static_cast<std::size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 0);
  return TokenRow(ids);
}

SamplerOptions options_of(std::int64_t length, std::int64_t batch, DataOrder order, std::uint64_t seed = 0) {
  SamplerOptions options;
  options.sequence_length = length;
  options.batch = batch;
  options.order = order;
  options.seed = seed;
  return options;
}

TEST(Sampler, NumberOfWindows) {
  for (int length = 1; length <= 7; ++length) {
    for (int tokens = 0; tokens <= 40; ++tokens) {
      int windows = 0;  // by counting: the window that starts at windows * length needs length + 1 tokens
      while (windows * length + length + 1 <= tokens) ++windows;
      const SamplerOptions options = options_of(length, 2, DataOrder::sequential);
      if (windows > 0) {
        EXPECT_EQ(Sampler(counting_row(tokens), options).windows(), windows);
      } else {
        const std::string message = message_of<ValueError>([&] { Sampler(counting_row(tokens), options); });
        EXPECT_NE(message.find(std::to_string(tokens) + " tokens"), std::string::npos) << message;
      }
    }
  }
  EXPECT_THROW(Sampler(counting_row(9), options_of(0, 1, DataOrder::sequential)), ValueError);
  EXPECT_THROW(Sampler(counting_row(9), options_of(1, 0, DataOrder::sequential)), ValueError);
}

TEST(Sampler, SequentialWrapsRound) {
  Sampler sampler(counting_row(23),
                  options_of(4, 3, DataOrder::sequential));  // 5 windows; the last 2 tokens are idle
  std::int64_t expected = 0;
  for (std::int64_t step = 1; step <= 9; ++step)
    for (std::int64_t sequence = 0; sequence < 3; ++sequence, expected = (expected + 1) % 5)
      EXPECT_EQ(sampler.window(step, sequence), expected);
  Ids inputs(8), targets(8);
  sampler.fill(2, {1, 3}, inputs.data(), targets.data());  // windows 4 and 0
  EXPECT_EQ(inputs, (Ids{16, 17, 18, 19, 0, 1, 2, 3}));
  EXPECT_EQ(targets, (Ids{17, 18, 19, 20, 1, 2, 3, 4}));
}

TEST(Sampler, EachEpochIsAnotherPermutation) {
  constexpr std::int64_t windows = 101, batch = 7, epochs = 5;
  Sampler sampler(counting_row(2 * windows + 1), options_of(2, batch, DataOrder::shuffled, 3));
  Order sequence;
  for (std::int64_t step = 1; static_cast<std::int64_t>(sequence.size()) < windows * epochs; ++step)
    for (std::int64_t place = 0; place < batch; ++place) sequence.push_back(sampler.window(step, place));
  std::vector<Order> seen;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    const Order order(sequence.begin() + epoch * windows, sequence.begin() + (epoch + 1) * windows);
    Order sorted = order;
    std::sort(sorted.begin(), sorted.end());
    Order all(windows);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(sorted, all);
    EXPECT_NE(order, all);
    for (const Order& other : seen) EXPECT_NE(order, other);
    seen.push_back(order);
    EXPECT_EQ(order, epoch_permutation(3, epoch, windows));
  }
  EXPECT_NE(epoch_permutation(4, 0, windows), seen[0]);
}

// Values from an independent program that follows the definition in the header.
TEST(Sampler, PermutationIsTheDocumentedOne) {
  EXPECT_EQ(epoch_permutation(42, 0, 10), (Order{9, 2, 8, 7, 4, 5, 1, 6, 3, 0}));
  EXPECT_EQ(epoch_permutation(42, 1, 10), (Order{6, 4, 8, 2, 1, 5, 9, 3, 0, 7}));
  EXPECT_EQ(epoch_permutation(0x123456789abcdef0ULL, 7, 7), (Order{2, 5, 3, 1, 6, 0, 4}));
  EXPECT_EQ(epoch_permutation(42, 0, 1), (Order{0}));
  EXPECT_TRUE(epoch_permutation(42, 0, 0).empty());
}

// All 24 orders of four windows come equally often: chi-squared with 23 degrees of freedom, 49.7 at 0.1
// percent.
TEST(Sampler, PermutationsAreUniform) {
  constexpr int draws = 24'000;
  std::map<Order, int> counts;
  for (std::int64_t epoch = 0; epoch < draws; ++epoch) ++counts[epoch_permutation(1, epoch, 4)];
  ASSERT_EQ(counts.size(), 24u);
  double chi_squared = 0;
  for (const auto& [order, count] : counts) chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_squared, 49.7);
}

TEST(Sampler, OrderDependsOnNeitherCutNorHistory) {
  constexpr std::int64_t length = 3, batch = 11;
  const TokenRow row = counting_row(100);
  for (const DataOrder order : {DataOrder::sequential, DataOrder::shuffled}) {
    const SamplerOptions options = options_of(length, batch, order, 9);
    // Whole batches of 20 steps, in order.
    Sampler whole(row, options);
    std::vector<Ids> inputs, targets;
    for (std::int64_t step = 1; step <= 20; ++step) {
      whole.fill(step, {0, batch}, inputs.emplace_back(batch * length).data(),
                 targets.emplace_back(batch * length).data());
    }
    // A fresh sampler that begins late (a resume), goes backwards and reads replica by replica, micro-batch
    // by micro-batch, gives the same.
    Sampler resumed(row, options);
    for (std::int64_t step = 20; step >= 13; --step) {
      for (std::int64_t replicas = 1; replicas <= 4; ++replicas) {
        Ids in, out;
        for (std::int64_t replica = 0; replica < replicas; ++replica) {
          const SequenceRange mine = replica_sequences(batch, replicas, replica);
          for (std::int64_t first = mine.first; first < mine.last; first += 2) {
            const SequenceRange micro{first, std::min(first + 2, mine.last)};
            Ids a(static_cast<std::size_t>(micro.size() * length)), b = a;
            resumed.fill(step, micro, a.data(), b.data());
            in.insert(in.end(), a.begin(), a.end());
            out.insert(out.end(), b.begin(), b.end());
          }
        }
        ASSERT_EQ(in, inputs[static_cast<std::size_t>(step - 1)]);
        ASSERT_EQ(out, targets[static_cast<std::size_t>(step - 1)]);
      }
    }
  }
}

TEST(Sampler, BatchLargerThanSeveralEpochs) {
  Sampler sampler(counting_row(7), options_of(2, 10, DataOrder::shuffled, 1));  // 3 windows, 10 a step
  Order got;
  for (std::int64_t step = 1; step <= 3; ++step)
    for (std::int64_t place = 0; place < 10; ++place) got.push_back(sampler.window(step, place));
  Order expected;
  for (std::int64_t epoch = 0; epoch < 10; ++epoch)
    for (const std::int64_t window : epoch_permutation(1, epoch, 3)) expected.push_back(window);
  EXPECT_EQ(got, expected);
}

TEST(Sampler, ReplicasCoverTheBatch) {
  for (std::int64_t batch = 1; batch <= 20; ++batch) {
    for (std::int64_t replicas = 1; replicas <= batch; ++replicas) {
      std::int64_t next = 0;
      for (std::int64_t replica = 0; replica < replicas; ++replica) {
        const SequenceRange range = replica_sequences(batch, replicas, replica);
        EXPECT_EQ(range.first, next);
        EXPECT_TRUE(range.size() == batch / replicas || range.size() == batch / replicas + 1);
        next = range.last;
      }
      EXPECT_EQ(next, batch);
    }
  }
  EXPECT_EQ(replica_sequences(5, 2, 0), (SequenceRange{0, 2}));  // the smaller one first: floor(5/2)
  EXPECT_EQ(replica_sequences(5, 2, 1), (SequenceRange{2, 5}));
  EXPECT_THROW(replica_sequences(3, 4, 0), ValueError);
  EXPECT_THROW(replica_sequences(3, 2, 2), ValueError);
  EXPECT_THROW(replica_sequences(3, 2, -1), ValueError);
}

TEST(Sampler, IgnoredTargets) {
  // Windows of 3: inputs 5 0 5, targets 0 5 5; inputs 5 5 5, targets 5 5 5; inputs 5 1 2, targets 1 2 3.
  const TokenRow row(Ids{5, 0, 5, 5, 5, 5, 5, 1, 2, 3});
  SamplerOptions options = options_of(3, 1, DataOrder::sequential);
  options.ignore_target = 5;
  Sampler sampler(row, options);
  Ids inputs(3), targets(3);
  const Ids expected_targets[] = {{0, -1, -1}, {-1, -1, -1}, {1, 2, 3}};
  const Ids expected_inputs[] = {{5, 0, 5}, {5, 5, 5}, {5, 1, 2}};
  const std::int64_t expected_valid[] = {1, 0, 3};
  for (std::int64_t step = 1; step <= 6; ++step) {
    sampler.fill(step, {0, 1}, inputs.data(), targets.data());
    EXPECT_EQ(inputs, expected_inputs[(step - 1) % 3]);
    EXPECT_EQ(targets, expected_targets[(step - 1) % 3]);
    EXPECT_EQ(sampler.valid_targets(step), expected_valid[(step - 1) % 3]);
  }
  options.batch = 2;
  Sampler pairs(row, options);
  EXPECT_EQ(pairs.valid_targets(1), 1);
  EXPECT_EQ(pairs.valid_targets(2), 4);  // windows 2 and 0
  options.ignore_target = 0;             // an id of 0 is an id like the others
  EXPECT_EQ(Sampler(row, options).valid_targets(1), 5);
  options.ignore_target.reset();
  EXPECT_EQ(Sampler(row, options).valid_targets(1), 6);
}

TEST(Sampler, Refusals) {
  Sampler sampler(counting_row(20), options_of(3, 4, DataOrder::shuffled));
  Ids buffer(60);
  EXPECT_THROW(sampler.window(0, 0), ValueError);
  EXPECT_THROW(sampler.window(1, 4), ValueError);
  EXPECT_THROW(sampler.window(1, -1), ValueError);
  EXPECT_THROW(sampler.fill(1, {0, 5}, buffer.data(), buffer.data()), ValueError);
  EXPECT_THROW(sampler.fill(1, {-1, 2}, buffer.data(), buffer.data()), ValueError);
  EXPECT_THROW(sampler.fill(1, {3, 2}, buffer.data(), buffer.data()), ValueError);
  EXPECT_EQ(parse_data_order("shuffled"), DataOrder::shuffled);
  EXPECT_EQ(parse_data_order("sequential"), DataOrder::sequential);
  EXPECT_NE(message_of<ValueError>([] { parse_data_order("random"); }).find("--data-order random"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock
