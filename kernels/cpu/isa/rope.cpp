// Rotary position embedding, see kernels/rope.h.
#include "kernels/rope.h"

#include "kernels/cpu/isa/lanes.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

constexpr Index largest_half = RopeShape::largest_head / 2;

/// cos and sin of an angle to fp32 (an error of 1e-9 at 10^7, of 2.4e-7 at 2^31). Cody and Waite ("Software
/// Manual for the Elementary Functions", 1980, chapter 8): x = n pi/2 + r with pi/2 in three parts, |r| <=
/// pi/4, then the series of sine and cosine to r^13 and r^14 (error below 1e-14), and by n modulo 4 which is
/// which.
PENSTOCK_INLINE void turn_of(double angle, float& cosine, float& sine) {
  constexpr double shifter = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  const double shifted = angle * 0.63661977236758134308 + shifter;
  const double n = shifted - shifter;
  const auto quadrant = static_cast<std::uint64_t>(__builtin_bit_cast(std::int64_t, shifted)) & 3u;
  double r = angle - n * 1.57079632673412561417;
  r -= n * 6.07710050630396597660e-11;
  r -= n * 2.02226624879595063154e-21;
  const double z = r * r;
  double s = 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  s = s * z * r + r;
  double c = -1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = c * z - 0.5;
  c = c * z + 1.0;
  const bool swap = (quadrant & 1u) != 0;
  const double ca = swap ? s : c, sa = swap ? c : s;
  cosine = static_cast<float>(quadrant == 1 || quadrant == 2 ? -ca : ca);
  sine = static_cast<float>(quadrant >= 2 ? -sa : sa);
}

}  // namespace

void rope(Stream& stream, const RopeShape& shape, bool inverse, In x, In positions, Out y) {
  for_storage(x.dtype, [&]<class T>() {
    const T* px = values<T>(x);
    const std::int32_t* ppositions = values<std::int32_t>(positions);
    T* py = values<T>(y);
    const Index size = shape.head_size, half = size / 2, cols = shape.heads * size;
    stream.pool().parallel_ranges(shape.rows, rows_per_task(cols), [&](Index begin, Index end) {
      alignas(64) float cosine[largest_half], sine[largest_half];
      for (Index row = begin; row < end; ++row) {
        const double position = ppositions[row];
        for (Index i = 0; i < half; ++i) turn_of(position * shape.frequency[i], cosine[i], sine[i]);
        if (inverse)
          for (Index i = 0; i < half; ++i) sine[i] = -sine[i];
        for (Index h = 0; h < shape.heads; ++h) {
          const T* in = px + row * cols + h * size;
          T* out = py + row * cols + h * size;
          for_lanes(
              half, [&](Index i, Index count) __attribute__((always_inline)) {
                const Floats a = load(in + i, count), b = load(in + half + i, count);
                const Floats c = load(cosine + i, count), s = load(sine + i, count);
                store(out + i, multiply_add(a, c, -(b * s)), count);
                store(out + half + i, multiply_add(b, c, a * s), count);
              });
        }
      }
    });
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
