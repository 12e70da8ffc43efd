// Layer normalisation against the textbook formulas in double.
#include "kernels/reference/reference.h"
#include "kernels/support.h"

namespace penstock::kernels::test {
namespace {

struct Case {
  Index rows, cols;
  double mean = 0.3, deviation = 1.5;
};

Results run_all(Stream& stream, int isa, const Case& c, const std::vector<float>& x,
                const std::vector<float>& gain, const std::vector<float>& bias, const std::vector<float>& dy,
                bool accumulate) {
  const auto set = static_cast<std::size_t>(isa);
  Buffer<float> y(c.rows * c.cols), mean(c.rows), rstd(c.rows), dx(c.rows * c.cols);
  Buffer<float> dgain(c.cols, accumulate ? 2.0f : nan), dbias(c.cols, accumulate ? -3.0f : nan);
  layer_norm_forward_bodies[set](stream, c.rows, c.cols, 1e-5f, in(x), in(gain), in(bias), y, mean, rstd);
  const In m(mean.data(), DType::f32), r(rstd.data(), DType::f32);
  layer_norm_backward_input_bodies[set](stream, c.rows, c.cols, in(x), in(gain), m, r, in(dy), {}, dx);
  layer_norm_backward_weight_bodies[set](stream, c.rows, c.cols, in(x), m, r, in(dy), accumulate, dgain,
                                         accumulate, dbias);
  return {y.values(), mean.values(), rstd.values(), dx.values(), dgain.values(), dbias.values()};
}

void check_case(const Case& c, double relative_mean) {
  const auto x = random_floats(c.rows * c.cols, 11, c.mean, c.deviation);
  const auto gain = random_floats(c.cols, 12, 1, 0.3), bias = random_floats(c.cols, 13);
  const auto dy = random_floats(c.rows * c.cols, 14);
  const auto expected =
      reference::layer_norm(c.rows, c.cols, 1e-5, to_double(x), to_double(gain), to_double(bias));
  const auto dx = reference::layer_norm_input_gradient(c.rows, c.cols, to_double(x), to_double(gain),
                                                       expected.mean, expected.rstd, to_double(dy));
  std::vector<double> dgain(gain.size(), 0), dbias(gain.size(), 0);
  for (Index i = 0; i < c.rows; ++i)
    for (Index j = 0; j < c.cols; ++j) {
      const auto e = static_cast<std::size_t>(i * c.cols + j);
      const auto row = static_cast<std::size_t>(i);
      const auto g = static_cast<double>(dy[e]);
      dgain[static_cast<std::size_t>(j)] +=
          g * (static_cast<double>(x[e]) - expected.mean[row]) * expected.rstd[row];
      dbias[static_cast<std::size_t>(j)] += g;
    }
  // The mean's own rounding, relative_mean units, is the floor: it moves every xhat. Sums over a row add
  // roundings like a random walk in 16 chains; sums over rows are in double.
  const double xhat_error = (8 + relative_mean + std::sqrt(static_cast<double>(c.cols)) / 2) * unit;
  const double row_sums = 4 * xhat_error * std::sqrt(static_cast<double>(c.rows)) * 4;
  for (const bool accumulate : {false, true})
    everywhere(
        [&](Stream& stream, int isa) { return run_all(stream, isa, c, x, gain, bias, dy, accumulate); },
        [&](const Results& r, const std::string& isa) {
          const std::string what = isa + " (" + std::to_string(c.rows) + ", " + std::to_string(c.cols) +
                                   ") mean " + std::to_string(c.mean);
          auto dgain_total = dgain, dbias_total = dbias;
          if (accumulate) {
            for (double& v : dgain_total) v += 2.0;
            for (double& v : dbias_total) v -= 3.0;
          }
          const double scale = c.cols == 1 ? 400 : 1;  // one column: rstd is 1 / sqrt(eps) and xhat 0
          expect_close(r[0], expected.y, 4 * xhat_error, 4 * xhat_error, what + " y");
          expect_close(r[1], expected.mean, unit, 4e-8 * c.deviation, what + " mean");
          expect_close(r[2], expected.rstd, 2 * xhat_error, 0, what + " rstd");
          expect_close(r[3], dx, 10 * xhat_error, scale * 12 * xhat_error / c.deviation, what + " dx");
          expect_close(r[4], dgain_total, xhat_error, row_sums, what + " dgain");
          expect_close(r[5], dbias_total, 2 * unit, 2 * unit, what + " dbias");
        });
}

TEST(LayerNorm, SizesAndAccumulation) {
  for (const Index cols : odd_sizes()) check_case({3, cols}, 0);
  for (const Index rows : {Index{1}, Index{2}, Index{31}, Index{257}}) check_case({rows, 96}, 0);
}

// Known fault 2 and its neighbours: a large mean beside a small deviation. One pass of sums of squares fails
// here.
TEST(LayerNorm, LargeMean) {
  check_case({4, 384, 1e3, 1.0}, 1e3);
  check_case({4, 384, 1e4, 1.0}, 1e4);
  check_case({4, 100, -1e4, 0.5}, 2e4);
}

TEST(LayerNorm, ConstantRowGivesTheBias) {
  const std::vector<float> x(64, 1e9f), gain(64, 2.0f);
  const auto bias = random_floats(64, 15);
  everywhere(
      [&](Stream& stream, int isa) {
        Buffer<float> y(64), mean(1), rstd(1);
        layer_norm_forward_bodies[static_cast<std::size_t>(isa)](stream, 1, 64, 1e-5f, in(x), in(gain),
                                                                 in(bias), y, mean, rstd);
        return Results{y.values()};
      },
      [&](const Results& r, const std::string& isa) { expect_same_bits(r[0], bias, isa); });
}

TEST(LayerNorm, NoRowsAndAbsentGradients) {
  const std::vector<float> none, gain(5, 1.0f);
  Buffer<float> dgain(5), dbias(5), y(0), mean(0), rstd(0);
  layer_norm_forward(stream_of(2), 0, 5, 1e-5f, in(none), in(gain), in(gain), y, mean, rstd);
  layer_norm_backward_weight(stream_of(2), 0, 5, in(none), in(none), in(none), in(none), false, dgain, false,
                             Out{});
  layer_norm_backward_weight(stream_of(2), 0, 5, in(none), in(none), in(none), in(none), false, Out{}, false,
                             dbias);
  EXPECT_EQ(dgain.values(), std::vector<float>(5, 0.0f));
  EXPECT_EQ(dbias.values(), std::vector<float>(5, 0.0f));
}

// A row has the same bits alone and in a batch: micro-batches may be cut anywhere.
TEST(LayerNorm, RowsDoNotKnowEachOther) {
  const Index cols = 387;
  const auto x = random_floats(200 * cols, 16), gain = random_floats(cols, 17),
             dy = random_floats(200 * cols, 18);
  for (int isa = 0; isa < isas(); ++isa) {
    const auto whole = run_all(stream_of(2), isa, {200, cols}, x, gain, gain, dy, false);
    for (const Index row : {Index{0}, Index{101}, Index{199}}) {
      const std::vector<float> x1(x.begin() + row * cols, x.begin() + (row + 1) * cols);
      const std::vector<float> dy1(dy.begin() + row * cols, dy.begin() + (row + 1) * cols);
      const auto one = run_all(stream_of(1), isa, {1, cols}, x1, gain, gain, dy1, false);
      for (const std::size_t output : {std::size_t{0}, std::size_t{3}})
        expect_same_bits(one[output],
                         {whole[output].begin() + row * cols, whole[output].begin() + (row + 1) * cols},
                         name_of_isa(isa));
    }
  }
}

}  // namespace
}  // namespace penstock::kernels::test
