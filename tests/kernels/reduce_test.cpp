// Column sums and sums of squares.
#include "kernels/support.h"

namespace penstock::kernels::test {
namespace {

TEST(ColumnSum, AgainstDouble) {
  for (const Index rows : {Index{0}, Index{1}, Index{3}, Index{1023}})
    for (const Index cols : odd_sizes()) {
      const auto dy = random_floats(rows * cols, 31, 0.1, 1);
      std::vector<double> expected(static_cast<std::size_t>(cols), 0.0), added(expected.size(), 0.5);
      for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < cols; ++j) {
          expected[static_cast<std::size_t>(j)] +=
              static_cast<double>(dy[static_cast<std::size_t>(i * cols + j)]);
          added[static_cast<std::size_t>(j)] +=
              static_cast<double>(dy[static_cast<std::size_t>(i * cols + j)]);
        }
      everywhere(
          [&](Stream& stream, int isa) {
            Buffer<float> sum(cols), onto(cols, 0.5f);
            column_sum_bodies[static_cast<std::size_t>(isa)](stream, rows, cols, false, in(dy), sum);
            column_sum_bodies[static_cast<std::size_t>(isa)](stream, rows, cols, true, in(dy), onto);
            return Results{sum.values(), onto.values()};
          },
          [&](const Results& r, const std::string& isa) {
            expect_close(r[0], expected, unit, 1e-12, isa + " column_sum");  // summed in double, rounded once
            expect_close(r[1], added, unit, 2 * unit * 130, isa + " column_sum accumulate");
          },
          1);
    }
}

// Known fault 19: two calls that accumulate equal one over all rows.
TEST(ColumnSum, TwoHalvesAreTheWhole) {
  const std::vector<float> dy{1, 2, 3, 4, 5, 6, 7, 8};
  Buffer<float> whole(2), halves(2);
  column_sum(stream_of(1), 4, 2, false, in(dy), whole);
  column_sum(stream_of(1), 2, 2, false, In(dy.data(), DType::f32), halves);
  column_sum(stream_of(1), 2, 2, true, In(dy.data() + 4, DType::f32), halves);
  EXPECT_EQ(whole.values(), (std::vector<float>{16, 20}));
  EXPECT_EQ(halves.values(), whole.values());
}

double sum_of_squares_of(Stream& stream, int isa, const std::vector<float>& x) {
  const auto n = static_cast<Index>(x.size());
  Buffer<double> workspace(sum_of_squares_workspace(n)), result(1);
  sum_of_squares_bodies[static_cast<std::size_t>(isa)](stream, n, in(x), workspace, result);
  workspace.values();
  return result.values()[0];
}

TEST(SumOfSquares, SizesAndThreads) {
  std::vector<Index> sizes{0, 16384, 16385, 100001};
  sizes.insert(sizes.end(), odd_sizes().begin(), odd_sizes().end());
  for (const Index n : sizes) {
    const auto x = random_floats(n, 32);
    long double expected = 0;
    for (const float v : x) expected += static_cast<long double>(v) * static_cast<long double>(v);
    for (int isa = 0; isa < isas(); ++isa) {
      const double one = sum_of_squares_of(stream_of(1), isa, x);
      EXPECT_NEAR(one, static_cast<double>(expected), 1e-13 * static_cast<double>(expected)) << n;
      for (int threads = 2; threads <= 3; ++threads)
        EXPECT_EQ(one, sum_of_squares_of(stream_of(threads), isa, x)) << n;
    }
  }
}

TEST(SumOfSquares, ExtremesAndWhatIsNotFinite) {
  for (int isa = 0; isa < isas(); ++isa) {
    // 1e30 squared overflows fp32, not double; 1e-30 squared underflows there.
    EXPECT_NEAR(sum_of_squares_of(stream_of(1), isa, std::vector<float>(1000, 1e30f)), 1e63, 1e57);
    EXPECT_NEAR(sum_of_squares_of(stream_of(1), isa, std::vector<float>(1000, 1e-30f)), 1e-57, 1e-63);
    std::vector<float> x(40000, 1.0f);
    x[39999] = nan;
    EXPECT_TRUE(std::isnan(sum_of_squares_of(stream_of(2), isa, x)));
    x[39999] = -inf;
    EXPECT_TRUE(std::isinf(sum_of_squares_of(stream_of(2), isa, x)));
  }
}

}  // namespace
}  // namespace penstock::kernels::test
