// Matrix products against a triple loop in double.
#include "kernels/reference/reference.h"
#include "kernels/support.h"

namespace penstock::kernels::test {
namespace {

std::string text(const GemmShape& s) {
  return "M " + std::to_string(s.m) + " N " + std::to_string(s.n) + " K " + std::to_string(s.k) +
         (s.transpose_a ? " A^T" : "") + (s.transpose_b ? " B^T" : "") + (s.accumulate ? " accumulate" : "");
}

/// One product with one to three threads: equal bits, and the triple loop's values.
void check_gemm(const GemmShape& s, bool with_bias) {
  const auto a = random_floats(s.m * s.k, 21), b = random_floats(s.k * s.n, 22),
             bias = random_floats(s.n, 23);
  const auto start = random_floats(s.m * s.n, 24);
  std::vector<double> expected = to_double(start);
  reference::gemm(s.m, s.n, s.k, s.transpose_a, s.transpose_b, to_double(a), to_double(b),
                  with_bias ? to_double(bias) : std::vector<double>{}, s.accumulate, expected);
  std::vector<float> first;
  for (int threads = 1; threads <= 3; ++threads) {
    Buffer<float> c = s.accumulate ? Buffer<float>(start) : Buffer<float>(s.m * s.n);
    gemm(stream_of(threads), s, in(a), in(b), with_bias ? in(bias) : In{}, {}, c);
    if (threads == 1) {
      first = c.values();
      // Products of unit normals: partial sums grow as sqrt(K), and so do their roundings' random walk.
      const double k = static_cast<double>(s.k);
      expect_close(first, expected, 2 * unit, 3 * unit * (k + 2) + 2 * unit, text(s));
    } else {
      expect_same_bits(first, c.values(), text(s) + " with " + std::to_string(threads) + " threads");
    }
  }
}

TEST(Gemm, OddSizesAllTransposes) {
  for (const auto& [m, n, k] : std::vector<std::array<Index, 3>>{
           {1, 1, 1}, {3, 1, 31}, {1, 33, 7}, {31, 32, 33}, {65, 17, 3}, {17, 129, 64}, {200, 300, 50}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const bool accumulate : {false, true})
          for (const bool bias : {false, true}) check_gemm({m, n, k, ta, tb, accumulate}, bias);
}

TEST(Gemm, SeveralTiles) {
  check_gemm({1030, 40, 96, false, true, false}, true);
  check_gemm({40, 1600, 96, true, false, true}, false);
  check_gemm({513, 770, 65, false, false, false}, true);
}

TEST(Gemm, EmptySizes) {
  const std::vector<float> none, bias{1, 2, 3};
  Buffer<float> c(6), kept(std::vector<float>{1, 2, 3, 4, 5, 6}), nothing(0);
  gemm(stream_of(2), {2, 3, 0}, in(none), in(none), in(bias), {}, c);
  EXPECT_EQ(c.values(), (std::vector<float>{1, 2, 3, 1, 2, 3}));
  gemm(stream_of(2), {2, 3, 0}, in(none), in(none), In{}, {}, c);
  EXPECT_EQ(c.values(), std::vector<float>(6, 0.0f));
  gemm(stream_of(2), {2, 3, 0, false, false, true}, in(none), in(none), In{}, {}, kept);
  EXPECT_EQ(kept.values(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  gemm(stream_of(2), {0, 3, 4}, in(none), in(none), In{}, {}, nothing);
  gemm(stream_of(2), {3, 0, 4}, in(none), in(none), In{}, {}, nothing);
}

// The same call gives the same bits, also right after others (known fault 8).
TEST(Gemm, RepeatedTwentyTimes) {
  const GemmShape s{257, 384, 128, false, true};
  const auto a = random_floats(s.m * s.k, 25), b = random_floats(s.k * s.n, 26);
  std::vector<float> first;
  for (int i = 0; i < 20; ++i) {
    Buffer<float> c(s.m * s.n);
    gemm(stream_of(1 + i % 3), s, in(a), in(b), In{}, {}, c);
    if (i == 0) first = c.values();
    expect_same_bits(first, c.values(), "repetition " + std::to_string(i));
  }
}

TEST(Gemm, NanAndInfinityReachTheResult) {
  std::vector<float> a(16 * 16, 1.0f), b(16 * 16, 1.0f);
  a[0] = nan;
  b[5] = inf;  // row 0, column 5
  Buffer<float> c(16 * 16);
  gemm(stream_of(1), {16, 16, 16}, in(a), in(b), In{}, {}, c);
  for (std::size_t j = 0; j < 16; ++j) EXPECT_TRUE(std::isnan(c.values()[j]));
  for (std::size_t i = 1; i < 16; ++i) EXPECT_EQ(c.values()[16 * i + 5], inf);
  EXPECT_EQ(c.values()[17], 16.0f);
}

TEST(Gemm, NegativeSizesAreRefused) {
  Buffer<float> c(1);
  const std::vector<float> one{1};
  const auto message = message_of<ShapeError>([&] {
    gemm(stream_of(1), {-1, 2, 3}, in(one), in(one), In{}, {}, c);
  });
  EXPECT_NE(message.find("-1"), std::string::npos) << message;
}

/// bf16 operands: their exact products, summed in fp32, and one rounding where the result is bf16 too. K of
/// 1100 takes three panels.
void check_bf16(const GemmShape& s, bool with_bias, bool narrow_result) {
  const auto a = rounded(random_floats(s.m * s.k, 31)), b = rounded(random_floats(s.k * s.n, 32)),
             bias = rounded(random_floats(s.n, 33));
  const auto start = random_floats(s.m * s.n, 34);
  std::vector<double> expected = to_double(start);
  reference::gemm(s.m, s.n, s.k, s.transpose_a, s.transpose_b, to_double(a), to_double(b),
                  with_bias ? to_double(bias) : std::vector<double>{}, s.accumulate, expected);
  const auto na = narrow(a), nb = narrow(b), nbias = narrow(bias);
  const DType result = narrow_result ? DType::bf16 : DType::f32;
  std::vector<float> first;
  for (int threads = 1; threads <= 3; ++threads) {
    Buffer<float> workspace(gemm_workspace(s, DType::bf16, result, threads));
    Buffer<float> wide = s.accumulate ? Buffer<float>(start) : Buffer<float>(s.m * s.n);
    std::vector<bf16> short_c(static_cast<std::size_t>(s.m * s.n));
    gemm(stream_of(threads), s, in(na), in(nb), with_bias ? in(nbias) : In{}, workspace,
         narrow_result ? Out(short_c.data(), DType::bf16) : Out(wide));
    const std::vector<float> c = narrow_result ? widen(short_c) : wide.values();
    if (threads == 1) {
      first = c;
      const double k = static_cast<double>(s.k), rounding = narrow_result ? 0x1p-8 : 0;
      expect_close(c, expected, rounding + 2 * unit, 3 * unit * (k + 2) + 2 * unit, text(s));
    } else {
      expect_same_bits(first, c, text(s) + " with " + std::to_string(threads) + " threads");
    }
  }
}

TEST(GemmBf16, AllTransposesIntoBothTypes) {
  for (const auto& [m, n, k] :
       std::vector<std::array<Index, 3>>{{1, 1, 1}, {3, 33, 31}, {65, 17, 3}, {200, 300, 50}, {4, 5, 0}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const bool bias : {false, true}) {
          check_bf16({m, n, k, ta, tb, false}, bias, false);
          check_bf16({m, n, k, ta, tb, false}, bias, true);
          check_bf16({m, n, k, ta, tb, true}, bias, false);
        }
}

TEST(GemmBf16, SeveralTilesAndPanels) {
  for (const bool narrow_result : {false, true}) {
    check_bf16({530, 40, 1100, false, true, false}, true, narrow_result);
    check_bf16({40, 800, 1100, true, false, false}, false, narrow_result);
  }
  check_bf16({40, 800, 1100, true, false, true}, false, false);
}

TEST(GemmBf16, WhatDoesNotFitIsRefused) {
  const std::vector<float> one{1};
  const std::vector<bf16> narrow_one(1);
  std::vector<bf16> narrow_memory(1);
  Buffer<float> c(1), workspace(4096);
  const Out narrow_c(narrow_memory.data(), DType::bf16);
  const auto message = [&](const GemmShape& s, In a, In b, Out result) {
    return message_of<ValueError>([&] { gemm(stream_of(1), s, a, b, {}, workspace, result); });
  };
  EXPECT_NE(message({1, 1, 1}, in(one), in(narrow_one), c).find("fp32 times bf16"), std::string::npos);
  EXPECT_NE(message({1, 1, 1}, in(one), in(one), narrow_c).find("a result of bf16 for fp32"),
            std::string::npos);
  EXPECT_NE(
      message({1, 1, 1, false, false, true}, in(narrow_one), in(narrow_one), narrow_c).find("accumulated"),
      std::string::npos);
}

/// Every matrix of a batch has the bits of its own product; A repeats along the second batch dimension, B
/// along the first.
TEST(GemmBatched, EqualsTheProductsOneByOne) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const auto& [m, n, k] :
           std::vector<std::array<Index, 3>>{{1, 1, 1}, {5, 3, 7}, {33, 17, 64}, {200, 300, 50}, {4, 5, 0}}) {
        const Index batch_a = 2, batch_b = 3;
        const GemmShape shape{m, n, k, ta, tb, false};
        GemmBatch batch;
        batch.rank = 2;
        batch.sizes[0] = batch_a;
        batch.sizes[1] = batch_b;
        batch.stride_a[0] = m * k;
        batch.stride_b[1] = k * n;
        const auto a = random_floats(batch_a * m * k, 25), b = random_floats(batch_b * k * n, 26);
        for (int threads = 1; threads <= 3; ++threads) {
          Buffer<float> c(batch_a * batch_b * m * n);
          gemm_batched(stream_of(threads), shape, batch, in(a), in(b), {}, c);
          const std::vector<float> all = c.values();
          for (Index i = 0; i < batch_a * batch_b; ++i) {
            Buffer<float> one(m * n);
            gemm(stream_of(1), shape, {a.data() + i / batch_b * m * k, DType::f32},
                 {b.data() + i % batch_b * k * n, DType::f32}, {}, {}, one);
            expect_same_bits({all.begin() + i * m * n, all.begin() + (i + 1) * m * n}, one.values(),
                             text(shape));
          }
        }
      }
}

TEST(GemmBatched, NothingToDo) {
  const std::vector<float> none;
  Buffer<float> nothing(0);
  GemmBatch batch;
  batch.rank = 1;
  gemm_batched(stream_of(1), {2, 3, 4}, batch, in(none), in(none), {}, nothing);
  nothing.values();
  message_of<ShapeError>([&] {
    gemm_batched(stream_of(1), {2, -3, 4}, batch, in(none), in(none), {}, nothing);
  });
}

}  // namespace
}  // namespace penstock::kernels::test
