// Cross-entropy against log sum exp in double.
#include "kernels/reference/reference.h"
#include "kernels/support.h"

namespace penstock::kernels::test {
namespace {

struct Loss {
  std::vector<float> lse, dlogits;
  double sum, count;
};

Loss run_loss(Stream& stream, int isa, Index rows, Index vocabulary, const std::vector<float>& logits,
              const std::vector<std::int32_t>& targets, float seed, bool in_place = false) {
  const auto set = static_cast<std::size_t>(isa);
  Buffer<float> lse(rows), grad(rows * vocabulary), copy(logits);
  Buffer<double> sums(2);
  const std::vector<float> factor{seed};
  cross_entropy_forward_bodies[set](stream, rows, vocabulary, 0.0f, ignored_target, in(logits), in(targets),
                                    lse, sums);
  cross_entropy_backward_bodies[set](stream, rows, vocabulary, 0.0f, ignored_target, in(factor),
                                     in_place ? In(copy.data(), DType::f32) : in(logits), in(targets),
                                     In(lse.data(), DType::f32), in_place ? Out(copy) : Out(grad));
  return {lse.values(), in_place ? copy.values() : grad.values(), sums.values()[0], sums.values()[1]};
}

TEST(CrossEntropy, AgainstDouble) {
  for (const Index vocabulary :
       {Index{1}, Index{2}, Index{3}, Index{31}, Index{33}, Index{257}, Index{1023}, Index{50257}})
    for (const Index rows : {Index{1}, Index{19}}) {
      const auto logits = random_floats(rows * vocabulary, 51, 2, 4);
      auto targets = random_ints(rows, 52, 0, static_cast<int>(vocabulary) - 1);
      if (rows > 3) targets[0] = targets[3] = ignored_target;
      const float seed = 0.125f;
      std::vector<double> lse, dlogits;
      double sum = 0, count = 0;
      const auto precise = to_double(logits);
      for (Index r = 0; r < rows; ++r) {
        const double* row = precise.data() + r * vocabulary;
        const std::int32_t target = targets[static_cast<std::size_t>(r)];
        lse.push_back(reference::log_sum_exp(row, vocabulary));
        if (target != ignored_target) sum += lse.back() - row[target], count += 1;
        for (Index c = 0; c < vocabulary; ++c)
          dlogits.push_back(target == ignored_target
                                ? 0.0
                                : (std::exp(row[c] - lse.back()) - (c == target ? 1 : 0)) * 0.125);
      }
      for (int isa = 0; isa < isas(); ++isa) {
        const Loss one = run_loss(stream_of(1), isa, rows, vocabulary, logits, targets, seed);
        // The lse is below 32, so its rounding is up to 16 units, and its sum adds a few; p = exp(logit -
        // lse) takes that as a relative error, which near p = 1 is an absolute one of p - 1.
        const double lse_error = 24 * unit;
        expect_close(one.lse, lse, 0, lse_error, name_of_isa(isa));
        EXPECT_NEAR(one.sum, sum, static_cast<double>(rows) * lse_error);
        EXPECT_EQ(one.count, count);
        expect_close(one.dlogits, dlogits, 2 * lse_error, 0.125 * lse_error, name_of_isa(isa));
        for (int threads = 2; threads <= 3; ++threads) {
          const Loss more = run_loss(stream_of(threads), isa, rows, vocabulary, logits, targets, seed, true);
          expect_same_bits(one.lse, more.lse, "threads");
          expect_same_bits(one.dlogits, more.dlogits, "threads, in place");
          EXPECT_EQ(one.sum, more.sum);
        }
      }
    }
}

// Known fault 18: all ignored. Sum 0, count 0, gradient 0, no NaN, whatever the logits are.
TEST(CrossEntropy, EveryTargetIgnored) {
  std::vector<float> logits(2 * 33, 3.0f);
  logits[4] = inf;
  for (int isa = 0; isa < isas(); ++isa) {
    const Loss loss = run_loss(stream_of(2), isa, 2, 33, logits, {ignored_target, ignored_target}, 1.0f);
    EXPECT_EQ(loss.sum, 0.0);
    EXPECT_EQ(loss.count, 0.0);
    EXPECT_EQ(loss.dlogits, std::vector<float>(66, 0.0f));
    const Loss empty = run_loss(stream_of(2), isa, 0, 33, {}, {}, 1.0f);
    EXPECT_EQ(empty.sum, 0.0);
    EXPECT_EQ(empty.count, 0.0);
  }
}

// Known fault 9: exp(-infinity) is 0, large logits do not overflow.
TEST(CrossEntropy, Extremes) {
  for (int isa = 0; isa < isas(); ++isa) {
    const Loss masked = run_loss(stream_of(1), isa, 1, 2, {-inf, 0.0f}, {1}, 1.0f);
    EXPECT_EQ(masked.lse[0], 0.0f);
    EXPECT_EQ(masked.sum, 0.0);
    EXPECT_EQ(masked.dlogits, (std::vector<float>{0.0f, 0.0f}));
    const Loss large =
        run_loss(stream_of(1), isa, 2, 3, {1e4f, 1e4f, -1e4f, -1e4f, -1e4f, -3e4f}, {0, 0}, 1.0f);
    EXPECT_NEAR(large.lse[0], 1e4 + std::log(2.0), 1e-3);
    EXPECT_NEAR(large.lse[1], -1e4 + std::log(2.0), 1e-3);
    EXPECT_NEAR(large.dlogits[0], -0.5, 1e-3);
    EXPECT_EQ(large.dlogits[2], 0.0f);
    const Loss broken = run_loss(stream_of(1), isa, 1, 17, std::vector<float>(17, nan), {3}, 1.0f);
    EXPECT_TRUE(std::isnan(broken.sum));
    std::vector<float> one_nan(40, 1.0f);
    one_nan[2] = nan;
    EXPECT_TRUE(std::isnan(run_loss(stream_of(1), isa, 1, 40, one_nan, {3}, 1.0f).sum));
    // A row of equal logits: ln(vocabulary), and a gradient that sums to 0.
    const Loss equal = run_loss(stream_of(1), isa, 1, 1023, std::vector<float>(1023, 7.0f), {1000}, 1.0f);
    EXPECT_NEAR(equal.sum, std::log(1023.0), 2e-6);
  }
}

// The exponential on its own: a gradient with lse 0 and seed 1 is e^logit for every entry but the target's.
TEST(CrossEntropy, ExponentialIsAccurate) {
  std::vector<float> x{0.0f};  // the target
  for (int i = -873300; i <= 887200; i += 7) x.push_back(static_cast<float>(i) * 1e-4f);
  const auto plain = static_cast<Index>(x.size());
  for (const float edge :
       {-88.0f, -89.0f, -104.0f, -1e4f, -3e38f, -inf, 88.73f, 89.0f, 110.0f, 1e4f, inf, nan, -0.0f})
    x.push_back(edge);
  const auto n = static_cast<Index>(x.size());
  const std::vector<float> seed{1.0f}, lse{0.0f};
  const std::vector<std::int32_t> target{0};
  everywhere(
      [&](Stream& stream, int isa) {
        Buffer<float> e(n);
        cross_entropy_backward_bodies[static_cast<std::size_t>(isa)](stream, 1, n, 0.0f, ignored_target,
                                                                     in(seed), in(x), in(target), in(lse), e);
        return Results{e.values()};
      },
      [&](const Results& r, const std::string& isa) {
        EXPECT_EQ(r[0][0], 0.0f);
        double worst = 0;
        for (Index i = 1; i < plain; ++i) {
          const auto e = static_cast<std::size_t>(i);
          const double expected = std::exp(static_cast<double>(x[e]));
          const double ulp = std::ldexp(1.0, std::ilogb(expected) - 23);
          worst = std::max(worst, std::abs(static_cast<double>(r[0][e]) - expected) / ulp);
        }
        EXPECT_LE(worst, 1.2) << isa;
        const std::vector<float> edges(r[0].begin() + plain, r[0].end());
        for (std::size_t i = 0; i < 6; ++i)
          EXPECT_EQ(edges[i], 0.0f) << isa << " edge " << i;  // below 2^-126
        for (std::size_t i = 6; i < 11; ++i) EXPECT_EQ(edges[i], inf) << isa << " edge " << i;
        EXPECT_TRUE(std::isnan(edges[11])) << isa;
        EXPECT_EQ(edges[12], 1.0f) << isa;
      });
}

TEST(CrossEntropy, TargetsOutsideTheVocabularyAreRefused) {
  const std::vector<float> logits(6, 0.0f), seed{1.0f};
  for (const std::int32_t target : {-2, 3}) {
    const std::vector<std::int32_t> targets{0, target};
    Buffer<float> lse(2), grad(6, 9.0f);
    Buffer<double> sums(2);
    for (const auto& message : {message_of<ValueError>([&] {
                                  cross_entropy_forward(stream_of(1), 2, 3, 0.0f, ignored_target, in(logits),
                                                        in(targets), lse, sums);
                                }),
                                message_of<ValueError>([&] {
                                  cross_entropy_backward(stream_of(1), 2, 3, 0.0f, ignored_target, in(seed),
                                                         in(logits), in(targets), in(logits), grad);
                                })}) {
      EXPECT_NE(message.find("target " + std::to_string(target) + " in row 1"), std::string::npos) << message;
      EXPECT_NE(message.find("0..2"), std::string::npos) << message;
    }
    EXPECT_EQ(grad.values(), std::vector<float>(6, 9.0f)) << "touched before the refusal";
  }
}

}  // namespace
}  // namespace penstock::kernels::test
