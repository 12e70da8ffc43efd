// Counter-based random numbers: Philox4x32-10, and the way Penstock addresses it. A random word is a pure
// function of (seed, purpose, full name, step, sequence, element), so no cut of a run into ranks, threads or
// micro-batches changes what is drawn. Plain arithmetic only: the same code runs in device kernels.
//
// The counter of a block of four words is
//   c0, c1  element / 4, low and high half (the element within the sequence, or within the whole parameter)
//   c2      number of the sequence within the step's global batch (0 where there is none)
//   c3      step (0 where there is none)
// and word element % 4 of the block belongs to the element.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/host_device.h"

namespace penstock {

/// What a random number is for: part of its key, so that no two uses share numbers. The values are part of
/// the results of a run and never change. `data` is for sources that make their samples up.
enum class RandomPurpose : std::uint32_t {
  init = 1,
  dropout = 2,
  shuffle = 3,
  sample = 4,
  test = 5,
  data = 6
};

/// The four words that Philox makes of one counter.
struct PhiloxBlock {
  std::uint32_t word[4];
};

/// Philox4x32 with ten rounds. Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
/// 2011, section 3.3 and the constants of its reference implementation (Random123). `k0` and `k1` are the
/// key's words.
PENSTOCK_HD constexpr PhiloxBlock philox4x32_10(std::uint32_t c0, std::uint32_t c1, std::uint32_t c2,
                                                std::uint32_t c3, std::uint32_t k0, std::uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * c0;
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * c2;
    const auto high0 = static_cast<std::uint32_t>(product0 >> 32);
    const auto high1 = static_cast<std::uint32_t>(product1 >> 32);
    c0 = high1 ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(product1);
    c2 = high0 ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(product0);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

/// A 64-bit Philox key; its low half is the first key word. Made by `random_key`.
struct RandomKey {
  std::uint64_t value = 0;
  friend constexpr bool operator==(const RandomKey&, const RandomKey&) = default;
};

/// The key for a seed, a purpose and the full name of a parameter or layer: FNV-1a (64 bits; Fowler, Noll,
/// Vo) over the seed's eight bytes and the purpose's four, least significant first, and the bytes of the
/// name; then the 64-bit finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014, figure 16), which spreads
/// the last byte over all bits. The definition is part of the results of a run and never changes.
constexpr RandomKey random_key(std::uint64_t seed, RandomPurpose purpose, std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  const auto absorb = [&hash](std::uint64_t byte) { hash = (hash ^ (byte & 0xFFU)) * 0x100000001B3ULL; };
  for (int shift = 0; shift < 64; shift += 8) absorb(seed >> shift);
  for (int shift = 0; shift < 32; shift += 8) absorb(static_cast<std::uint32_t>(purpose) >> shift);
  for (const char c : name) absorb(static_cast<unsigned char>(c));
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBULL;
  return {hash ^ (hash >> 31)};
}

/// Block number `block` (= element / 4) of (key, step, sequence).
PENSTOCK_HD constexpr PhiloxBlock philox_block(RandomKey key, std::uint32_t step, std::uint32_t sequence,
                                               std::uint64_t block) {
  return philox4x32_10(static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), sequence,
                       step, static_cast<std::uint32_t>(key.value),
                       static_cast<std::uint32_t>(key.value >> 32));
}

/// The random word of one element: word element % 4 of its block. A loop over neighbouring elements is four
/// times cheaper with `philox_block`.
PENSTOCK_HD constexpr std::uint32_t philox_element(RandomKey key, std::uint32_t step, std::uint32_t sequence,
                                                   std::uint64_t element) {
  return philox_block(key, step, sequence, element / 4).word[element % 4];
}

/// A float in [0, 1), a multiple of 2^-24, from the high 24 bits of a word.
PENSTOCK_HD constexpr float uniform_float(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 5.9604644775390625e-8F;
}

/// A double in [0, 1), a multiple of 2^-53, from the high 53 bits of the 64-bit word (high, low).
PENSTOCK_HD constexpr double uniform_double(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32) | low;
  return static_cast<double>(bits >> 11) * 1.1102230246251565404e-16;
}

}  // namespace penstock
