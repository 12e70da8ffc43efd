// The fused ops, and their compositions of general ones, against the values that PyTorch gives: outputs and
// gradients, in fused_values.json beside this file (which states its conventions). Weights are parameters on
// the tape, whose gradients come in the W half. The tolerance is the one that the file's makers advise: 5
// times the error of PyTorch's own fp32 plus 4e-6 of the largest magnitude of the tensor.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "autograd/ops/add_norm.h"
#include "autograd/ops/composed.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/layer_norm.h"
#include "autograd/ops/rms_norm.h"
#include "autograd/ops/rope.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/ops/swiglu.h"
#include "autograd/tape.h"
#include "kernels/cross_entropy.h"
#include "support/simple_weights.h"
#include "support/tensor_json.h"

namespace penstock::testing {
namespace {

using nlohmann::json;

const json& values() {
  static const json all =
      json::parse(std::ifstream(std::filesystem::path(__FILE__).parent_path() / "fused_values.json"));
  return all;
}

/// A case's values as they go into an op, and its results as the file has them.
struct Case {
  const json& c;
  bool composed;
  std::map<std::string, Variable> in;

  const Variable& at(const char* name) const { return in.at(name); }
  Variable optional(const char* name) const { return in.contains(name) ? in.at(name) : Variable(); }
  template <class T>
  T attribute(const char* name, T other) const {
    return c.at("attributes").value(name, other);
  }
};

/// (B, heads, T, D) <-> (B, T, heads, D)
Variable exchanged(const Variable& x) { return ops::permute(x, {0, 2, 1, 3}); }

Variable norm(const Case& c) {
  const float eps = c.attribute("eps", 0.0f);
  if (c.c.at("op") == "rmsnorm")
    return c.composed ? ops::composed::rms_norm(c.at("x"), c.at("weight"), eps)
                      : ops::rms_norm(c.at("x"), c.at("weight"), eps);
  return c.composed ? ops::composed::layer_norm(c.at("x"), c.at("weight"), c.at("bias"), eps)
                    : ops::layer_norm(c.at("x"), c.at("weight"), c.at("bias"), eps);
}

Variable rope(const Case& c) {
  const Variable x = exchanged(c.at("x"));
  const Shape& s = x.shape();
  std::vector<std::int32_t> positions;
  for (Index b = 0; b < s[0]; ++b)
    for (Index t = 0; t < s[1]; ++t)
      positions.push_back(static_cast<std::int32_t>(t + c.attribute("offset", 0)));
  const Variable at(Tensor::from(x.tensor().context(), Shape{s[0], s[1]}, positions));
  ops::RopeOptions options;
  options.theta = c.attribute("theta", 0.0);
  if (c.c.at("attributes").contains("scaling")) {
    const json& scaling = c.c.at("attributes").at("scaling");
    options.scaling = ops::RopeScaling::llama3;
    options.factor = scaling.at("factor");
    options.low_frequency = scaling.at("low_freq_factor");
    options.high_frequency = scaling.at("high_freq_factor");
    options.original_positions = scaling.at("original_max_position_embeddings");
  }
  const std::vector<Index> shape(s.sizes().begin(), s.sizes().end());
  if (!c.attribute("interleaved", false)) return exchanged(ops::rope(x, at, s[3], options));
  // Pairs (2i, 2i + 1): put the even columns before the odd ones, and back.
  const Variable halves =
      ops::reshape(ops::transpose(ops::reshape(x, {s[0], s[1], s[2], s[3] / 2, 2}), 3, 4), shape);
  const Variable turned = ops::reshape(ops::rope(halves, at, s[3], options), {s[0], s[1], s[2], 2, s[3] / 2});
  return exchanged(ops::reshape(ops::transpose(turned, 3, 4), shape));
}

Variable attention(const Case& c) {
  const Variable q = exchanged(c.at("q")), k = exchanged(c.at("k")), v = exchanged(c.at("v"));
  const Shape& s = q.shape();
  const ops::AttentionOptions options{
      .heads = s[2], .kv_heads = k.shape()[2], .window = c.attribute("window", 0)};
  if (!c.composed) return exchanged(ops::attention(q, k, v, options).out);
  const auto flat = [](const Variable& x) {
    const Shape& f = x.shape();
    return ops::reshape(x, {f[0], f[1], f[2] * f[3]});
  };
  return exchanged(
      ops::reshape(ops::composed::attention(flat(q), flat(k), flat(v), options), {s[0], s[1], s[2], s[3]}));
}

Variables run(const Case& c) {
  const std::string op = c.c.at("op");
  if (op == "layernorm" || op == "rmsnorm") return {norm(c)};
  if (op == "residual_layernorm") {
    const auto& fused = c.composed ? ops::composed::add_layer_norm : ops::add_layer_norm;
    const auto [sum, y] =
        fused(c.at("x"), c.at("residual"), c.at("weight"), c.at("bias"), c.attribute("eps", 0.0f));
    return {sum, y};
  }
  if (op == "gelu") {
    const bool tanh = c.attribute<std::string>("approximate", "") == "tanh";
    if (c.composed && tanh) return {ops::composed::gelu(c.at("x"))};
    return {ops::gelu(c.at("x"), tanh ? ops::GeluForm::tanh : ops::GeluForm::erf)};
  }
  if (op == "swiglu") {
    const auto& fused = c.composed ? ops::composed::swiglu : ops::swiglu;
    return {fused(c.at("gate"), c.at("up"))};
  }
  if (op == "rope") return {rope(c)};
  if (op == "embedding") return {ops::embedding(c.at("ids"), c.at("weight"))};
  if (op == "linear" || op == "conv1d" || op == "tied_embedding_head") {
    const auto& fused = c.composed ? ops::composed::linear : ops::linear;
    const bool tied = op == "tied_embedding_head";
    return {fused(tied ? ops::embedding(c.at("ids"), c.at("weight")) : c.at("x"), c.at("weight"),
                  c.optional("bias"),
                  op == "conv1d" ? ops::WeightLayout::in_out : ops::WeightLayout::out_in)};
  }
  if (op == "attention") return {attention(c)};
  if (op == "cross_entropy") {
    const auto& fused = c.composed ? ops::composed::cross_entropy_sum : ops::cross_entropy_sum;
    return {fused(c.at("logits"), c.at("targets"), c.attribute("label_smoothing", 0.0f),
                  kernels::ignored_target)};
  }
  throw ValueError("no such case: {}", op);
}

void expect_close(const std::vector<double>& actual, const json& tensor, double fp32_error,
                  const std::string& what) {
  const std::vector<float> expected = floats_of(tensor);
  double top = 0;
  for (const float v : expected) top = std::max(top, std::abs(static_cast<double>(v)));
  const double allowed = 5 * fp32_error + 4e-6 * top;
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i)
    ASSERT_TRUE(std::abs(actual[i] - static_cast<double>(expected[i])) <= allowed)
        << what << "[" << i << "] is " << actual[i] << ", PyTorch has " << expected[i] << ", allowed "
        << allowed;
}

std::vector<double> doubles(const std::vector<float>& v) { return {v.begin(), v.end()}; }

class FusedValues : public ::testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(FusedValues, OutputsAndGradients) {
  const auto [composed, halves] = GetParam();
  int cases = 0, tensors = 0;
  for (const json& c : values().at("cases")) {
    SCOPED_TRACE(c.at("name").get<std::string>());
    RankContext context({.poison = true});
    SimpleWeights weights;
    Tape tape(context, &weights);
    Case of{c, composed, {}};
    std::map<std::string, WeightHandle> handles;
    double divisor = 1;  // of a mean over valid targets
    for (const auto& [name, tensor] : c.at("inputs").items()) {
      if (tensor.at("dtype") == "i64") {
        std::vector<std::int32_t> ids;
        for (const json& v : tensor.at("data"))
          ids.push_back(v == -100 ? kernels::ignored_target : v.get<std::int32_t>());
        of.in[name] = Variable(Tensor::from(context, shape_of(tensor), ids));
        if (of.attribute<std::string>("reduction", "") == "mean")
          divisor = static_cast<double>(ids.size()) -
                    static_cast<double>(std::count(ids.begin(), ids.end(), kernels::ignored_target));
        continue;
      }
      const Tensor value = Tensor::from(context, shape_of(tensor), floats_of(tensor));
      if (name == "weight" || name == "bias")
        of.in[name] = tape.weight(handles[name] = weights.add(value));
      else
        of.in[name] = tape.input(value, true);
    }
    const Variables results = run(of);
    Tensors cotangents;
    std::size_t k = 0;
    for (const char* name : {"sum", "y", "loss"}) {
      if (!c.at("outputs").contains(name)) continue;
      const json &expected = c.at("outputs").at(name), &cotangent = c.at("cotangents").at(name);
      const Tensor& y = results.at(k++).tensor();
      const double error = c.at("fp32_error").at(name);
      if (c.at("op") == "cross_entropy") {
        expect_close({y.item() / divisor}, expected, error, name);
        cotangents.push_back(Tensor::from(
            context, Shape{1},
            std::vector<float>{static_cast<float>(cotangent.at("data")[0].get<double>() / divisor)}));
      } else {
        EXPECT_EQ(y.shape(), shape_of(expected));
        expect_close(doubles(y.to_vector<float>()), expected, error, name);
        cotangents.push_back(Tensor::from(context, shape_of(cotangent), floats_of(cotangent)));
      }
    }
    ASSERT_EQ(k, results.size());
    if (halves) {
      tape.backward_input(results, cotangents);
      for (const auto& [name, handle] : handles) EXPECT_FALSE(weights.has_gradient(handle)) << name;
      tape.backward_weight();
    } else {
      tape.backward(results, cotangents);
    }
    for (const auto& [name, gradient] : c.at("gradients").items()) {
      const std::vector<float> actual = handles.contains(name)
                                            ? weights.gradient_values(handles.at(name))
                                            : tape.take_grad(of.in.at(name)).to_vector<float>();
      expect_close(doubles(actual), gradient, c.at("fp32_error").at("grad." + name), "grad." + name);
      ++tensors;
    }
    ++cases;
  }
  EXPECT_EQ(cases, 21);
  EXPECT_EQ(tensors, 39);
}

INSTANTIATE_TEST_SUITE_P(Ways, FusedValues, ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param) ? "composed" : "fused") +
                                  (std::get<1>(test.param) ? "_halves" : "_full");
                         });

}  // namespace
}  // namespace penstock::testing
