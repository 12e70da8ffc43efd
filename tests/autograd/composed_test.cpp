// Fused ops against their compositions of general ones: values and every gradient, for a random cotangent.
#include "autograd/ops/composed.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/layer_norm.h"
#include "autograd/ops/rms_norm.h"
#include "autograd/ops/swiglu.h"
#include "autograd/tape.h"
#include "core/random.h"
#include "kernels/cross_entropy.h"

namespace penstock::testing {
namespace {

using Floats = std::vector<float>;

class Composed : public ::testing::Test {
 protected:
  Tensor numbers(const Shape& shape, double deviation = 1.0) {
    Floats values(static_cast<std::size_t>(shape.numel()));
    fill_normal(random_key(11, RandomPurpose::init, fmt::format("{}", made_++)), 0, 0, 0, shape.numel(), 0.0,
                deviation, values.data());
    return Tensor::from(context, shape, values);
  }
  Variable ids(const Shape& shape, const std::vector<std::int32_t>& values) {
    return Variable(Tensor::from(context, shape, values));
  }

  using Function = std::function<Variable(const Variables&)>;

  /// Compares two functions of the same inputs.
  void expect_same(const Function& fused, const Function& composed, const Tensors& values,
                   double tolerance = 2e-5) {
    Floats outputs[2];
    std::vector<Floats> gradients[2];
    Tensor cotangent;
    for (const bool second : {false, true}) {
      Tape tape(context, nullptr);
      Variables inputs;
      for (const Tensor& v : values) inputs.push_back(tape.input(v, true));
      const Variable y = second ? composed(inputs) : fused(inputs);
      if (!second) cotangent = numbers(y.shape());
      EXPECT_EQ(y.shape(), cotangent.shape());
      outputs[second] = y.tensor().dtype() == DType::f64 ? Floats{static_cast<float>(y.tensor().item())}
                                                         : y.tensor().to_vector<float>();
      tape.backward({&y, 1}, {&cotangent, 1});
      for (const Variable& v : inputs) gradients[second].push_back(tape.take_grad(v).to_vector<float>());
    }
    expect_close(outputs[0], outputs[1], tolerance, "output");
    for (std::size_t i = 0; i < values.size(); ++i)
      expect_close(gradients[0][i], gradients[1][i], tolerance, fmt::format("gradient {}", i));
  }

  static void expect_close(const Floats& a, const Floats& b, double tolerance, const std::string& what) {
    ASSERT_EQ(a.size(), b.size()) << what;
    double top = 1e-3;
    for (const float v : b) top = std::max(top, std::abs(static_cast<double>(v)));
    bool nonzero = a.empty();
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_TRUE(std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])) <= tolerance * top)
          << what << "[" << i << "]: fused " << a[i] << ", composed " << b[i];
      nonzero = nonzero || a[i] != 0;
    }
    EXPECT_TRUE(nonzero) << what;
  }

  RankContext context{RankContext::Options{.poison = true}};
  int made_ = 0;
};

TEST_F(Composed, LinearWithBias) {
  for (const auto layout : {ops::WeightLayout::in_out, ops::WeightLayout::out_in}) {
    const Shape weight = layout == ops::WeightLayout::in_out ? Shape{7, 19} : Shape{19, 7};
    expect_same([=](const Variables& v) { return ops::linear(v[0], v[1], v[2], layout); },
                [=](const Variables& v) { return ops::composed::linear(v[0], v[1], v[2], layout); },
                {numbers(Shape{3, 5, 7}), numbers(weight), numbers(Shape{19})});
    expect_same([=](const Variables& v) { return ops::linear(v[0], v[1], {}, layout); },
                [=](const Variables& v) { return ops::composed::linear(v[0], v[1], {}, layout); },
                {numbers(Shape{1, 7}), numbers(weight)});
  }
}

TEST_F(Composed, GeluWithBias) {
  expect_same([](const Variables& v) { return ops::gelu(v[0], ops::GeluForm::tanh, v[1]); },
              [](const Variables& v) { return ops::composed::gelu(v[0], ops::GeluForm::tanh, v[1]); },
              {numbers(Shape{4, 3, 33}, 2.0), numbers(Shape{33})});
  expect_same([](const Variables& v) { return ops::gelu(v[0]); },
              [](const Variables& v) { return ops::composed::gelu(v[0]); }, {numbers(Shape{65}, 3.0)});
  EXPECT_THROW(ops::composed::gelu(Variable(numbers(Shape{3})), ops::GeluForm::erf), ValueError);
}

TEST_F(Composed, Swiglu) {
  expect_same([](const Variables& v) { return ops::swiglu(v[0], v[1]); },
              [](const Variables& v) { return ops::composed::swiglu(v[0], v[1]); },
              {numbers(Shape{3, 41}, 3.0), numbers(Shape{3, 41})});
}

TEST_F(Composed, Norms) {
  for (const float eps : {1e-5f, 0.1f}) {
    const Tensors all{numbers(Shape{2, 5, 23}, 2.0), numbers(Shape{23}), numbers(Shape{23})},
        two{all[0], all[1]};
    expect_same([=](const Variables& v) { return ops::layer_norm(v[0], v[1], v[2], eps); },
                [=](const Variables& v) { return ops::composed::layer_norm(v[0], v[1], v[2], eps); }, all);
    expect_same([=](const Variables& v) { return ops::layer_norm(v[0], v[1], {}, eps); },
                [=](const Variables& v) { return ops::composed::layer_norm(v[0], v[1], {}, eps); }, two);
    expect_same([=](const Variables& v) { return ops::rms_norm(v[0], v[1], eps); },
                [=](const Variables& v) { return ops::composed::rms_norm(v[0], v[1], eps); }, two);
  }
}

TEST_F(Composed, CrossEntropy) {
  constexpr std::int32_t ignored = kernels::ignored_target;
  const Variable targets = ids(Shape{2, 3}, {0, ignored, 10, 4, 4, ignored}), none = ids(Shape{1}, {7});
  for (const float smoothing : {0.0f, 0.1f, 1.0f}) {
    expect_same(
        [=](const Variables& v) { return ops::cross_entropy_sum(v[0], targets, smoothing); },
        [=](const Variables& v) { return ops::composed::cross_entropy_sum(v[0], targets, smoothing); },
        {numbers(Shape{2, 3, 11}, 4.0)});
    expect_same([=](const Variables& v) { return ops::cross_entropy_sum(v[0], none, smoothing); },
                [=](const Variables& v) { return ops::composed::cross_entropy_sum(v[0], none, smoothing); },
                {numbers(Shape{1, 9}, 4.0)});
  }
}

TEST_F(Composed, Attention) {
  const auto compare = [&](Index queries, Index keys, Index head_size, const ops::AttentionOptions& options,
                           const Variable& segments = {}) {
    SCOPED_TRACE(fmt::format("{} queries, {} keys, {} and {} heads, causal {}, window {}, offset {}", queries,
                             keys, options.heads, options.kv_heads, options.causal, options.window,
                             options.query_offset));
    expect_same(
        [&](const Variables& v) { return ops::attention(v[0], v[1], v[2], options, segments).out; },
        [&](const Variables& v) { return ops::composed::attention(v[0], v[1], v[2], options, segments); },
        {numbers(Shape{2, queries, options.heads * head_size}),
         numbers(Shape{2, keys, options.kv_heads * head_size}),
         numbers(Shape{2, keys, options.kv_heads * head_size})});
  };
  compare(9, 9, 5, {.heads = 3, .kv_heads = 3});
  compare(70, 70, 8, {.heads = 4, .kv_heads = 2});
  compare(9, 9, 4, {.heads = 2, .kv_heads = 1, .causal = false});
  compare(12, 12, 4, {.heads = 2, .kv_heads = 2, .window = 3});
  compare(4, 11, 6, {.heads = 2, .kv_heads = 2, .query_offset = 7});
  compare(6, 6, 4, {.heads = 2, .kv_heads = 2}, ids(Shape{2, 6}, {0, 0, 0, 1, 1, 1, 0, 1, 1, 1, 2, 2}));
  compare(3, 6, 4, {.heads = 2, .kv_heads = 1, .window = 4, .query_offset = 3},
          ids(Shape{2, 6}, {0, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1, 2}));
}

}  // namespace
}  // namespace penstock::testing
