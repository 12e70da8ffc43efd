// Op records: functions of one operand.
#include <optional>

#include "autograd/ops/arithmetic.h"
#include "ops/general.h"

namespace penstock::testing {
namespace {

using Function = Variable (*)(const Variable&);

std::vector<Refusal> refusals(const std::string& name, std::function<Variable(const Variable&)> op) {
  return {{"dtype", [=](RankContext& c) { op(some(c, {2}, DType::f16)); },
           name + ": computes with fp32 or bf16, not fp16"},
          {"integers", [=](RankContext& c) { op(some(c, {2}, DType::i32)); },
           name + ": computes with fp32 or bf16, not int32"},
          {"no_value", [=](RankContext&) { op(Variable()); }, name + ": input 0 has no value"}};
}

template <class Apply, class Reference, class Draw>
OpRecord record(const std::string& name, Apply apply, Reference f, Draw draw, std::vector<float> ends,
                Tolerance tolerance, std::optional<Tolerance> bf16 = {}) {
  const auto samples = [=] { return unary_samples(name, apply, f, draw, ends); };
  std::vector<Tolerance> tolerances{tolerance};
  if (bf16) tolerances.push_back(*bf16);
  return {.name = name,
          .tolerances = tolerances,
          .samples = samples,
          .benchmarks = [=] { return std::vector<Sample>{samples()[6]}; },
          .refusals = refusals(name, apply)};
}

OpRecord powers_of_several() {
  OpRecord r = record(
      "pow_of_other_exponents",
      [](const Variable& x) {
        return ops::mul(ops::add(ops::pow(x, 2.0f), ops::pow(x, 0.0f)),
                        ops::mul(ops::pow(x, -1.0f), ops::pow(x, 1.0f)));
      },
      [](auto v) { return (v * v + 1) * (1 / v * v); }, draw_away_from_zero,
      {0.5f, -0.5f, 2.0f, -2.0f, 100.0f, -100.0f},
      {DType::f32, 5e-7, 0, 5e-6, "four powers and three roundings; the slopes of x and 1/x cancel"},
      in_bf16(6, 0, 12, "each of seven results is rounded, and the slopes of x and 1/x cancel"));
  r.refusals = refusals("pow", [](const Variable& x) { return ops::pow(x, 2.0f); });
  r.samples = [plain = r.samples] {
    std::vector<Sample> all = plain();
    for (Sample& s : all)  // the products keep their factors
      s.saved_bytes = s.arguments[0].role == Role::weight ? -1 : 16 * s.output.numel();
    return all;
  };
  return r;
}

/// Known fault 6: where an exponential on the wrong side overflows, or a difference from 1 vanishes.
const std::vector<float> ends{0.0f,  -0.0f, 40.0f, -40.0f, 87.0f, -87.0f, 89.0f,  -89.0f, 1e4f,
                              -1e4f, 5.0f,  -5.0f, 9.0f,   -9.0f, 17.0f,  -17.0f, 1e-30f, -1e-30f};
const std::vector<float> powers{0.01f, 0.5f, 1.0f, 1.0000001f, 2.0f, 1e4f, 1e6f};

const RegisterOp neg_record(record("neg", Function(ops::neg), [](auto v) { return -v; }, draw_normal,
                                   {0.0f, -0.0f, 3e38f, -3e38f, 1e-45f},
                                   {DType::f32, 0, 0, 1e-7, "a change of sign"}));

const RegisterOp exp_record(record(
    "exp", Function(ops::exp), [](auto v) { return std::exp(v); }, draw_normal,
    {0.0f, -0.0f, 40.0f, -40.0f, 87.0f, -87.0f, -88.0f, -104.0f, -1e4f, 1e-30f, 16.0f},
    {DType::f32, 2e-7, 1e-30, 1e-6, "1.2 units in the last place; results below 2^-126 are 0"},
    in_bf16(1.01, 1e-30, 2.01, "the slope is the rounded output")));

const RegisterOp log_record(record("log", Function(ops::log), [](auto v) { return std::log(v); },
                                   draw_positive, {0.01f, 0.5f, 1.0f, 1.0000001f, 2.0f, 1e4f, 1e30f, 3e38f},
                                   {DType::f32, 2e-7, 0, 1e-6, "the C library's logarithm; one division"}));

const RegisterOp tanh_record(
    record("tanh", Function(ops::tanh), [](auto v) { return std::tanh(v); }, draw_normal, ends,
           {DType::f32, 3e-7, 0, 1e-6, "the C library's tanh; an exponential and six roundings"}));

const RegisterOp sqrt_record(record(
    "sqrt", Function(ops::sqrt), [](auto v) { return std::sqrt(v); }, draw_positive,
    {0.01f, 0.5f, 1.0f, 1.0000001f, 2.0f, 1e4f, 1e30f},
    {DType::f32, 7e-8, 0, 1e-6, "one rounding; one division"},
    in_bf16(1.01, 0, 2.02, "the slope is taken from the rounded output")));

const RegisterOp pow_record(record(
    "pow", [](const Variable& x) { return ops::pow(x, 1.5f); },
    [](auto v) { return std::pow(v, decltype(v)(1.5)); }, draw_positive, powers,
    {DType::f32, 2e-7, 0, 1e-6, "the C library's power, two roundings more for the slope"}));

const RegisterOp powers_record(powers_of_several());

const RegisterOp relu_record(record("relu", Function(ops::relu),
                                    [](auto v) { return v > 0 ? v : decltype(v)(0); }, draw_away_from_zero,
                                    {1e-3f, -1e-3f, 40.0f, -40.0f, 3e38f, -3e38f},
                                    {DType::f32, 0, 0, 2e-7, "a choice"}));

const RegisterOp sigmoid_record(record("sigmoid", Function(ops::sigmoid),
                                       [](auto v) { return 1 / (1 + std::exp(-v)); }, draw_normal, ends,
                                       {DType::f32, 4e-7, 1e-37, 1e-6, "an exponential and two roundings"}));

const RegisterOp silu_record(record("silu", Function(ops::silu),
                                    [](auto v) { return v / (1 + std::exp(-v)); }, draw_normal, ends,
                                    {DType::f32, 4e-7, 1e-33, 1e-6, "an exponential and three roundings"}));

}  // namespace
}  // namespace penstock::testing
