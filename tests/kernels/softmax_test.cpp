// Softmax and log-softmax against the formulas in double.
#include "kernels/support.h"

namespace penstock::kernels::test {
namespace {

struct Expected {
  std::vector<double> y, log_y, dx, log_dx;
};

Expected expected(Index rows, Index cols, const std::vector<float>& x, const std::vector<float>& dy) {
  Expected e;
  for (Index r = 0; r < rows; ++r) {
    const float* row = x.data() + r * cols;
    const float* grad = dy.data() + r * cols;
    double top = static_cast<double>(-inf), total = 0, weighted = 0, sum = 0;
    for (Index i = 0; i < cols; ++i) top = std::max(top, static_cast<double>(row[i]));
    for (Index i = 0; i < cols; ++i) total += std::exp(static_cast<double>(row[i]) - top);
    const auto p = [&](Index i) { return std::exp(static_cast<double>(row[i]) - top) / total; };
    for (Index i = 0; i < cols; ++i) {
      weighted += p(i) * static_cast<double>(grad[i]);
      sum += static_cast<double>(grad[i]);
    }
    for (Index i = 0; i < cols; ++i) {
      e.y.push_back(p(i));
      e.log_y.push_back(static_cast<double>(row[i]) - top - std::log(total));
      e.dx.push_back(p(i) * (static_cast<double>(grad[i]) - weighted));
      e.log_dx.push_back(static_cast<double>(grad[i]) - p(i) * sum);
    }
  }
  return e;
}

TEST(Softmax, AgainstDouble) {
  std::vector<std::array<Index, 2>> sizes{{0, 5}, {3, 0}, {700, 70}, {2, 50257}};
  for (const Index n : odd_sizes()) sizes.push_back({3, n});
  for (const auto& size : sizes) {
    const Index rows = size[0], cols = size[1];  // clang 14 captures no structured bindings
    const auto x = random_floats(rows * cols, 81, 0, 3), dy = random_floats(rows * cols, 82);
    const Expected e = expected(rows, cols, x, dy);
    everywhere(
        [&](Stream& stream, int isa) {
          const auto set = static_cast<std::size_t>(isa);
          const Index n = rows * cols;
          Buffer<float> y(n), log_y(n), dx(n), log_dx(n);
          softmax_forward_bodies[set](stream, rows, cols, in(x), y);
          log_softmax_forward_bodies[set](stream, rows, cols, in(x), log_y);
          softmax_backward_bodies[set](stream, rows, cols, in(y.values()), in(dy), dx);
          log_softmax_backward_bodies[set](stream, rows, cols, in(log_y.values()), in(dy), log_dx);
          return Results{y.values(), log_y.values(), dx.values(), log_dx.values()};
        },
        [&](const Results& r, const std::string& isa) {
          const double sum = 6 * std::sqrt(static_cast<double>(cols) + 1);  // of the gradients of a row
          // A difference from the largest of size 20 is rounded by 16 units, which the exponential passes on.
          expect_close(r[0], e.y, 40 * unit, 0, isa + " softmax");
          expect_close(r[1], e.log_y, 2 * unit, 40 * unit, isa + " log_softmax");
          expect_close(r[2], e.dx, 60 * unit, 20 * unit, isa + " softmax slope");
          expect_close(r[3], e.log_dx, 60 * unit, 30 * unit * sum, isa + " log_softmax slope");
        },
        1);
  }
}

// Known fault 9, and 3: rows with infinities, and rows that are masked whole.
TEST(Softmax, MaskedAndNotFinite) {
  const std::vector<float> x{-inf,   0,      -inf,   -inf,  //
                             -inf,   -inf,   -inf,   -inf,  //
                             1e4f,   -1e4f,  0,      -inf,  //
                             nan,    1,      2,      3,     //
                             -inf,   nan,    -inf,   -inf,  //
                             inf,    0,      1,      2,     //
                             -1e30f, -1e30f, -1e30f, -1e30f};
  const std::vector<float> dy(x.size(), 0.5f);
  for (int isa = 0; isa < isas(); ++isa) {
    const auto set = static_cast<std::size_t>(isa);
    Buffer<float> y(28), log_y(28), dx(28), log_dx(28);
    softmax_forward_bodies[set](stream_of(1), 7, 4, in(x), y);
    log_softmax_forward_bodies[set](stream_of(1), 7, 4, in(x), log_y);
    softmax_backward_bodies[set](stream_of(1), 7, 4, in(y.values()), in(dy), dx);
    log_softmax_backward_bodies[set](stream_of(1), 7, 4, in(log_y.values()), in(dy), log_dx);
    const auto row = [](const Buffer<float>& b, int r) {
      const std::vector<float> v = b.values();
      return std::vector<float>(v.begin() + 4 * r, v.begin() + 4 * r + 4);
    };
    EXPECT_EQ(row(y, 0), (std::vector<float>{0, 1, 0, 0}));
    EXPECT_EQ(row(log_y, 0), (std::vector<float>{-inf, 0, -inf, -inf}));
    EXPECT_EQ(row(y, 1), (std::vector<float>{0, 0, 0, 0}));
    EXPECT_EQ(row(log_y, 1), (std::vector<float>{-inf, -inf, -inf, -inf}));
    EXPECT_EQ(row(dx, 1), (std::vector<float>{0, 0, 0, 0}));
    EXPECT_EQ(row(log_dx, 1), (std::vector<float>{0, 0, 0, 0}));
    EXPECT_EQ(row(y, 2), (std::vector<float>{1, 0, 0, 0}));
    EXPECT_EQ(row(log_y, 2), (std::vector<float>{0, -2e4f, -1e4f, -inf}));
    for (const int r : {3, 4, 5})
      for (const float v : row(y, r)) EXPECT_TRUE(std::isnan(v)) << "row " << r;
    for (const int r : {3, 4, 5})
      for (const float v : row(log_y, r)) EXPECT_TRUE(std::isnan(v)) << "row " << r;
    EXPECT_EQ(row(y, 6), (std::vector<float>{0.25f, 0.25f, 0.25f, 0.25f}));
  }
}

}  // namespace
}  // namespace penstock::kernels::test
