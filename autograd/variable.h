// Variable: a value in a computation that may be recorded on a tape.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace penstock {

class Tape;

/// What a recorded value depends on. Gradients of activations are computed in the I half of a backward, those
/// of weight expressions in the W half.
enum class ValueKind : std::uint8_t {
  activation,  ///< depends on stage input or data
  weight,      ///< depends on parameters only: a parameter, a slice or a cast of one
};

class Variable {
 public:
  Variable() = default;  ///< no value
  /// A constant: data, or anything without gradient.
  explicit Variable(Tensor value) : value_(std::move(value)) {}

  bool defined() const { return value_.defined(); }
  const Tensor& tensor() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  ValueKind kind() const { return kind_; }
  bool requires_grad() const { return requires_grad_; }
  /// The tape it is recorded on, or null.
  Tape* tape() const { return tape_; }
  /// Lets go of the value and stays usable as the start of a backward: a stage that has sent its output needs
  /// no copy of it.
  void drop_value() { value_ = {}; }

 private:
  friend class Tape;
  Tensor value_;
  Tape* tape_ = nullptr;
  int slot_ = -1;
  ValueKind kind_ = ValueKind::activation;
  bool requires_grad_ = false;
};

using Variables = std::vector<Variable>;

/// The value as a constant, in the same memory: what depends on it passes it no gradient.
inline Variable detach(const Variable& x) { return Variable(x.tensor()); }

}  // namespace penstock
