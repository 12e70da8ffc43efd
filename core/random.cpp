// Uniform and normal numbers by global element index. Blocks of four are made once and cut at the ends of the
// slice.
#include "core/random.h"

#include <cmath>
#include <numbers>

#include "core/error.h"

namespace penstock {
namespace {

// Calls emit(position in the slice, element's place in its block, block) for every element of the slice.
template <class Convert>
void fill_blocks(RandomKey key, std::uint32_t step, std::uint32_t sequence, std::int64_t first,
                 std::int64_t count, float* out, Convert convert) {
  require<ValueError>(first >= 0 && count >= 0, "random slice: first {} and count {} must not be negative",
                      first, count);
  float values[4];
  for (std::int64_t done = 0; done < count;) {
    const auto element = static_cast<std::uint64_t>(first) + static_cast<std::uint64_t>(done);
    convert(philox_block(key, step, sequence, element / 4), values);
    for (auto place = element % 4; place < 4 && done < count; ++place) out[done++] = values[place];
  }
}

}  // namespace

NormalPair normal_pair(std::uint32_t first, std::uint32_t second) {
  const double u1 = (static_cast<double>(first) + 1.0) * 0x1p-32;
  const double angle = 2.0 * std::numbers::pi * (static_cast<double>(second) * 0x1p-32);
  const double radius = std::sqrt(-2.0 * std::log(u1));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

void fill_uniform(RandomKey key, std::uint32_t step, std::uint32_t sequence, std::int64_t first,
                  std::int64_t count, float low, float high, float* out) {
  fill_blocks(key, step, sequence, first, count, out, [=](const PhiloxBlock& block, float* values) {
    for (int i = 0; i < 4; ++i) values[i] = low + (high - low) * uniform_float(block.word[i]);
  });
}

void fill_normal(RandomKey key, std::uint32_t step, std::uint32_t sequence, std::int64_t first,
                 std::int64_t count, double mean, double deviation, float* out) {
  fill_blocks(key, step, sequence, first, count, out, [=](const PhiloxBlock& block, float* values) {
    for (int pair = 0; pair < 4; pair += 2) {
      const NormalPair normal = normal_pair(block.word[pair], block.word[pair + 1]);
      values[pair] = static_cast<float>(mean + deviation * normal.first);
      values[pair + 1] = static_cast<float>(mean + deviation * normal.second);
    }
  });
}

std::uint64_t random_below(std::uint64_t word, std::uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((Wide{word} * Wide{bound}) >> 64);
}

}  // namespace penstock
