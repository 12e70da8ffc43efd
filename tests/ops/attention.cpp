// Op record: self_attention.
#include "autograd/ops/attention.h"

#include <cmath>

#include "kernels/reference/reference.h"
#include "ops/table/record.h"

namespace penstock::testing {
namespace {

using ops::AttentionOptions;

/// qkv (B, T, (H + 2 Hkv) D) and segment ids (B, T) or none.
Sample attention_sample(const std::string& name, Index batch, Index length, Index head,
                        const AttentionOptions& options, const std::vector<double>& segments = {},
                        double deviation = 1) {
  const Index heads = options.heads, kv_heads = options.kv_heads;
  Sample s;
  s.name = name;
  s.arguments = {normal(name + ".qkv", Shape{batch, length, (heads + 2 * kv_heads) * head}, Role::activation,
                        0, deviation)};
  if (!segments.empty()) s.arguments.push_back(int32s(Shape{batch, length}, segments));
  s.output = Shape{batch, length, heads * head};
  s.saved_bytes =
      batch * heads * length * static_cast<Index>(sizeof(float));  // the log-sum-exp; nothing is T x T
  s.apply = [options](const Variables& in, const StepState*) {
    return ops::self_attention(in[0], options, in.size() > 1 ? in[1] : Variable());
  };
  set_reference(s, [=]<class Real>(const std::vector<std::vector<Real>>& in) {
    std::vector<Real> q, k, v;
    const auto part = [&](Index position, Index begin, Index count, std::vector<Real>& to) {
      const auto at = in[0].begin() + position * (heads + 2 * kv_heads) * head + begin * head;
      to.insert(to.end(), at, at + count * head);
    };
    for (Index p = 0; p < batch * length; ++p) {
      part(p, 0, heads, q);
      part(p, heads, kv_heads, k);
      part(p, heads + kv_heads, kv_heads, v);
    }
    reference::Attention shape{
        batch, length, length, heads, kv_heads, head, 1 / std::sqrt(static_cast<double>(head))};
    shape.causal = options.causal;
    shape.window = options.window;
    shape.segments.assign(segments.size(), 0);
    for (std::size_t i = 0; i < segments.size(); ++i)
      shape.segments[i] = static_cast<std::int32_t>(segments[i]);
    const std::vector<Real> zero(q.size(), Real(0));
    return reference::attention<Real>(shape, q, k, v, zero).out;
  });
  return s;
}

std::vector<Sample> samples() {
  std::vector<Sample> all{
      attention_sample("causal", 2, 7, 5, {.heads = 3, .kv_heads = 3}),
      attention_sample("full", 2, 7, 5, {.heads = 2, .kv_heads = 2, .causal = false}),
      attention_sample("grouped", 2, 6, 4, {.heads = 6, .kv_heads = 2}),
      attention_sample("one_kv_head", 1, 9, 3, {.heads = 4, .kv_heads = 1}),
      attention_sample("window", 2, 9, 4, {.heads = 2, .kv_heads = 2, .window = 3}),
      attention_sample("window_of_one", 1, 5, 4, {.heads = 2, .kv_heads = 1, .window = 1}),
      attention_sample("window_not_causal", 1, 8, 4,
                       {.heads = 1, .kv_heads = 1, .causal = false, .window = 3}),
      attention_sample("segments", 2, 6, 4, {.heads = 2, .kv_heads = 2},
                       {0, 0, 0, 1, 1, 2, 5, 5, 5, 5, 5, 6}),
      attention_sample("segments_full", 1, 6, 3, {.heads = 2, .kv_heads = 1, .causal = false},
                       {0, 1, 0, 1, 2, 0}),
      attention_sample("everything", 1, 8, 4, {.heads = 4, .kv_heads = 2, .window = 4},
                       {0, 0, 0, 1, 1, 1, 1, 2}),
      attention_sample("one_position", 3, 1, 4, {.heads = 2, .kv_heads = 2}),
      attention_sample("one_everything", 1, 1, 1, {}),
      attention_sample("no_sequences", 0, 4, 4, {.heads = 2, .kv_heads = 2}),
      attention_sample("no_positions", 2, 0, 4, {.heads = 2, .kv_heads = 2}),
      attention_sample("large", 2, 130, 16, {.heads = 4, .kv_heads = 2}),
  };
  for (const Index t : {3, 4, 31, 64, 65})  // known fault 11
    all.push_back(attention_sample("length_" + std::to_string(t), 1, t, 3, {.heads = 1, .kv_heads = 1}));
  Sample transposed = attention_sample("transposed", 2, 5, 3, {.heads = 2, .kv_heads = 1});
  transposed.arguments[0].layout = Layout::transposed;
  all.push_back(transposed);
  Sample sliced =
      attention_sample("sliced", 2, 5, 3, {.heads = 2, .kv_heads = 2}, {0, 0, 1, 1, 1, 2, 2, 2, 2, 3});
  sliced.arguments[0].layout = sliced.arguments[1].layout = Layout::sliced;
  all.push_back(sliced);
  Sample repeated = attention_sample("repeated_segments", 2, 4, 3, {}, {0, 0, 1, 1, 0, 0, 1, 1});
  repeated.arguments[1].layout = Layout::repeated;
  all.push_back(repeated);
  // Scores of several hundred: the softmax is a choice, and its exponentials must not overflow.
  Sample extreme = attention_sample("large_scores", 1, 6, 4, {.heads = 2, .kv_heads = 2}, {}, 20);
  extreme.magnitude =
      2000;  // scores of 500 have errors of 3e-5, which the exponential passes on to values of 20
  extreme.gradient_slack = 30;
  all.push_back(extreme);
  return all;
}

const RegisterOp record({
    .name = "self_attention",
    .tolerances =
        {{DType::f32, 2e-6, 2e-6, 6e-6,
          "a score of D products is off by some 1e-7 of its size, the exponential makes that a relative "
          "error of each weight; outputs average over keys, gradients add two more products"}},
    .samples = samples,
    .benchmarks =
        [] {
          return std::vector<Sample>{
              attention_sample("2x1024x12x64", 2, 1024, 64, {.heads = 12, .kv_heads = 12})};
        },
    .refusals = {{"width",
                  [](RankContext& c) {
                    ops::self_attention(some(c, {2, 3, 10}), {.heads = 2, .kv_heads = 2});
                  },
                  "self_attention: (B, T, (heads + 2 kv_heads) D), not (2, 3, 10) with 2 + 2 x 2 heads"},
                 {"rank",
                  [](RankContext& c) {
                    ops::self_attention(some(c, {3, 12}), {.heads = 2, .kv_heads = 2});
                  },
                  "not (3, 12)"},
                 {"heads",
                  [](RankContext& c) {
                    ops::self_attention(some(c, {1, 3, 14}), {.heads = 3, .kv_heads = 2});
                  },
                  "self_attention: 3 heads over 2 key/value heads"},
                 {"no_heads",
                  [](RankContext& c) {
                    ops::self_attention(some(c, {1, 3, 14}), {.heads = 0, .kv_heads = 2});
                  },
                  "self_attention: 0 heads"},
                 {"no_kv_heads",
                  [](RankContext& c) {
                    ops::self_attention(some(c, {1, 3, 14}), {.heads = 2, .kv_heads = 0});
                  },
                  "over 0 key/value heads"},
                 {"no_head_size",
                  [](RankContext& c) {
                    ops::self_attention(some(c, {1, 3, 0}), {.heads = 2, .kv_heads = 2});
                  },
                  "head size"},
                 {"negative_window",
                  [](RankContext& c) {
                    ops::self_attention(some(c, {1, 3, 3}), {.window = -1});
                  },
                  "self_attention: window -1"},
                 {"segments_shape",
                  [](RankContext& c) {
                    ops::self_attention(some(c, {1, 4, 3}), {}, some(c, {4, 1}, DType::i32));
                  },
                  "self_attention: segment ids (4, 1) for (1, 4, 3)"},
                 {"segments_dtype",
                  [](RankContext& c) {
                    ops::self_attention(some(c, {1, 4, 3}), {}, some(c, {1, 4}, DType::u8));
                  },
                  "self_attention: segment ids are int32 or int64, not uint8"},
                 {"dtype",
                  [](RankContext& c) {
                    ops::self_attention(some(c, {1, 4, 3}, DType::f16), {});
                  },
                  "fp16"},
                 {"no_value", [](RankContext&) { ops::self_attention(Variable(), {}); },
                  "self_attention: input 0 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
