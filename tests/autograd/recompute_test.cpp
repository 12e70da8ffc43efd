// Recomputed segments: the same bits as keeping everything, in every order of the halves, and less memory.
#include <gtest/gtest.h>

#include <cstring>

#include "autograd/ops/arithmetic.h"
#include "autograd/ops/dropout.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/layer_norm.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/small_ops.h"
#include "autograd/tape.h"
#include "support/simple_weights.h"
#include "support/temp_folder.h"

namespace penstock::testing {
namespace {

using Floats = std::vector<float>;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

enum class How { full, halves, delayed };

class Recomputing : public ::testing::Test {
 protected:
  static constexpr Index rows = 5, width = 16;

  Recomputing() { state.set({.step = 3}); }

  /// Values that fill the range of fp32's rounding.
  Tensor numbers(const Shape& shape, int seed) {
    Floats values;
    std::uint32_t x = static_cast<std::uint32_t>(seed) * 2654435761u + 1u;
    for (Index i = 0; i < shape.numel(); ++i) {
      x = x * 1664525u + 1013904223u;
      values.push_back(static_cast<float>(static_cast<double>(x) / 4294967296.0 - 0.5));
    }
    return Tensor::from(context, shape, values, MemoryKind::parameter);
  }
  Tensor sequence_ids() {
    return Tensor::from(context, Shape{rows}, std::vector<std::int64_t>{0, 1, 2, 3, 4},
                        MemoryKind::parameter);
  }
  Index live() const { return context.allocator().live()[MemoryKind::activation]; }

  mutable RankContext context{RankContext::Options{.poison = true}};
  DeviceStepState state{context};
};

/// A piece of a network with everything that can go wrong: an input that is also used outside, a parameter
/// that is, a slice of a weight, dropout, several outputs of which one is an input.
struct Network {
  WeightHandle w, bias, gain, wide;
  const StepState* state;
  Tensor ids;
  int* runs;

  Variables inner(const Variables& in, Tape& tape) const {
    ++*runs;
    const Variable& x = in[0];
    const Variable normal = ops::layer_norm(x, tape.weight(gain), tape.weight(bias));
    const Variable part = ops::slice(tape.weight(wide), 1, 4, 20);  // (16, 16) of (16, 24)
    const Variable h = ops::gelu(ops::linear(normal, part, tape.weight(bias)));
    const Variable dropped = ops::dropout(h, 0.4f, 99, state, Variable(ids));
    return {ops::add(x, ops::linear(dropped, tape.weight(w))), in[1], ops::mul(dropped, x)};
  }
  Variables outer(Tape& tape, const Variable& x, const Variable& y, bool again) const {
    const Variable before = ops::linear(x, tape.weight(w), tape.weight(bias));
    const Segment segment = [net = *this](const Variables& in, Tape& t) { return net.inner(in, t); };
    const Variables inputs{before, y};
    const Variables mid = again ? tape.recompute(segment, inputs) : segment(inputs, tape);
    const Variable more = ops::add(ops::mul(before, mid[0]), ops::mul(mid[1], before));
    return {ops::linear(more, tape.weight(w)), ops::gelu(mid[2])};
  }
};

struct Gradients {
  std::vector<Floats> all;
  friend bool operator==(const Gradients& a, const Gradients& b) {
    if (a.all.size() != b.all.size()) return false;
    for (std::size_t i = 0; i < a.all.size(); ++i)
      if (a.all[i].size() != b.all[i].size() || a.all[i].empty() ||
          std::memcmp(a.all[i].data(), b.all[i].data(), a.all[i].size() * sizeof(float)) != 0)
        return false;
    return true;
  }
};

TEST_F(Recomputing, GivesTheBitsOfKeepingEverything) {
  const auto gradients = [&](bool again, How how, int& runs) {
    SimpleWeights weights;
    const Network net{weights.add(numbers(Shape{width, width}, 1)),
                      weights.add(numbers(Shape{width}, 2)),
                      weights.add(numbers(Shape{width}, 3)),
                      weights.add(numbers(Shape{width, 24}, 4)),
                      state.get(),
                      sequence_ids(),
                      &runs};
    std::vector<std::unique_ptr<Tape>> tapes;
    Gradients result;
    for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
      tapes.push_back(std::make_unique<Tape>(context, &weights));
      Tape& tape = *tapes.back();
      const Variable x = tape.input(numbers(Shape{rows, width}, 10 + micro_batch), true);
      const Variable y = tape.input(numbers(Shape{rows, width}, 20 + micro_batch), true);
      const Variables out = net.outer(tape, x, y, again);
      const Tensors seeds{numbers(Shape{rows, width}, 30), numbers(Shape{rows, width}, 31)};
      if (how == How::full) {
        tape.backward(out, seeds);
      } else {
        tape.backward_input(out, seeds);
        if (how == How::halves) tape.backward_weight();
      }
      result.all.push_back(tape.take_grad(x).to_vector<float>());
      result.all.push_back(tape.take_grad(y).to_vector<float>());
    }
    if (how == How::delayed)
      for (const auto& tape : tapes) tape->backward_weight();
    for (const WeightHandle& h : {net.w, net.bias, net.gain, net.wide})
      result.all.push_back(weights.gradient_values(h));
    return result;
  };
  int kept_runs = 0;
  const Gradients kept = gradients(false, How::full, kept_runs);
  EXPECT_EQ(kept_runs, 3);
  for (const How how : {How::full, How::halves, How::delayed}) {
    int runs = 0;
    EXPECT_EQ(gradients(false, how, runs), kept) << static_cast<int>(how);
    EXPECT_EQ(runs, 3);
    runs = 0;
    EXPECT_EQ(gradients(true, how, runs), kept) << static_cast<int>(how);
    EXPECT_EQ(runs, 6) << "once forward, once again, a micro-batch";
  }
  // The comparison can fail: another step has other masks.
  state.set({.step = 4});
  int runs = 0;
  EXPECT_FALSE(gradients(true, How::full, runs) == kept);
}

TEST_F(Recomputing, KeepsTheInputsAloneAndThenWhatTheWeightHalfNeeds) {
  SimpleWeights weights;
  const WeightHandle w = weights.add(numbers(Shape{64, 64}, 1));
  constexpr Index row = 64 * sizeof(float);
  const Tensor seed = numbers(Shape{1, 64}, 2), data = numbers(Shape{1, 64}, 3);
  const auto run = [&](bool again) {
    std::vector<Index> bytes;
    Tape tape(context, &weights);
    const Variable x = tape.input(data, true);
    const Segment segment = [w](const Variables& in, Tape& t) {
      Variable h = in[0];
      for (int i = 0; i < 3; ++i) h = ops::gelu(ops::linear(h, t.weight(w)));
      return Variables{h};
    };
    Variables y = again ? tape.recompute(segment, {x}) : segment({x}, tape);
    y[0].drop_value();
    bytes.push_back(live());
    tape.backward_input(y, Tensors{seed});
    tape.take_grad(x);
    bytes.push_back(live());
    tape.backward_weight();
    bytes.push_back(live());
    return bytes;
  };
  // Kept: three inputs of gelu and two of linear (the first is the caller's). After the I half: two inputs of
  // linear and three gradients of its outputs.
  EXPECT_EQ(run(false), (std::vector<Index>{5 * row, 5 * row, 0}));
  EXPECT_EQ(run(true), (std::vector<Index>{0, 5 * row, 0}));
  context.allocator().reset_peak();
  run(true);
  const Index peak = context.allocator().peak()[MemoryKind::activation];
  context.allocator().reset_peak();
  run(false);
  EXPECT_EQ(peak, context.allocator().peak()[MemoryKind::activation])
      << "one segment alone saves nothing at its peak";
}

TEST_F(Recomputing, ManySegmentsPeakAtOne) {
  constexpr Index row = 64 * sizeof(float);
  const Tensor data = numbers(Shape{1, 64}, 3);
  const auto peak = [&](bool again, int segments) {
    Tape tape(context, nullptr);
    Variable h = tape.input(data, true);
    for (int i = 0; i < segments; ++i) {
      const Segment chain = [](const Variables& in, Tape&) {
        Variable v = in[0];
        for (int k = 0; k < 8; ++k) v = ops::gelu(v);
        return Variables{v};
      };
      h = again ? tape.recompute(chain, {h})[0] : chain({h}, tape)[0];
    }
    h.drop_value();
    context.allocator().reset_peak();
    tape.backward(Variables{h}, Tensors{data});
    return context.allocator().peak()[MemoryKind::activation];
  };
  for (const int segments : {2, 6, 10}) {
    EXPECT_EQ(peak(false, segments) - peak(false, segments - 1), 8 * row);
    EXPECT_EQ(peak(true, segments) - peak(true, segments - 1), row) << "its input";
  }
}

TEST_F(Recomputing, SegmentsNest) {
  const auto gradient = [&](int depth) {
    Tape tape(context, nullptr);
    const Variable x = tape.input(numbers(Shape{width}, 5), true);
    std::function<Variables(const Variables&, Tape&, int)> nested = [&nested](const Variables& in, Tape& t,
                                                                              int left) {
      const Variable h = ops::gelu(in[0]);
      if (left == 0) return Variables{ops::mul(h, in[0])};
      const Variables deeper = t.recompute(
          [&nested, left](const Variables& v, Tape& within) { return nested(v, within, left - 1); }, {h});
      return Variables{ops::mul(deeper[0], in[0])};
    };
    const Variables y = nested({x}, tape, depth);
    tape.backward(y, Tensors{numbers(Shape{width}, 6)});
    return tape.take_grad(x).to_vector<float>();
  };
  const auto flat = [&](int depth) {
    Tape tape(context, nullptr);
    const Variable x = tape.input(numbers(Shape{width}, 5), true);
    const std::function<Variable(const Variable&, int)> f = [&f](const Variable& v, int left) {
      const Variable h = ops::gelu(v);
      return left == 0 ? ops::mul(h, v) : ops::mul(f(h, left - 1), v);
    };
    tape.backward(Variables{f(x, depth)}, Tensors{numbers(Shape{width}, 6)});
    return tape.take_grad(x).to_vector<float>();
  };
  for (int depth = 0; depth < 4; ++depth) EXPECT_EQ(gradient(depth), flat(depth)) << depth;
}

TEST_F(Recomputing, InputsWithoutGradientsAndParametersWithin) {
  // An embedding: integers in, and all that learns is asked for within.
  SimpleWeights weights;
  const WeightHandle table = weights.add(numbers(Shape{7, width}, 1)),
                     frozen = weights.add(numbers(Shape{width}, 2));
  const Tensor ids = Tensor::from(context, Shape{3}, std::vector<std::int32_t>{6, 0, 6});
  for (const bool again : {false, true}) {
    SimpleWeights fresh = weights;
    Tape tape(context, &fresh);
    const Segment look = [&](const Variables& in, Tape& t) {
      return Variables{ops::mul(ops::embedding(in[0], t.weight(table)), t.weight(frozen, false)), in[0]};
    };
    const Variable input = tape.input(ids, false);
    const Variables y = again ? tape.recompute(look, {input}) : look({input}, tape);
    EXPECT_TRUE(y[0].requires_grad());
    EXPECT_FALSE(y[1].requires_grad());
    EXPECT_EQ(y[1].tensor().dtype(), DType::i32) << "handed through";
    tape.backward(y, Tensors{numbers(Shape{3, width}, 7), Tensor()});
    EXPECT_FALSE(fresh.has_gradient(frozen));
    Tape plain(context, &weights);
    if (again) {
      const Variables z = look({Variable(ids)}, plain);
      plain.backward(z, Tensors{numbers(Shape{3, width}, 7), Tensor()});
      EXPECT_EQ(fresh.gradient_values(table), weights.gradient_values(table));
    }
  }
}

TEST_F(Recomputing, WhatNeedsNoGradientRunsOnce) {
  SimpleWeights weights;
  const WeightHandle frozen = weights.add(numbers(Shape{width}, 1));
  Tape tape(context, &weights);
  int runs = 0;
  const Segment segment = [&](const Variables& in, Tape& t) {
    ++runs;
    return Variables{ops::mul(in[0], t.weight(frozen, false))};
  };
  const Variables y = tape.recompute(segment, {tape.input(numbers(Shape{width}, 2), false)});
  EXPECT_FALSE(y[0].requires_grad());
  EXPECT_EQ(tape.nodes(), 0);
  {
    const Tape::NoGrad guard(tape);
    EXPECT_FALSE(tape.recompute(segment, {tape.input(numbers(Shape{width}, 2), true)})[0].requires_grad());
  }
  EXPECT_EQ(tape.nodes(), 0);
  tape.backward(y, Tensors{numbers(Shape{width}, 3)});
  EXPECT_EQ(runs, 2);
}

TEST_F(Recomputing, ASegmentWhoseOutputsNobodyUsesIsNotRunAgain) {
  Tape tape(context, nullptr);
  int runs = 0;
  const Variable x = tape.input(numbers(Shape{width}, 2), true);
  {
    tape.recompute(
        [&](const Variables& in, Tape&) {
          ++runs;
          return Variables{ops::gelu(in[0])};
        },
        {ops::gelu(x)});
  }
  const Variable y = ops::gelu(x);
  tape.backward_input(Variables{y}, Tensors{numbers(Shape{width}, 3)});
  tape.backward_weight();
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(tape.take_grad(x).defined());
}

TEST_F(Recomputing, AParameterAmongTheInputsAndLaterVersionsOfWeights) {
  SimpleWeights weights;
  const WeightHandle w = weights.add(Tensor::from(context, Shape{2}, Floats{5, 7}));
  Tape tape(context, &weights);
  const Variable x = tape.input(Tensor::from(context, Shape{2}, Floats{2, 3}), true);
  const Variables y = tape.recompute(
      [](const Variables& in, Tape&) {
        return Variables{apply_one<Product>({in[0], in[1]})};
      },
      {x, tape.weight(w)});
  weights.set(w, Tensor::from(context, Shape{2}, Floats{100, 200}));
  tape.backward_input(y, Tensors{Tensor::from(context, Shape{2}, Floats{1, 1})});
  EXPECT_EQ(tape.take_grad(x).to_vector<float>(), (Floats{100, 200})) << "resolved when the half runs";
  EXPECT_FALSE(weights.has_gradient(w));
  tape.backward_weight();
  EXPECT_EQ(weights.gradient_values(w), (Floats{2, 3}));
}

TEST_F(Recomputing, RefusesWhatItCannotRunAgain) {
  SimpleWeights weights;
  const WeightHandle w = weights.add(numbers(Shape{width}, 1));
  Tape tape(context, &weights), other(context, &weights);
  const Variable x = tape.input(numbers(Shape{width}, 2), true), captured = ops::gelu(x);
  const auto refusal = [&](const Segment& segment, const Variables& inputs) {
    return message_of<ValueError>([&] { tape.recompute(segment, inputs); });
  };
  const Segment fine = [](const Variables& in, Tape&) { return Variables{ops::gelu(in[0])}; };
  EXPECT_TRUE(contains(refusal([&](const Variables&, Tape&) { return Variables{ops::gelu(captured)}; }, {x}),
                       "needs a gradient and is not among its inputs"));
  EXPECT_TRUE(contains(refusal([&](const Variables&, Tape&) { return Variables{captured}; }, {x}),
                       "needs a gradient and is not among its inputs"));
  EXPECT_TRUE(
      contains(refusal([&](const Variables& in, Tape&) { return Variables{ops::mul(in[0], captured)}; }, {x}),
               "inputs from two tapes"));
  EXPECT_TRUE(contains(refusal(fine, {apply_one<Product>({tape.weight(w), tape.weight(w)})}),
                       "expression of weights"));
  EXPECT_TRUE(
      contains(refusal(fine, {other.input(numbers(Shape{width}, 2), true)}), "input 0 is on another tape"));
  EXPECT_TRUE(contains(refusal(fine, {Variable()}), "input 0 has no value"));
  EXPECT_TRUE(
      contains(refusal([](const Variables& in, Tape&) { return Variables{apply_one<Opaque>({in[0]})}; }, {x}),
               "opaque: has no gradient"));

  // Another outcome, or another input, the second time.
  const auto backward_refusal = [&](const Segment& segment, bool change) {
    Tape fresh(context, &weights);
    const Tensor value = numbers(Shape{width}, 4);
    const Variables y = fresh.recompute(segment, {fresh.input(value, true)});
    if (change) Tensor(value).fill_zero();
    return message_of<Error>([&] { fresh.backward(y, Tensors{numbers(Shape{width}, 3)}); });
  };
  int runs = 0, calls = 0;
  EXPECT_TRUE(contains(
      backward_refusal(
          [&](const Variables& in, Tape&) { return ++runs == 1 ? Variables{ops::gelu(in[0])} : Variables{}; },
          false),
      "did not give the same outputs again"));
  EXPECT_TRUE(contains(
      backward_refusal([&](const Variables& in,
                           Tape&) { return Variables{++calls == 1 ? ops::gelu(in[0]) : detach(in[0])}; },
                       false),
      "did not give the same outputs again"));
  EXPECT_TRUE(
      contains(backward_refusal(fine, true), "recompute: input 0 of shape (16) was changed in place"));
}

}  // namespace
}  // namespace penstock::testing
