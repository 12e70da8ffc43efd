// Rotary position embedding.
#pragma once

#include <vector>

#include "autograd/op.h"

namespace penstock::ops {

/// How the frequencies of a model that was trained on short sequences are stretched.
enum class RopeScaling : std::uint8_t {
  none,
  linear,  ///< all frequencies divided by `factor`
  llama3,  ///< slow ones divided by `factor`, fast ones kept, those between blended
};

struct RopeOptions {
  double theta = 10000;  ///< pair i of D/2 turns by theta^(-2i/D) radians a position, before scaling
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;
  /// llama3: a pair that turns less than `low_frequency` times over `original_positions` is slow, one that
  /// turns more than `high_frequency` times is fast.
  double low_frequency = 1, high_frequency = 4;
  Index original_positions = 8192;

  friend bool operator==(const RopeOptions&, const RopeOptions&) = default;
};

/// Radians a position of the pairs (i, i + D/2), i below D/2. Throws ValueError for options or a head size
/// (even, 2..256) that make no sense. llama3: Dubey et al., "The Llama 3 Herd of Models", 2024, as Hugging
/// Face's transformers computes it.
std::vector<double> rope_frequencies(Index head_size, const RopeOptions& options);

/// Turns the pairs (i, i + D/2) of every head by positions times frequency. x (B, T, heads D) or (B, T,
/// heads, D), positions (B, T) int32, of either sign. Its gradient turns back: only the positions are kept.
Variable rope(const Variable& x, const Variable& positions, Index head_size, const RopeOptions& options);

}  // namespace penstock::ops
