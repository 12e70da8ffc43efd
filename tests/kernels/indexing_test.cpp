// Gather, its gradient, and the casts, against loops over elements.
#include "core/dtype.h"
#include "kernels/support.h"

namespace penstock::kernels::test {
namespace {

IndexShape list(Index outer, Index rows, Index count, Index inner) {
  return {outer, rows, count, inner, 0, 1, 0};
}
IndexShape own(Index outer, Index rows, Index count, Index inner) {
  return {outer, rows, count, inner, count * inner, inner, 1};
}

Index entries(const IndexShape& s) { return s.index_inner == 0 ? s.count : s.outer * s.count * s.inner; }

template <class I>
void check(const IndexShape& s) {
  std::vector<I> index;
  for (Index i = 0; i < entries(s); ++i) index.push_back(static_cast<I>((i * 7919 + i / 3) % s.rows));
  const auto x = random_floats(s.outer * s.rows * s.inner, 91),
             dy = random_floats(s.outer * s.count * s.inner, 92);
  std::vector<float> picked;
  std::vector<float> sum(x.size(), 0.0f), onto(x.size(), 0.5f);  // the same order of additions: equal bits
  for (Index o = 0; o < s.outer; ++o)
    for (Index k = 0; k < s.count; ++k)
      for (Index i = 0; i < s.inner; ++i) {
        const I row =
            index[static_cast<std::size_t>(s.index_inner == 0 ? k : (o * s.count + k) * s.inner + i)];
        const auto from = static_cast<std::size_t>((o * s.rows + static_cast<Index>(row)) * s.inner + i);
        picked.push_back(x[from]);
        sum[from] += dy[picked.size() - 1];
        onto[from] += dy[picked.size() - 1];
      }
  everywhere(
      [&](Stream& stream, int isa) {
        const auto set = static_cast<std::size_t>(isa);
        Buffer<float> y(static_cast<Index>(picked.size())), dx(static_cast<Index>(x.size())),
            added(static_cast<Index>(x.size()), 0.5f);
        gather_bodies[set](stream, s, in(index), in(x), y);
        scatter_add_bodies[set](stream, s, false, in(index), in(dy), dx);
        scatter_add_bodies[set](stream, s, true, in(index), in(dy), added);
        return Results{y.values(), dx.values(), added.values()};
      },
      [&](const Results& r, const std::string& isa) {
        expect_same_bits(r[0], picked, isa + " gather");
        expect_same_bits(r[1], sum, isa + " scatter_add");
        expect_same_bits(r[2], onto, isa + " scatter_add accumulate");
      });
}

TEST(Indexing, ListsAndIndicesOfTheirOwn) {
  for (const auto& [outer, rows, count, inner] : std::vector<std::array<Index, 4>>{{1, 1, 1, 1},
                                                                                   {1, 6, 15, 1},
                                                                                   {3, 5, 4, 7},
                                                                                   {2, 50, 300, 130},
                                                                                   {4, 3, 0, 5},
                                                                                   {0, 3, 2, 5},
                                                                                   {2, 3, 4, 0},
                                                                                   {1, 2, 9, 65}}) {
    check<std::int32_t>(list(outer, rows, count, inner));
    check<std::int64_t>(list(outer, rows, count, inner));
    check<std::int32_t>(own(outer, rows, count, inner));
    check<std::int64_t>(own(outer, rows, count, inner));
  }
}

template <class T>
void check_width(const std::vector<T>& x, DType dtype) {
  const std::vector<std::int64_t> index{2, 0, 2};
  std::vector<T> y(3);
  for (int isa = 0; isa < isas(); ++isa) {
    gather_bodies[static_cast<std::size_t>(isa)](stream_of(1), list(1, 3, 3, 1), in(index), {x.data(), dtype},
                                                 {y.data(), dtype});
    EXPECT_EQ(y, (std::vector<T>{x[2], x[0], x[2]}));
  }
}

TEST(Indexing, GathersEveryDtype) {
  check_width<std::uint8_t>({1, 2, 3}, DType::u8);
  check_width<std::uint16_t>({1, 2, 3}, DType::bf16);
  check_width<std::uint16_t>({1, 2, 3}, DType::f16);
  check_width<std::int32_t>({1, 2, 3}, DType::i32);
  check_width<std::int64_t>({1, 2, 3}, DType::i64);
  check_width<double>({1, 2, 3}, DType::f64);
}

TEST(Indexing, RefusesAnIndexOutOfRange) {
  const std::vector<float> x(6);
  Buffer<float> y(2);
  for (const std::int32_t wrong : {3, -1}) {
    const std::vector<std::int32_t> index{0, wrong};
    const std::string expected = "index " + std::to_string(wrong) + " at place 1 is outside 0..2";
    EXPECT_NE(message_of<ValueError>([&] {
                gather(stream_of(1), list(1, 3, 2, 1), in(index), in(x), y);
              }).find(expected),
              std::string::npos);
    EXPECT_NE(message_of<ValueError>([&] {
                scatter_add(stream_of(1), own(1, 3, 2, 1), true, in(index), in(x), y);
              }).find(expected),
              std::string::npos);
  }
}

template <class From, class To>
std::vector<To> converted(const std::vector<From>& x, int isa) {
  std::vector<To> y(x.size());
  cast_bodies[static_cast<std::size_t>(isa)](stream_of(2), static_cast<Index>(x.size()), in(x),
                                             {y.data(), dtype_of<To>});
  return y;
}

TEST(Cast, FloatingTypesRoundToTheNearestEven) {
  std::vector<float> x = random_floats(40000, 93, 0, 100);
  for (const float v : {0.0f, -0.0f, inf, -inf, nan, 1.00390625f, 1.01171875f, 65504.0f, 65519.0f, 65520.0f,
                        1e-7f, 1e-8f, 3.4e38f, 1e-45f})
    x.push_back(v);
  for (int isa = 0; isa < isas(); ++isa) {
    const auto b = converted<float, bf16>(x, isa);
    const auto h = converted<float, f16>(x, isa);
    const auto back = converted<bf16, float>(b, isa);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(b[i].bits, bf16(x[i]).bits) << x[i];
      ASSERT_EQ(h[i].bits, f16(x[i]).bits) << x[i];
      ASSERT_TRUE(same_bits(back[i], static_cast<float>(b[i]))) << x[i];
    }
    // Ties: 1 + 2^-8 lies between 1 and 1 + 2^-7 and goes to 1; 1 + 3 x 2^-8 goes up to 1 + 2^-6.
    EXPECT_EQ((converted<float, bf16>({1.00390625f, 1.01171875f}, isa)[0].bits), (0x3f80));
    EXPECT_EQ((converted<float, bf16>({1.00390625f, 1.01171875f}, isa)[1].bits), (0x3f82));
  }
}

TEST(Cast, IntegersExactlyOrNotAtAll) {
  for (int isa = 0; isa < isas(); ++isa) {
    EXPECT_EQ((converted<float, std::int32_t>({-2147483648.0f, -0.0f, 16777216.0f, 2147483520.0f}, isa)),
              (std::vector<std::int32_t>{-2147483648, 0, 16777216, 2147483520}));
    EXPECT_EQ((converted<float, std::int64_t>({-9223372036854775808.0f, 4611686018427387904.0f}, isa)),
              (std::vector<std::int64_t>{INT64_MIN, 4611686018427387904}));
    EXPECT_EQ((converted<std::int64_t, std::int32_t>({-2147483648, 2147483647}, isa)),
              (std::vector<std::int32_t>{-2147483648, 2147483647}));
    EXPECT_EQ((converted<std::int32_t, std::uint8_t>({0, 255}, isa)), (std::vector<std::uint8_t>{0, 255}));
    EXPECT_EQ((converted<std::uint8_t, float>({0, 255}, isa)), (std::vector<float>{0, 255}));
    EXPECT_EQ((converted<std::int64_t, float>({16777217, -3}, isa)),
              (std::vector<float>{16777216.0f, -3.0f}));
    EXPECT_EQ((converted<std::int32_t, std::int64_t>({-7}, isa)), (std::vector<std::int64_t>{-7}));
    for (const float wrong : {0.5f, nan, inf, -inf, 2147483648.0f, -2147483904.0f})
      message_of<ValueError>([&] { converted<float, std::int32_t>({1, wrong}, isa); });
    for (const float wrong : {9223372036854775808.0f, -1e19f, nan})
      message_of<ValueError>([&] { converted<float, std::int64_t>({wrong}, isa); });
    for (const float wrong : {-1.0f, 256.0f})
      message_of<ValueError>([&] { converted<float, std::uint8_t>({wrong}, isa); });
    for (const std::int64_t wrong :
         {std::int64_t{2147483648}, std::int64_t{-2147483649}, INT64_MIN, INT64_MAX})
      message_of<ValueError>([&] { converted<std::int64_t, std::int32_t>({wrong}, isa); });
    for (const std::int32_t wrong : {-1, 256, INT32_MIN})
      message_of<ValueError>([&] { converted<std::int32_t, std::uint8_t>({wrong}, isa); });
    for (const std::int64_t wrong : {std::int64_t{256}, std::int64_t{-1}})
      message_of<ValueError>([&] { converted<std::int64_t, std::uint8_t>({wrong}, isa); });
  }
}

}  // namespace
}  // namespace penstock::kernels::test
