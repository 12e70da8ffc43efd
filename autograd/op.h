// Op: one differentiable operation, the same class on every device. It checks its inputs, makes its outputs
// and says what its gradients need. Both backward halves are one function, called with the inputs whose
// gradients are wanted: so the I half followed by the W half is the full backward, bit for bit.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "autograd/variable.h"
#include "autograd/weight_resolver.h"

namespace penstock {

/// Set of inputs of an op, a bit each.
using InputMask = std::uint32_t;

/// Takes note of what a backward will need. Each is kept only while the gradient of an input in `needed_for`
/// is to come: what only the I half needs is freed after it.
class Saver {
 public:
  virtual ~Saver() = default;
  virtual void input(int index, InputMask needed_for) = 0;
  virtual void output(int index, InputMask needed_for) = 0;
  /// Something that is neither; read back as `BackwardContext::saved(k)`, k counting these calls.
  virtual void tensor(const Tensor& value, InputMask needed_for) = 0;
};

/// What an op's backward sees. Weights among the inputs are resolved again at each call.
class BackwardContext {
 public:
  virtual ~BackwardContext() = default;
  virtual RankContext& context() = 0;
  Stream& stream() { return context().stream(); }

  /// True when this half wants the gradient of input i.
  virtual bool wants(int input) const = 0;
  /// Gradient of an output, of its dtype; undefined when nothing that counts depends on it. Those of weight
  /// expressions are fp32, and so are then all inputs and outputs that are read back.
  virtual const Tensor& grad(int output = 0) = 0;
  virtual Tensor input(int index) = 0;
  virtual Tensor output(int index) = 0;
  virtual Tensor saved(int index) = 0;

  /// Hands over the gradient of input i; the tape adds it to what is there.
  virtual void set_grad(int input, Tensor gradient) = 0;
  /// For kernels that can add: where to write the gradient of input i, of this shape, in fp32.
  virtual GradientTarget target(int input, const Shape& shape) = 0;
  /// What the gradient of input i is best handed over as: fp32 for weights, the input's own type otherwise.
  virtual DType gradient_dtype(int input) const = 0;
};

class Op {
 public:
  virtual ~Op() = default;
  virtual std::string_view name() const = 0;
  /// Checks shapes and dtypes (ShapeError, ValueError with the op's name), allocates and computes the
  /// outputs.
  virtual Tensors forward(std::span<const Tensor> inputs, Saver& save) = 0;
  /// Computes the gradients that `ctx.wants`. An op without a gradient throws when recorded (see
  /// `differentiable`).
  virtual void backward(BackwardContext& ctx) = 0;
  virtual bool differentiable() const { return true; }
};

/// Runs an op, recording it when an input that needs gradients is on a tape.
/// Throws ValueError when an input has no value, inputs lie on different tapes, or the op has no gradient and
/// one is needed.
Variables apply_op(std::unique_ptr<Op> op, std::span<const Variable> inputs);

/// The same for an op with one output.
template <class OpType, class... Args>
Variable apply_one(std::initializer_list<Variable> inputs, Args&&... args) {
  return apply_op(std::make_unique<OpType>(std::forward<Args>(args)...),
                  std::span<const Variable>(inputs.begin(), inputs.size()))[0];
}

}  // namespace penstock
