// AdamW and SGD against their formulas in double, several updates long.
#include "kernels/support.h"

namespace penstock::kernels::test {
namespace {

constexpr int updates = 6;

std::vector<float> gradient(Index n, int update) {
  return random_floats(n, 60 + static_cast<unsigned>(update), 0.01, 0.5);
}

StepState state_of(int update) {
  StepState state;
  state.updates = update;
  state.step = 100 + update;  // skipped steps: the correction counts updates
  state.learning_rate = 0.01f / static_cast<float>(update);
  state.clip_factor = update % 2 ? 1.0f : 0.25f;
  return state;
}

TEST(AdamW, SixUpdates) {
  const AdamWSettings settings{0.9, 0.95, 1e-8, 0.1};
  std::vector<Index> sizes{0, 70001};
  sizes.insert(sizes.end(), odd_sizes().begin(), odd_sizes().end());
  for (const Index n : sizes) {
    const auto start = random_floats(n, 59);
    std::vector<double> p = to_double(start), m(p.size(), 0.0), v(p.size(), 0.0);
    for (int t = 1; t <= updates; ++t) {
      const auto g = gradient(n, t);
      const StepState state = state_of(t);
      const auto rate = static_cast<double>(state.learning_rate);
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double gi = static_cast<double>(g[i]) * static_cast<double>(state.clip_factor);
        p[i] *= 1 - rate * settings.weight_decay;
        m[i] = settings.beta1 * m[i] + (1 - settings.beta1) * gi;
        v[i] = settings.beta2 * v[i] + (1 - settings.beta2) * gi * gi;
        const double m_hat = m[i] / (1 - std::pow(settings.beta1, t)),
                     v_hat = v[i] / (1 - std::pow(settings.beta2, t));
        p[i] -= rate * m_hat / (std::sqrt(v_hat) + settings.eps);
      }
    }
    everywhere(
        [&](Stream& stream, int isa) {
          Buffer<float> weights(start), first(n, 0.0f), second(n, 0.0f);
          for (int t = 1; t <= updates; ++t) {
            const auto g = gradient(n, t);
            const StepState state = state_of(t);
            adamw_bodies[static_cast<std::size_t>(isa)](stream, n, settings, &state, in(g), weights, first,
                                                        second);
          }
          return Results{weights.values(), first.values(), second.values()};
        },
        [&](const Results& r, const std::string& isa) {
          // Three roundings an update; m may cancel to less than its terms, which are below 2.
          expect_close(r[1], m, 4 * updates * unit, 2 * updates * unit, isa + " m");
          expect_close(r[2], v, 4 * updates * unit, 0, isa + " v");
          expect_close(r[0], p, 3 * updates * unit, updates * unit, isa + " p");
        },
        1);
  }
}

// The first update of Adam moves every weight by the rate, whatever the size of its gradient.
TEST(AdamW, FirstUpdateIsTheRate) {
  const std::vector<float> g{1e-3f, -5.0f, 1e4f};
  Buffer<float> p(3, 1.0f), m(3, 0.0f), v(3, 0.0f);
  StepState state;
  state.updates = 1;
  state.learning_rate = 0.125f;
  adamw(stream_of(1), 3, {0.9, 0.999, 1e-12, 0.0}, &state, in(g), p, m, v);
  expect_close(p.values(), {0.875, 1.125, 0.875}, 4 * unit, 0, "p");
}

// Known fault 20: beta2 must not be rounded on the way. torch keeps it in double: 1 - beta2 is 0.001.
TEST(AdamW, BetasKeepTheirDigits) {
  const std::vector<float> g{1.0f};
  Buffer<float> p(1, 0.0f), m(1, 0.0f), v(1, 0.0f);
  StepState state;
  state.updates = 1;
  adamw(stream_of(1), 1, {}, &state, in(g), p, m, v);
  EXPECT_EQ(v.values()[0], 0.001f);
  EXPECT_EQ(m.values()[0], 0.1f);
}

TEST(Sgd, MomentumAndDecay) {
  for (const double momentum : {0.0, 0.9})
    for (const Index n : odd_sizes()) {
      const SgdSettings settings{momentum, 0.1};
      const auto start = random_floats(n, 58);
      std::vector<double> p = to_double(start), b(p.size(), 0.0);
      for (int t = 1; t <= updates; ++t) {
        const auto g = gradient(n, t);
        const StepState state = state_of(t);
        const auto rate = static_cast<double>(state.learning_rate);
        for (std::size_t i = 0; i < p.size(); ++i) {
          const double gi = static_cast<double>(g[i]) * static_cast<double>(state.clip_factor) +
                            settings.weight_decay * p[i];
          b[i] = t == 1 ? gi : momentum * b[i] + gi;
          p[i] -= rate * b[i];
        }
      }
      everywhere(
          [&](Stream& stream, int isa) {
            Buffer<float> weights(start), buffer(n);  // NaN: the first update must not read it
            for (int t = 1; t <= updates; ++t) {
              const auto g = gradient(n, t);
              const StepState state = state_of(t);
              sgd_bodies[static_cast<std::size_t>(isa)](stream, n, settings, &state, in(g), weights,
                                                        momentum == 0 ? Out{} : Out(buffer));
            }
            return Results{weights.values()};
          },
          [&](const Results& r, const std::string& isa) {
            expect_close(r[0], p, 3 * updates * unit, updates * unit, isa);
          },
          1);
    }
}

// Two layouts of one run place a parameter differently in its buffer: same bits.
TEST(Optimizer, AnElementDoesNotDependOnItsPlace) {
  const Index n = 53;
  const auto start = random_floats(n, 57), m0 = random_floats(n, 56, 0, 0.1),
             v0 = random_floats(n, 55, 1, 0.1);
  const auto g = gradient(n, 1);
  const StepState state = state_of(3);
  for (int isa = 0; isa < isas(); ++isa) {
    const auto set = static_cast<std::size_t>(isa);
    Buffer<float> p(start), m(m0), v(v0), q(start), b(m0);
    adamw_bodies[set](stream_of(1), n, {}, &state, in(g), p, m, v);
    sgd_bodies[set](stream_of(1), n, {0.9, 0.1}, &state, in(g), q, b);
    for (Index i = 0; i < n; ++i) {
      const auto e = static_cast<std::size_t>(i);
      const std::vector<float> g1{g[e]};
      Buffer<float> p1(1, start[e]), m1(1, m0[e]), v1(1, v0[e]), q1(1, start[e]), b1(1, m0[e]);
      adamw_bodies[set](stream_of(1), 1, {}, &state, in(g1), p1, m1, v1);
      sgd_bodies[set](stream_of(1), 1, {0.9, 0.1}, &state, in(g1), q1, b1);
      EXPECT_TRUE(same_bits(p1.data()[0], p.data()[i])) << name_of_isa(isa) << " adamw " << i;
      EXPECT_TRUE(same_bits(v1.data()[0], v.data()[i])) << name_of_isa(isa) << " adamw v " << i;
      EXPECT_TRUE(same_bits(q1.data()[0], q.data()[i])) << name_of_isa(isa) << " sgd " << i;
    }
  }
}

}  // namespace
}  // namespace penstock::kernels::test
