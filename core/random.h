// Uniform and normal numbers by global element index: any slice drawn alone equals that slice of the whole,
// so a rank that holds a piece of a parameter draws just its piece.
#pragma once

#include <cstdint>

#include "core/philox.h"

namespace penstock {

/// Two independent standard normals from the two words of a pair. Box and Muller, "A note on the generation
/// of random normal deviates", Ann. Math. Stat. 29 (1958), in double; u1 = (first + 1) / 2^32 lies in (0, 1],
/// so the largest magnitude is sqrt(64 ln 2) = 6.66.
struct NormalPair {
  double first;
  double second;
};
NormalPair normal_pair(std::uint32_t first, std::uint32_t second);

/// out[i] = low + (high - low) u for elements first .. first + count - 1 of (key, step, sequence), u in [0,
/// 1) with 24 bits. Throws ValueError for a negative `first` or `count`.
void fill_uniform(RandomKey key, std::uint32_t step, std::uint32_t sequence, std::int64_t first,
                  std::int64_t count, float low, float high, float* out);

/// Normal numbers for elements first .. first + count - 1 of (key, step, sequence). Words 0 and 1 of a block
/// make its elements 0 and 1, words 2 and 3 the other two; rounded to float once, after scaling in double.
/// Throws ValueError for a negative `first` or `count`.
void fill_normal(RandomKey key, std::uint32_t step, std::uint32_t sequence, std::int64_t first,
                 std::int64_t count, double mean, double deviation, float* out);

/// An integer in [0, bound) from a 64-bit random word: the high half of word x bound (Lemire, "Fast random
/// integer generation in an interval", 2019, without the rejection; the bias is below bound / 2^64). 0 for
/// bound 0.
std::uint64_t random_below(std::uint64_t word, std::uint64_t bound);

}  // namespace penstock
