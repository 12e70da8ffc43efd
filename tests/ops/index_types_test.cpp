// Indices of int64 give what those of int32 give, and one value as two inputs of an op gets both gradients.
#include <gtest/gtest.h>

#include "autograd/ops/attention.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/layer_norm.h"
#include "autograd/ops/rope.h"
#include "autograd/tape.h"
#include "ops/table/record.h"

namespace penstock::testing {
namespace {

Variable floats_of(RankContext& context, const std::string& name, const Shape& shape) {
  return Variable(make_tensor(context, normal(name, shape)));
}

TEST(IndexTypes, Int64GivesTheBitsOfInt32) {
  RankContext context;
  const auto both = [&](const std::vector<double>& values, const Shape& shape) {
    return std::pair{Variable(make_tensor(context, int32s(shape, values))),
                     Variable(make_tensor(context, int64s(shape, values)))};
  };
  const auto same = [](const Variable& a, const Variable& b) {
    EXPECT_EQ(a.tensor().to_vector<float>(), b.tensor().to_vector<float>());
  };
  const auto [narrow, wide] = both({0, 2, 1, 1, 0, 2}, Shape{2, 3});
  const Variable table = floats_of(context, "table", Shape{4, 8});
  same(ops::embedding(narrow, table), ops::embedding(wide, table));
  const Variable x = floats_of(context, "x", Shape{2, 3, 8});
  same(ops::rope(x, narrow, 4, {}), ops::rope(x, wide, 4, {}));
  const Variable qkv = floats_of(context, "qkv", Shape{2, 3, 12});
  const auto [narrow_ids, wide_ids] = both({0, 0, 1, 2, 2, 2}, Shape{2, 3});
  same(ops::self_attention(qkv, {}, narrow_ids), ops::self_attention(qkv, {}, wide_ids));
  EXPECT_EQ(ops::cross_entropy_sum(x, narrow).tensor().item(),
            ops::cross_entropy_sum(x, wide).tensor().item());
  const Variable far(make_tensor(context, int64s(Shape{1}, {4294967296.0})));
  EXPECT_THROW(ops::embedding(far, table), ValueError);
}

TEST(CrossEntropy, TheIgnoredIdIsAChoice) {
  RankContext context;
  const Variable logits = floats_of(context, "logits", Shape{3, 5});
  const auto loss = [&](double middle, std::int32_t ignored) {
    return ops::cross_entropy_sum(logits, Variable(make_tensor(context, int32s(Shape{3}, {1, middle, 4}))),
                                  0.1f, ignored)
        .tensor()
        .item();
  };
  EXPECT_EQ(loss(-100, -100), loss(-1, -1));
  EXPECT_EQ(loss(2, 2), loss(-1, -1));
  EXPECT_NE(loss(2, -1), loss(-1, -1));
  EXPECT_THROW(loss(-1, -100), ValueError);
}

TEST(Attention, TheScaleIsAChoice) {
  RankContext context;
  const Variable qkv = floats_of(context, "qkv", Shape{2, 5, 12});
  const auto values = [&](float scale) {
    return ops::self_attention(qkv, {.scale = scale}).tensor().to_vector<float>();
  };
  EXPECT_EQ(values(0), values(0.5f)) << "1 / sqrt(4)";
  EXPECT_NE(values(0), values(0.25f));
}

// d/dg of sum(c (xhat g + g)) is the sum of both gradients, whatever memory the op writes first.
TEST(OneValueTwice, GainAndBiasOfALayerNorm) {
  RankContext context({.poison = true});
  const auto gradient_of = [&](bool apart) {
    Tape tape(context, nullptr);
    const Variable x = floats_of(context, "x", Shape{6, 4});
    const Variable gain = tape.input(make_tensor(context, normal("g", Shape{4})), true);
    const Variable bias = apart ? tape.input(make_tensor(context, normal("g", Shape{4})), true) : gain;
    const Variable y = ops::layer_norm(x, gain, bias, 1e-5f);
    const Tensor cotangent = make_tensor(context, normal("c", Shape{6, 4}));
    tape.backward({&y, 1}, {&cotangent, 1});
    std::vector<float> sum = tape.take_grad(gain).to_vector<float>();
    if (apart) {
      const std::vector<float> other = tape.take_grad(bias).to_vector<float>();
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
    }
    return sum;
  };
  EXPECT_EQ(gradient_of(false), gradient_of(true));
}

}  // namespace
}  // namespace penstock::testing
