// What the kernel tests share: every kernel's body in every instruction set that this processor has, streams
// with one to three threads, buffers with guards, and a comparison that says where and by how much it failed.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel.h"

namespace penstock::kernels {
template <class Signature>
using IsaBodies = std::array<std::add_pointer_t<Signature>, isa_count>;
}

// The declarations are read with another meaning: NAME_bodies holds the body for each set, null where it is
// not built.
#undef PENSTOCK_KERNEL
#undef PENSTOCK_LIBRARY_KERNEL
#define PENSTOCK_KERNEL(name, ...)                                   \
  namespace cpu::baseline {                                          \
  void name(Stream&, __VA_ARGS__);                                   \
  }                                                                  \
  namespace cpu::avx2 {                                              \
  __attribute__((weak)) void name(Stream&, __VA_ARGS__);             \
  }                                                                  \
  namespace cpu::avx512 {                                            \
  __attribute__((weak)) void name(Stream&, __VA_ARGS__);             \
  }                                                                  \
  extern const Kernel<void(Stream&, __VA_ARGS__)> name;              \
  inline const IsaBodies<void(Stream&, __VA_ARGS__)> name##_bodies { \
    &cpu::baseline::name, &cpu::avx2::name, &cpu::avx512::name       \
  }
#define PENSTOCK_LIBRARY_KERNEL(name, ...)              \
  namespace cpu {                                       \
  void name(Stream&, __VA_ARGS__);                      \
  }                                                     \
  extern const Kernel<void(Stream&, __VA_ARGS__)> name; \
  inline const IsaBodies<void(Stream&, __VA_ARGS__)> name##_bodies { &cpu::name, &cpu::name, &cpu::name }

#include "kernels/attention.h"
#include "kernels/cast.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/gemm.h"
#include "kernels/indexing.h"
#include "kernels/loss.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/reduce.h"
#include "kernels/reduction.h"
#include "kernels/rope.h"
#include "kernels/softmax.h"
#include "kernels/strided.h"
#include "kernels/swiglu.h"

namespace penstock::kernels::test {

inline constexpr double unit = 0x1p-24;  // half a unit in the last place of 1.0f: what one rounding may cost
inline constexpr float inf = std::numeric_limits<float>::infinity();
inline constexpr float nan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float sentinel = 1234.5f;

/// A stream with its own threads.
struct Run {
  explicit Run(int threads) : pool(threads), stream(Device{}, pool) {}
  ThreadPool pool;
  Stream stream;
};
inline Stream& stream_of(int threads) {
  static Run one(1), two(2), three(3);
  return threads == 1 ? one.stream : threads == 2 ? two.stream : three.stream;
}

/// Output memory: filled with NaN (or given values), with guards on both sides.
template <class T>
class Buffer {
 public:
  explicit Buffer(Index n, T value = std::numeric_limits<T>::quiet_NaN())
      : n_(n), memory_(static_cast<std::size_t>(n + 2 * guard), T(sentinel)) {
    for (Index i = 0; i < n; ++i) memory_[static_cast<std::size_t>(guard + i)] = value;
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(static_cast<Index>(values.size())) {
    std::copy(values.begin(), values.end(), memory_.begin() + guard);
  }
  operator Out() { return {memory_.data() + guard, dtype_of<T>}; }
  T* data() { return memory_.data() + guard; }
  /// The values; fails where a guard was touched.
  std::vector<T> values() const {
    for (Index i = 0; i < guard; ++i) {
      EXPECT_EQ(memory_[static_cast<std::size_t>(i)], T(sentinel)) << "wrote before the buffer";
      EXPECT_EQ(memory_[static_cast<std::size_t>(guard + n_ + i)], T(sentinel)) << "wrote behind the buffer";
    }
    return {memory_.begin() + guard, memory_.end() - guard};
  }

 private:
  static constexpr Index guard = 33;
  Index n_;
  std::vector<T> memory_;
};

template <class T>
In in(const std::vector<T>& values) {
  return {values.data(), dtype_of<T>};
}

inline std::vector<float> random_floats(Index n, unsigned seed, double mean = 0, double deviation = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) v = static_cast<float>(normal(engine));
  return values;
}
inline std::vector<std::int32_t> random_ints(Index n, unsigned seed, int low, int high) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int> uniform(low, high);
  std::vector<std::int32_t> values(static_cast<std::size_t>(n));
  for (std::int32_t& v : values) v = uniform(engine);
  return values;
}
/// fp32 values as bf16, and back.
inline std::vector<bf16> narrow(const std::vector<float>& v) {
  std::vector<bf16> result;
  for (const float x : v) result.emplace_back(x);
  return result;
}
inline std::vector<float> widen(const std::vector<bf16>& v) {
  std::vector<float> result;
  for (const bf16 x : v) result.push_back(static_cast<float>(x));
  return result;
}
/// fp32 values that bf16 holds exactly.
inline std::vector<float> rounded(const std::vector<float>& v) { return widen(narrow(v)); }

inline std::vector<double> to_double(const std::vector<float>& v) { return {v.begin(), v.end()}; }

inline bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// Fails unless |actual - expected| <= absolute + relative |expected| everywhere; NaN only equals NaN,
/// infinities themselves.
inline void expect_close(const std::vector<float>& actual, const std::vector<double>& expected,
                         double relative, double absolute, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const auto a = static_cast<double>(actual[i]);
    const double e = expected[i];
    if (std::isnan(e) ? std::isnan(a) : a == e) continue;
    const double error = std::abs(a - e);
    if (!(error <= absolute + relative * std::abs(e))) {
      ADD_FAILURE() << what << ": element " << i << " of " << actual.size() << " is " << a << ", expected "
                    << e << ", error " << error << " > " << absolute + relative * std::abs(e);
      return;
    }
  }
}

inline void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b,
                             const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!same_bits(a[i], b[i])) {
      ADD_FAILURE() << what << ": element " << i << " is " << a[i] << " and " << b[i];
      return;
    }
}

inline const char* name_of_isa(int isa) { return isa == 0 ? "baseline" : isa == 1 ? "avx2" : "avx512"; }

/// Sets that this processor and build have.
inline int isas() { return static_cast<int>(active_isa()) + 1; }

using Results = std::vector<std::vector<float>>;

/// Calls run(stream, isa) -> Results with every instruction set and with one, two and three threads, several
/// times: equal bits within a set. Then check(results, name of the set).
template <class RunFunction, class Check>
void everywhere(RunFunction&& run, Check&& check, int repeats = 2) {
  for (int isa = 0; isa < isas(); ++isa) {
    const Results first = run(stream_of(1), isa);
    for (int threads = 1; threads <= 3; ++threads)
      for (int repeat = 0; repeat < repeats; ++repeat) {
        const Results again = run(stream_of(threads), isa);
        ASSERT_EQ(first.size(), again.size());
        for (std::size_t i = 0; i < first.size(); ++i)
          expect_same_bits(first[i], again[i],
                           std::string(name_of_isa(isa)) + " with " + std::to_string(threads) +
                               " threads, output " + std::to_string(i));
      }
    check(first, std::string(name_of_isa(isa)));
  }
}

/// The sizes at which vector code goes wrong.
inline const std::vector<Index>& odd_sizes() {
  static const std::vector<Index> sizes{1, 2, 3, 15, 16, 17, 31, 32, 33, 64, 65, 127, 1023, 1025};
  return sizes;
}

/// The message of the E that `call` throws; "" and a failure when it throws none.
template <class E, class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const E& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace penstock::kernels::test
