// The frequencies of rotary positions beside their record.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "autograd/ops/rope.h"

namespace penstock::testing {
namespace {

using ops::RopeScaling;

// Published values: with theta 500000, a head of 128 and Llama 3.1's scaling (factor 8, 1, 4, 8192 positions)
// pairs up to 28 turn as before, those from 35 on eight times slower, and the ones between are blended.
TEST(RopeFrequencies, ScaleAsLlama3Does) {
  const std::vector<double> plain = ops::rope_frequencies(128, {.theta = 500000});
  const std::vector<double> scaled = ops::rope_frequencies(128, {.theta = 500000,
                                                                 .scaling = RopeScaling::llama3,
                                                                 .factor = 8,
                                                                 .low_frequency = 1,
                                                                 .high_frequency = 4,
                                                                 .original_positions = 8192});
  ASSERT_EQ(scaled.size(), 64u);
  for (std::size_t i = 0; i < 64; ++i) {
    // A pair's wavelength in positions, 2 pi theta^(2i/128).
    const double wavelength = 2 * std::numbers::pi * std::pow(500000.0, static_cast<double>(i) / 64);
    EXPECT_NEAR(plain[i] * wavelength, 2 * std::numbers::pi, 1e-12);
    if (wavelength < 8192.0 / 4) {
      EXPECT_EQ(scaled[i], plain[i]) << i;
    } else if (wavelength > 8192.0) {
      EXPECT_NEAR(scaled[i], plain[i] / 8, 1e-15 * plain[i]) << i;
    } else {
      const double smooth = (8192.0 / wavelength - 1) / 3;
      EXPECT_NEAR(scaled[i], (1 - smooth) * plain[i] / 8 + smooth * plain[i], 1e-12 * plain[i]) << i;
      EXPECT_GT(scaled[i], plain[i] / 8);
      EXPECT_LT(scaled[i], plain[i]);
    }
  }
  EXPECT_EQ(scaled[28], plain[28]);
  EXPECT_NE(scaled[29], plain[29]);
}

}  // namespace
}  // namespace penstock::testing
