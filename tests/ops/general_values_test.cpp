// The general ops against the values that PyTorch gives: outputs and gradients, in general_values.json beside
// this file (which states its conventions). The tolerance is the one that the file's makers advise: 5 times
// the error of PyTorch's own fp32 plus 4e-6 of the largest magnitude of the tensor.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "autograd/ops/arithmetic.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/reductions.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/ops/softmax.h"
#include "autograd/tape.h"
#include "support/tensor_json.h"

namespace penstock::testing {
namespace {

using nlohmann::json;
using Inputs = std::map<std::string, Variable>;

const json& values() {
  static const json all =
      json::parse(std::ifstream(std::filesystem::path(__FILE__).parent_path() / "general_values.json"));
  return all;
}

Variable input(Tape& tape, const json& tensor) {
  RankContext& context = tape.context();
  const auto numbers = floats_of(tensor);
  if (tensor.at("dtype") == "f32") return tape.input(Tensor::from(context, shape_of(tensor), numbers), true);
  EXPECT_EQ(tensor.at("dtype"), "bool");
  return Variable(
      Tensor::from(context, shape_of(tensor), std::vector<std::uint8_t>(numbers.begin(), numbers.end())));
}

/// 1 where key j may be seen by query i: j <= i + (keys - queries).
Variable causal_mask(RankContext& context, Index queries, Index keys) {
  std::vector<std::uint8_t> mask;
  for (Index i = 0; i < queries; ++i)
    for (Index j = 0; j < keys; ++j) mask.push_back(j <= i + keys - queries);
  return Variable(Tensor::from(context, Shape{queries, keys}, mask));
}

Variable softmax(const Inputs& in, const json& attributes) {
  Variable x = in.at("x");
  RankContext& context = x.tensor().context();
  if (attributes.contains("scale")) x = ops::mul(x, attributes["scale"].get<float>());
  const Variable masked = ops::scalar(context, -INFINITY);
  if (attributes.contains("causal"))
    x = ops::where(causal_mask(context, x.shape().dim(-2), x.shape().dim(-1)), x, masked);
  if (in.contains("mask")) x = ops::where(in.at("mask"), x, masked);
  return ops::softmax(x);
}

Variable view_chain(Variable x, const json& steps) {
  for (const json& step : steps) {
    const std::string what = step[0];
    std::vector<Index> n;
    for (std::size_t i = 1; i < step.size(); ++i) n.push_back(step[i]);
    const std::vector<int> dims(n.begin(), n.end());
    if (what == "reshape") x = ops::reshape(x, n);
    if (what == "transpose") x = ops::transpose(x, dims[0], dims[1]);
    if (what == "slice") x = ops::slice(x, dims[0], n[1], n[2], n[3]);
    if (what == "scale_by_self") x = ops::mul(x, x);
    if (what == "permute") x = ops::permute(x, dims);
  }
  return x;
}

Variable run(const json& c, const Inputs& in) {
  const std::string op = c.at("op");
  const json& attributes = c.at("attributes");
  if (op == "softmax") return softmax(in, attributes);
  if (op == "silu") return ops::silu(in.at("x"));
  if (op == "add") return ops::add(in.at("a"), in.at("b"));
  if (op == "mul") return ops::mul(in.at("a"), in.at("b"));
  if (op == "matmul") return ops::matmul(in.at("a"), in.at("b"));
  if (op == "view_chain") return view_chain(in.at("x"), attributes.at("steps"));
  if (op == "concat") return ops::concat({in.at("x0"), in.at("x1"), in.at("x2")}, attributes.at("dim"));
  if (op == "reduce") return ops::mean(in.at("x"), attributes.at("dims"), attributes.at("keepdim"));
  if (op == "reuse") {
    const Variable z = ops::add(ops::mul(in.at("x"), in.at("y")), in.at("x"));
    return ops::sub(ops::mul(z, in.at("x")), ops::mean(z));
  }
  if (op == "linear" || op == "conv1d") {
    const Variable y = ops::matmul(in.at("x"), in.at("weight"), {.transpose_b = op == "linear"});
    return in.contains("bias") ? ops::add(y, in.at("bias")) : y;
  }
  throw ValueError("no such case: {}", op);
}

void expect_close(const std::vector<float>& actual, const json& tensor, double fp32_error,
                  const std::string& what) {
  const std::vector<float> expected = floats_of(tensor);
  double top = 0;
  for (const float v : expected)
    if (std::isfinite(v)) top = std::max(top, std::abs(static_cast<double>(v)));
  const double allowed = 5 * fp32_error + 4e-6 * top;
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(static_cast<double>(actual[i]) - static_cast<double>(expected[i]));
    ASSERT_TRUE(error <= allowed) << what << "[" << i << "] is " << actual[i] << ", PyTorch has "
                                  << expected[i] << ", allowed " << allowed;
  }
}

TEST(PublishedValues, OutputsAndGradients) {
  int cases = 0, tensors = 0;
  for (const json& c : values().at("cases")) {
    SCOPED_TRACE(c.at("name").get<std::string>());
    RankContext context({.poison = true});
    Tape tape(context, nullptr);
    Inputs in;
    for (const auto& [name, tensor] : c.at("inputs").items()) in[name] = input(tape, tensor);
    const Variable y = run(c, in);
    const auto first = c.at("outputs").begin();
    const std::string& output = first.key();
    const json& expected = first.value();
    EXPECT_EQ(y.shape(), shape_of(expected));
    expect_close(y.tensor().to_vector<float>(), expected, c.at("fp32_error").at(output), output);
    const json& cotangent = c.at("cotangents").at(output);
    const Tensor dy = Tensor::from(context, shape_of(cotangent), floats_of(cotangent));
    tape.backward({&y, 1}, {&dy, 1});
    for (const auto& [name, gradient] : c.at("gradients").items()) {
      expect_close(tape.take_grad(in.at(name)).to_vector<float>(), gradient,
                   c.at("fp32_error").at("grad." + name), "grad." + name);
      ++tensors;
    }
    ++cases;
  }
  EXPECT_EQ(cases, 15);
  EXPECT_EQ(tensors, 27);
}

}  // namespace
}  // namespace penstock::testing
