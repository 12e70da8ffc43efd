// Blockwise attention against the full matrix of scores in double.
#include "kernels/reference/reference.h"
#include "kernels/support.h"

namespace penstock::kernels::test {
namespace {

using reference::Attention;

AttentionShape shape_of(const Attention& s) {
  AttentionShape shape;
  shape.batch = s.batch, shape.queries = s.queries, shape.keys = s.keys;
  shape.heads = s.heads, shape.kv_heads = s.kv_heads, shape.head_size = s.head;
  shape.q_stride = shape.out_stride = s.heads * s.head;
  shape.k_stride = shape.v_stride = s.kv_heads * s.head;
  shape.scale = static_cast<float>(s.scale);
  shape.causal = s.causal, shape.query_offset = s.query_offset, shape.window = s.window;
  return shape;
}

struct Data {
  std::vector<float> q, k, v, dout;
};

Data random_data(const Attention& s, unsigned seed) {
  return {random_floats(s.batch * s.queries * s.heads * s.head, seed),
          random_floats(s.batch * s.keys * s.kv_heads * s.head, seed + 1),
          random_floats(s.batch * s.keys * s.kv_heads * s.head, seed + 2),
          random_floats(s.batch * s.queries * s.heads * s.head, seed + 3)};
}

/// out, lse, dq, dk, dv
Results run_attention(Stream& stream, int isa, const Attention& s, const Data& d) {
  const auto set = static_cast<std::size_t>(isa);
  const AttentionShape shape = shape_of(s);
  const In segments = s.segments.empty() ? In{} : in(s.segments);
  const auto size = [](const std::vector<float>& v) { return static_cast<Index>(v.size()); };
  Buffer<float> out(size(d.q)), lse(s.batch * s.heads * s.queries), dq(size(d.q)), dk(size(d.k)),
      dv(size(d.v));
  Buffer<float> workspace(attention_backward_workspace(shape, DType::f32));
  attention_forward_bodies[set](stream, shape, in(d.q), in(d.k), in(d.v), segments, out, lse);
  attention_backward_bodies[set](stream, shape, in(d.q), in(d.k), in(d.v), segments,
                                 In(out.data(), DType::f32), In(lse.data(), DType::f32), in(d.dout), In{},
                                 workspace, dq, dk, dv);
  return {out.values(), lse.values(), dq.values(), dk.values(), dv.values()};
}

std::string text(const Attention& s) {
  return " B" + std::to_string(s.batch) + " Tq" + std::to_string(s.queries) + " Tk" + std::to_string(s.keys) +
         " H" + std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " D" + std::to_string(s.head) +
         " offset " + std::to_string(s.query_offset) + " window " + std::to_string(s.window) +
         (s.causal ? " causal" : "") + (s.segments.empty() ? "" : " segments");
}

void check_attention(const Attention& s, int repeats = 1) {
  const Data d = random_data(s, 81);
  const auto expected =
      reference::attention<double>(s, to_double(d.q), to_double(d.k), to_double(d.v), to_double(d.dout));
  everywhere(
      [&](Stream& stream, int isa) { return run_attention(stream, isa, s, d); },
      [&](const Results& r, const std::string& isa) {
        // A score of D products has a rounding error of about sqrt(D) units of its size, which the
        // exponential passes on as a relative error of p; sums over keys and over queries add theirs as
        // random walks.
        const double score = (6 + std::sqrt(static_cast<double>(s.head))) * 3 * unit;
        const double walk = std::sqrt(static_cast<double>(s.keys + s.queries * (s.heads / s.kv_heads)));
        expect_close(r[0], expected.out, 4 * score, 4 * score, isa + text(s) + " out");
        expect_close(r[1], expected.lse, 4 * score, 4 * score, isa + text(s) + " lse");
        const double gradient = 4 * score * (4 + std::sqrt(static_cast<double>(s.head)) + walk / 2) * s.scale;
        expect_close(r[2], expected.dq, 8 * score, 2 * gradient, isa + text(s) + " dq");
        expect_close(r[3], expected.dk, 8 * score, 2 * gradient, isa + text(s) + " dk");
        expect_close(r[4], expected.dv, 8 * score, 4 * score * walk, isa + text(s) + " dv");
      },
      repeats);
}

// Known fault 11: one row, sizes around the block and the vector.
TEST(Attention, Lengths) {
  for (const Index t : {1, 2, 3, 4, 15, 17, 31, 64, 65, 127, 130, 200}) {
    check_attention({1, t, t, 1, 1, 16, 0.25});
    check_attention({2, t, t, 3, 3, 20, 0.25, false});
  }
}

TEST(Attention, HeadSizes) {
  for (const Index d : {1, 3, 8, 16, 31, 32, 33, 64, 65, 80, 128, 255, 256})
    check_attention({1, 70, 70, 2, 2, d, 1 / std::sqrt(static_cast<double>(d))});
}

TEST(Attention, GroupedHeads) {
  check_attention({2, 67, 67, 6, 2, 32, 0.2});
  check_attention({1, 33, 33, 4, 1, 16, 0.25});
}

TEST(Attention, CachesAndCrossAttention) {
  check_attention({2, 1, 100, 2, 1, 32, 0.2, true, 99});    // decoding one token
  check_attention({1, 5, 131, 2, 2, 32, 0.2, true, 126});   // a few more
  check_attention({1, 70, 200, 2, 2, 32, 0.2, true, 130});  // the second part of a prompt
  check_attention({1, 70, 40, 1, 1, 16, 0.25, true, 0});    // more queries than keys
  check_attention({1, 40, 170, 1, 1, 16, 0.25, false});
  check_attention({1, 130, 100, 1, 1, 16, 0.25, true, -70});  // 70 queries before the first key
}

TEST(Attention, Windows) {
  for (const Index window : {1, 3, 64, 65, 100, 1000})
    check_attention({1, 150, 150, 1, 1, 16, 0.25, true, 0, window});
  check_attention({1, 150, 150, 1, 1, 16, 0.25, false, 0, 70});
  check_attention({1, 20, 150, 1, 1, 16, 0.25, true, 130, 40});
}

TEST(Attention, Segments) {
  for (const bool causal : {true, false}) {
    Attention s{2, 140, 140, 2, 1, 16, 0.25, causal};
    for (Index b = 0; b < 2; ++b)
      for (Index t = 0; t < 140; ++t)
        s.segments.push_back(static_cast<std::int32_t>(b == 0 ? t / 50 : (t >= 1) + (t >= 90)));
    check_attention(s);
    s.window = 30;
    check_attention(s);
  }
}

// Known fault 3: rows that see nothing have output 0, lse -infinity and pass no gradient, though dout is not
// 0 there.
TEST(Attention, FullyMaskedRows) {
  const Attention s{1, 6, 6, 1, 1, 4, 0.5, true, -2};
  const Data d = random_data(s, 82);
  everywhere([&](Stream& stream, int isa) { return run_attention(stream, isa, s, d); },
             [&](const Results& r, const std::string& isa) {
               for (std::size_t i = 0; i < 8; ++i) {
                 EXPECT_EQ(r[0][i], 0.0f) << isa;
                 EXPECT_EQ(r[2][i], 0.0f) << isa;
               }
               EXPECT_EQ(r[1][0], -inf) << isa;
               EXPECT_EQ(r[1][1], -inf) << isa;
               for (const auto& values : {r[0], r[2], r[3], r[4]})
                 for (const float v : values) EXPECT_TRUE(std::isfinite(v)) << isa;
               for (std::size_t i = 16; i < 24; ++i)
                 EXPECT_EQ(r[3][i], 0.0f) << isa << ": keys that nobody sees";
             });
  check_attention(s);
}

// Known fault 4: sequences of a batch do not see each other, nor the future.
TEST(Attention, EqualSequencesGiveEqualRows) {
  const Attention one{1, 90, 90, 2, 2, 24, 0.2};
  const Data d = random_data(one, 83);
  Attention three = one;
  three.batch = 3;
  Data repeated;
  for (int i = 0; i < 3; ++i) {
    repeated.q.insert(repeated.q.end(), d.q.begin(), d.q.end());
    repeated.k.insert(repeated.k.end(), d.k.begin(), d.k.end());
    repeated.v.insert(repeated.v.end(), d.v.begin(), d.v.end());
    repeated.dout.insert(repeated.dout.end(), d.dout.begin(), d.dout.end());
  }
  for (int isa = 0; isa < isas(); ++isa) {
    const Results alone = run_attention(stream_of(1), isa, one, d);
    const Results batch = run_attention(stream_of(2), isa, three, repeated);
    for (std::size_t output = 0; output < 5; ++output) {
      const auto n = static_cast<std::ptrdiff_t>(alone[output].size());
      for (std::ptrdiff_t b = 0; b < 3; ++b)
        expect_same_bits(alone[output], {batch[output].begin() + b * n, batch[output].begin() + (b + 1) * n},
                         std::string(name_of_isa(isa)) + " output " + std::to_string(output));
    }
    // What comes later changes nothing before it.
    Data changed = d;
    for (std::size_t e = 70 * 48; e < changed.k.size(); ++e) changed.k[e] = changed.v[e] = 1e3f;
    const Results later = run_attention(stream_of(2), isa, one, changed);
    expect_same_bits({alone[0].begin(), alone[0].begin() + 70 * 48},
                     {later[0].begin(), later[0].begin() + 70 * 48}, "rows before a changed key");
  }
}

// Decoding token by token from a cache gives the rows of the whole, up to how keys fall into blocks (here:
// not at all).
TEST(Attention, DecodingMatchesTheWhole) {
  const Attention whole{1, 80, 80, 2, 1, 32, 0.2};
  const Data d = random_data(whole, 84);
  for (int isa = 0; isa < isas(); ++isa) {
    const Results all = run_attention(stream_of(1), isa, whole, d);
    for (const Index t : {Index{0}, Index{15}, Index{63}, Index{64}, Index{79}}) {
      Attention step = whole;
      step.queries = 1, step.query_offset = t;
      Data row = d;
      row.q.assign(d.q.begin() + t * 64, d.q.begin() + (t + 1) * 64);
      row.dout.assign(row.q.size(), 0.0f);
      const Results one = run_attention(stream_of(1), isa, step, row);
      expect_same_bits(one[0], {all[0].begin() + t * 64, all[0].begin() + (t + 1) * 64},
                       "token " + std::to_string(t));
    }
  }
}

// Slices of a fused (B, T, 3, H, D) tensor need no copy, and the gradients go into such slices.
TEST(Attention, FusedStrides) {
  const Index batch = 2, t = 70, heads = 3, head = 16, width = heads * head;
  const Attention s{batch, t, t, heads, heads, head, 0.25};
  const Data d = random_data(s, 85);
  std::vector<float> fused(static_cast<std::size_t>(batch * t * 3 * width));
  for (Index row = 0; row < batch * t; ++row)
    for (Index c = 0; c < width; ++c) {
      fused[static_cast<std::size_t>(row * 3 * width + c)] = d.q[static_cast<std::size_t>(row * width + c)];
      fused[static_cast<std::size_t>(row * 3 * width + width + c)] =
          d.k[static_cast<std::size_t>(row * width + c)];
      fused[static_cast<std::size_t>(row * 3 * width + 2 * width + c)] =
          d.v[static_cast<std::size_t>(row * width + c)];
    }
  AttentionShape shape = shape_of(s);
  shape.q_stride = shape.k_stride = shape.v_stride = 3 * width;
  for (int isa = 0; isa < isas(); ++isa) {
    const auto set = static_cast<std::size_t>(isa);
    const Results dense = run_attention(stream_of(1), isa, s, d);
    Buffer<float> out(batch * t * width), lse(batch * heads * t), grad(batch * t * 3 * width);
    const auto part = [&](const float* base, Index which) { return In(base + which * width, DType::f32); };
    const auto part_out = [&](Index which) { return Out(grad.data() + which * width, DType::f32); };
    attention_forward_bodies[set](stream_of(2), shape, part(fused.data(), 0), part(fused.data(), 1),
                                  part(fused.data(), 2), In{}, out, lse);
    attention_backward_bodies[set](stream_of(2), shape, part(fused.data(), 0), part(fused.data(), 1),
                                   part(fused.data(), 2), In{}, In(out.data(), DType::f32),
                                   In(lse.data(), DType::f32), in(d.dout), In{}, Out{}, part_out(0),
                                   part_out(1), part_out(2));
    expect_same_bits(dense[0], out.values(), "fused out");
    const auto gradients = grad.values();
    for (Index which = 0; which < 3; ++which) {
      std::vector<float> gathered;
      for (Index row = 0; row < batch * t; ++row)
        for (Index c = 0; c < width; ++c)
          gathered.push_back(gradients[static_cast<std::size_t>((row * 3 + which) * width + c)]);
      expect_same_bits(dense[static_cast<std::size_t>(2 + which)], gathered,
                       "fused gradient " + std::to_string(which));
    }
  }
}

// Known fault 5's neighbour: scores far from 0 neither overflow nor vanish.
TEST(Attention, LargeScores) {
  for (const float size : {32.5f, 1e3f, 1e8f}) {
    const Attention s{1, 5, 5, 1, 1, 64, 0.125};
    Data d = random_data(s, 86);
    d.q.assign(d.q.size(), size);
    d.k.assign(d.k.size(), size);
    for (std::size_t i = 64 * 2; i < 64 * 3; ++i) d.k[i] = -size;
    everywhere([&](Stream& stream, int isa) { return run_attention(stream, isa, s, d); },
               [&](const Results& r, const std::string& isa) {
                 for (const auto& values : r)
                   for (const float v : values) EXPECT_TRUE(std::isfinite(v)) << isa << " size " << size;
                 // Row 3 averages keys 0, 1, 3: equal scores; key 2 has weight 0.
                 for (std::size_t c = 0; c < 64; ++c)
                   EXPECT_NEAR(r[0][3 * 64 + c], (d.v[c] + d.v[64 + c] + d.v[3 * 64 + c]) / 3, 1e-6) << isa;
               });
  }
}

TEST(Attention, RepeatedTwentyTimes) { check_attention({2, 65, 65, 4, 2, 16, 0.25}, 20); }

TEST(Attention, EmptyBatch) {
  const Attention s{0, 5, 5, 2, 2, 8, 0.5};
  run_attention(stream_of(2), 0, s, random_data(s, 87));
  check_attention({1, 3, 0, 1, 1, 8, 0.5, false});  // no keys at all: every row is empty
  check_attention({1, 0, 3, 1, 1, 8, 0.5, false});  // no queries: dk and dv are 0
}

TEST(Attention, WhatDoesNotFitIsRefused) {
  const auto refuse = [](const Attention& s, const std::string& part) {
    const Data d = random_data(s, 88);
    const auto message = message_of<ShapeError>([&] { run_attention(stream_of(1), 0, s, d); });
    EXPECT_NE(message.find("attention"), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  refuse({1, 2, 2, 1, 1, 257, 1.0}, "257");
  refuse({1, 2, 2, 3, 2, 8, 1.0}, "3 and 2");
  refuse({1, 3, 3, 1, 1, 8, 1.0, true, 1, 0, {0, 0, 0}}, "4 and 3");
}

}  // namespace
}  // namespace penstock::kernels::test
