// Dropout: keep rate, scale, and a mask that does not depend on how the batch is cut.
#include "core/philox.h"
#include "kernels/support.h"

namespace penstock::kernels::test {
namespace {

constexpr std::uint64_t key = 0x1234567890abcdefULL;

std::vector<float> run_dropout(Stream& stream, int isa, const std::vector<std::int64_t>& ids, Index elements,
                               float probability, std::int64_t step, const std::vector<float>& x) {
  StepState state;
  state.step = step;
  Buffer<float> y(static_cast<Index>(ids.size()) * elements);
  dropout_bodies[static_cast<std::size_t>(isa)](stream, static_cast<Index>(ids.size()), elements, probability,
                                                key, &state, in(ids), in(x), y);
  return y.values();
}

TEST(Dropout, IsThePhiloxElement) {
  for (const Index elements : odd_sizes()) {
    const std::vector<std::int64_t> ids{5, 0, 1000000};
    const auto x = random_floats(3 * elements, 71);
    std::vector<double> expected;
    for (std::size_t s = 0; s < 3; ++s)
      for (Index e = 0; e < elements; ++e) {
        const float u = uniform_float(philox_element(RandomKey{key}, 7, static_cast<std::uint32_t>(ids[s]),
                                                     static_cast<std::uint64_t>(e)));
        expected.push_back(
            u >= 0.25f ? static_cast<double>(
                             x[s * static_cast<std::size_t>(elements) + static_cast<std::size_t>(e)]) /
                             0.75
                       : 0.0);
      }
    everywhere(
        [&](Stream& stream, int isa) {
          return Results{run_dropout(stream, isa, ids, elements, 0.25f, 7, x)};
        },
        [&](const Results& r, const std::string& isa) { expect_close(r[0], expected, 3 * unit, 0, isa); });
  }
}

TEST(Dropout, KeepRate) {
  const Index n = 200000;
  const std::vector<float> ones(static_cast<std::size_t>(n), 1.0f);
  for (const float p : {0.1f, 0.5f, 0.9f}) {
    double kept = 0;
    for (const float v : run_dropout(stream_of(2), 0, {3}, n, p, 1, ones)) kept += v != 0.0f;
    const double q = 1 - static_cast<double>(p);
    EXPECT_NEAR(kept / static_cast<double>(n), q, 5 * std::sqrt(q * (1 - q) / static_cast<double>(n)));
  }
  EXPECT_EQ(run_dropout(stream_of(1), 0, {3}, n, 0.0f, 1, ones), ones);
}

// One batch of four sequences, and the same sequences in two micro-batches or reversed: the masks go with the
// sequence.
TEST(Dropout, TheCutOfTheBatchDoesNotMatter) {
  const Index elements = 1023;
  const auto x = random_floats(elements, 72);
  std::vector<float> four;
  for (int i = 0; i < 4; ++i) four.insert(four.end(), x.begin(), x.end());
  for (int isa = 0; isa < isas(); ++isa) {
    const auto whole = run_dropout(stream_of(2), isa, {8, 9, 10, 11}, elements, 0.5f, 3, four);
    const std::vector<float> two(four.begin(), four.begin() + 2 * elements);
    const auto second = run_dropout(stream_of(3), isa, {10, 11}, elements, 0.5f, 3, two);
    expect_same_bits(second, {whole.begin() + 2 * elements, whole.end()}, "second micro-batch");
    const auto one = run_dropout(stream_of(1), isa, {9}, elements, 0.5f, 3, x);
    expect_same_bits(one, {whole.begin() + elements, whole.begin() + 2 * elements}, "one sequence");
    EXPECT_NE(one, std::vector<float>(whole.begin(), whole.begin() + elements))
        << "two sequences share a mask";
    EXPECT_NE(one, run_dropout(stream_of(1), isa, {9}, elements, 0.5f, 4, x)) << "two steps share a mask";
  }
}

TEST(Dropout, ProbabilitiesOutsideTheRangeAreRefused) {
  for (const float p : {-0.1f, 1.0f, nan}) {
    const auto message = message_of<ValueError>([&] { run_dropout(stream_of(1), 0, {0}, 1, p, 1, {1.0f}); });
    EXPECT_NE(message.find("dropout"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace penstock::kernels::test
