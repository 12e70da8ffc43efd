// Rotary position embedding.
#pragma once

#include "kernels/kernel.h"

namespace penstock::kernels {

/// x (rows, heads, head_size): a row is one position of one sequence.
struct RopeShape {
  static constexpr Index largest_head = 256;

  Index rows = 0, heads = 0, head_size = 0;
  double frequency[largest_head / 2] = {};  ///< radians a position, of pair i; head_size / 2 are used
};

/// Turns each pair (x[i], x[i + head_size / 2]) of every head by positions[row] * frequency[i], or back where
/// `inverse`: (a, b) -> (a cos - b sin, b cos + a sin). positions (rows) int32. Angles are formed in double,
/// so that a large position costs no digits. Su et al., "RoFormer", 2021, section 3.2; pairs as in Hugging
/// Face's Llama. y may be x.
PENSTOCK_KERNEL(rope, const RopeShape& shape, bool inverse, In x, In positions, Out y);

}  // namespace penstock::kernels
