// Dropout with counter-based masks, see kernels/dropout.h.
#include "kernels/dropout.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/isa/lanes.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

// A vector of 64-bit lanes, each with one 32-bit word of a block: half as many blocks at a time as a vector
// has floats.
using Longs = std::uint64_t __attribute__((vector_size(PENSTOCK_VECTOR)));
constexpr Index blocks = lanes / 2;

/// Product of the low words of each lane.
PENSTOCK_INLINE Longs multiply_words(const Longs& a, const Longs& b) {
#if defined(__AVX512F__)
  return __builtin_bit_cast(
      Longs, _mm512_maskz_mul_epu32(0xFF, __builtin_bit_cast(__m512i, a), __builtin_bit_cast(__m512i, b)));
#elif defined(__AVX2__)
  return __builtin_bit_cast(Longs,
                            _mm256_mul_epu32(__builtin_bit_cast(__m256i, a), __builtin_bit_cast(__m256i, b)));
#elif defined(__SSE2__)
  return __builtin_bit_cast(Longs,
                            _mm_mul_epu32(__builtin_bit_cast(__m128i, a), __builtin_bit_cast(__m128i, b)));
#else
  return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu);
#endif
}

/// The words of blocks first, first + 1, ... into words (blocks, 4): philox4x32_10 of core/philox.h, several
/// at a time.
PENSTOCK_INLINE void draw_blocks(std::uint64_t key, std::uint32_t step, std::uint32_t sequence,
                                 std::uint64_t first, std::uint32_t* words) {
  Longs block;
  for (Index i = 0; i < blocks; ++i) block[i] = first + static_cast<std::uint64_t>(i);
  const Longs zero{};
  Longs c0 = block & 0xFFFFFFFFu, c1 = block >> 32, c2 = zero + sequence, c3 = zero + step;
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const Longs product0 = multiply_words(c0, zero + 0xD2511F53u);
    const Longs product1 = multiply_words(c2, zero + 0xCD9E8D57u);
    // Only low words matter to multiply_words; high ones are cut off where they would move down.
    c0 = (product1 >> 32) ^ c1 ^ (zero + k0);
    c1 = product1 & 0xFFFFFFFFu;
    c2 = (product0 >> 32) ^ c3 ^ (zero + k1);
    c3 = product0 & 0xFFFFFFFFu;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (Index i = 0; i < blocks; ++i) {
    words[4 * i] = static_cast<std::uint32_t>(c0[i]);
    words[4 * i + 1] = static_cast<std::uint32_t>(c1[i]);
    words[4 * i + 2] = static_cast<std::uint32_t>(c2[i]);
    words[4 * i + 3] = static_cast<std::uint32_t>(c3[i]);
  }
}

/// Elements begin..end-1 of a sequence; begin is a multiple of 4.
template <class T>
void drop_range(std::uint64_t key, std::uint32_t step, std::uint32_t sequence, float probability,
                float factor, Index begin, Index end, const T* x, T* y) {
  std::uint32_t words[4 * blocks];
  for (Index e = begin; e < end; e += 4 * blocks) {
    draw_blocks(key, step, sequence, static_cast<std::uint64_t>(e / 4), words);
    for (Index i = 0; i < 4 * blocks; i += lanes) {
      if (e + i >= end) break;
      const Index count = end - e - i < lanes ? end - e - i : lanes;
      Words high;
      std::memcpy(&high, words + i, sizeof high);
      const Floats uniform =
          __builtin_convertvector(__builtin_bit_cast(Ints, high >> 8), Floats) * splat(0x1p-24f);
      store(y + e + i,
            select(uniform >= splat(probability), load(x + e + i, count) * splat(factor), Floats{}), count);
    }
  }
}

}  // namespace

void dropout(Stream& stream, Index sequences, Index elements, float probability, std::uint64_t key,
             const StepState* state, In sequence_ids, In x, Out y) {
  for_storage(x.dtype, [&]<class T>() {
    if (!(probability >= 0.0f && probability < 1.0f)) throw_dropout_probability(probability);
    const std::int64_t* ids = values<std::int64_t>(sequence_ids);
    const T* px = values<T>(x);
    T* py = values<T>(y);
    const auto step = static_cast<std::uint32_t>(state->step);
    const float factor = 1.0f / (1.0f - probability);
    const Index pieces = div_up(elements, piece);
    stream.pool().parallel_for(sequences * pieces, [=](Index task) {
      const Index sequence = task / pieces;
      const Index begin = task % pieces * piece;
      const Index end = begin + piece < elements ? begin + piece : elements;
      drop_range(key, step, static_cast<std::uint32_t>(ids[sequence]), probability, factor, begin, end,
                 px + sequence * elements, py + sequence * elements);
    });
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
