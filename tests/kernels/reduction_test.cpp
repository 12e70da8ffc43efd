// Reductions over a middle dimension, and the squared error, against plain loops in double.
#include "kernels/support.h"

namespace penstock::kernels::test {
namespace {

std::string text(const ReduceShape& s) {
  return std::to_string(s.outer) + " x " + std::to_string(s.count) + " x " + std::to_string(s.inner);
}

std::vector<ReduceShape> shapes() {
  std::vector<ReduceShape> all{{1, 0, 1},      {3, 0, 5},     {0, 4, 2},     {2, 4, 0},
                               {1, 100001, 1}, {3, 16385, 1}, {2, 16384, 1}, {1, 1023, 130},
                               {5, 7, 64},     {4, 9, 65},    {1000, 3, 1},  {300, 2, 3}};
  for (const Index n : odd_sizes()) {
    all.push_back({2, n, 1});
    all.push_back({2, 5, n});
    all.push_back({n, 3, 2});
  }
  return all;
}

TEST(ReduceSum, AgainstDoubleWithAndWithoutADivisor) {
  for (const ReduceShape& s : shapes()) {
    const auto x = random_floats(s.outer * s.count * s.inner, 71, 0.3, 1);
    std::vector<double> sums(static_cast<std::size_t>(s.outer * s.inner)), means;
    for (Index o = 0; o < s.outer; ++o)
      for (Index k = 0; k < s.count; ++k)
        for (Index i = 0; i < s.inner; ++i)
          sums[static_cast<std::size_t>(o * s.inner + i)] +=
              static_cast<double>(x[static_cast<std::size_t>((o * s.count + k) * s.inner + i)]);
    for (const double v : sums) means.push_back(v / 7);
    everywhere(
        [&](Stream& stream, int isa) {
          const auto set = static_cast<std::size_t>(isa);
          Buffer<float> y(s.outer * s.inner), mean(s.outer * s.inner);
          Buffer<double> workspace(reduce_sum_workspace(s));
          reduce_sum_bodies[set](stream, s, 1, in(x), workspace, y);
          reduce_sum_bodies[set](stream, s, 7, in(x), workspace, mean);
          workspace.values();
          return Results{y.values(), mean.values()};
        },
        [&](const Results& r, const std::string& isa) {
          expect_close(r[0], sums, unit, 1e-11, isa + " sum of " + text(s));  // in double, rounded once
          expect_close(r[1], means, unit, 1e-12, isa + " mean of " + text(s));
        });
  }
}

// Known fault 8: the same input, many times.
TEST(ReduceSum, SameBitsAHundredTimes) {
  for (const Index n : {Index{1}, Index{31}, Index{32}, Index{33}, Index{1023}, Index{1025}, Index{70000}}) {
    const auto x = random_floats(3 * n, 72);
    const ReduceShape s{3, n, 1};
    std::vector<float> first;
    for (int i = 0; i < 100; ++i) {
      Buffer<float> y(3);
      Buffer<double> workspace(reduce_sum_workspace(s));
      reduce_sum(stream_of(1 + i % 3), s, 1, in(x), workspace, y);
      if (i == 0) first = y.values();
      expect_same_bits(first, y.values(), std::to_string(n));
    }
  }
}

TEST(ReduceMax, AgainstAPlainLoop) {
  for (const ReduceShape& s : shapes()) {
    if (s.count == 0) continue;
    const auto x = random_floats(s.outer * s.count * s.inner, 73, -3, 1);
    std::vector<double> top(static_cast<std::size_t>(s.outer * s.inner), -1e30);
    for (Index o = 0; o < s.outer; ++o)
      for (Index k = 0; k < s.count; ++k)
        for (Index i = 0; i < s.inner; ++i) {
          double& to = top[static_cast<std::size_t>(o * s.inner + i)];
          to =
              std::max(to, static_cast<double>(x[static_cast<std::size_t>((o * s.count + k) * s.inner + i)]));
        }
    everywhere(
        [&](Stream& stream, int isa) {
          Buffer<float> y(s.outer * s.inner);
          reduce_max_bodies[static_cast<std::size_t>(isa)](stream, s, in(x), y);
          return Results{y.values()};
        },
        [&](const Results& r, const std::string& isa) {
          expect_close(r[0], top, 0, 0, isa + " max of " + text(s));
        });
  }
}

TEST(ReduceMax, NotANumberWinsAtEveryPlace) {
  for (const Index n : {Index{1}, Index{5}, Index{16}, Index{17}, Index{40}})
    for (Index at = 0; at < n; ++at) {
      std::vector<float> x(static_cast<std::size_t>(n), 1.0f), low(x.size(), -inf);
      x[static_cast<std::size_t>(at)] = nan;
      std::vector<float> columns(static_cast<std::size_t>(2 * n), 1.0f);
      columns[static_cast<std::size_t>(2 * at + 1)] = nan;
      for (int isa = 0; isa < isas(); ++isa) {
        const auto body = reduce_max_bodies[static_cast<std::size_t>(isa)];
        Buffer<float> y(1), lowest(1), two(2);
        body(stream_of(1), {1, n, 1}, in(x), y);
        body(stream_of(1), {1, n, 1}, in(low), lowest);
        body(stream_of(1), {1, n, 2}, in(columns), two);
        EXPECT_TRUE(std::isnan(y.values()[0])) << n << " at " << at;
        EXPECT_EQ(lowest.values()[0], -inf);
        EXPECT_EQ(two.values()[0], 1.0f);
        EXPECT_TRUE(std::isnan(two.values()[1]));
      }
    }
}

TEST(SquaredError, SumAndSlopes) {
  std::vector<Index> sizes{0, 16384, 16385, 100001};
  sizes.insert(sizes.end(), odd_sizes().begin(), odd_sizes().end());
  for (const Index n : sizes) {
    const auto x = random_floats(n, 74), target = random_floats(n, 75, 1, 2);
    const std::vector<float> seed{0.125f};
    double expected = 0;
    std::vector<double> slope;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double d = static_cast<double>(x[i]) - static_cast<double>(target[i]);
      expected += d * d;
      slope.push_back(-2 * 0.125 * d);
    }
    for (int isa = 0; isa < isas(); ++isa) {
      double first = 0;
      for (int threads = 1; threads <= 3; ++threads) {
        Buffer<double> workspace(squared_error_workspace(n)), sum(1);
        squared_error_forward_bodies[static_cast<std::size_t>(isa)](stream_of(threads), n, in(x), in(target),
                                                                    workspace, sum);
        workspace.values();
        if (threads == 1) first = sum.values()[0];
        EXPECT_EQ(sum.values()[0], first);
        EXPECT_NEAR(first, expected, 1e-13 * expected);
      }
    }
    everywhere(
        [&](Stream& stream, int isa) {
          Buffer<float> dx(n);
          squared_error_backward_bodies[static_cast<std::size_t>(isa)](stream, n, -2, in(seed), in(x),
                                                                       in(target), dx);
          return Results{dx.values()};
        },
        [&](const Results& r, const std::string& isa) { expect_close(r[0], slope, 3 * unit, 0, isa); });
  }
}

}  // namespace
}  // namespace penstock::kernels::test
