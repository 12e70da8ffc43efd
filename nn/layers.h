// Layers: parameters plus the op that uses them.
#pragma once

#include "autograd/ops/add_norm.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/layer_norm.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/rms_norm.h"
#include "nn/block.h"

namespace penstock {

/// y = x W + b with parameters "weight" and "bias".
class Linear {
 public:
  Linear(const ParameterScope& scope, Index inputs, Index outputs, float deviation,
         ops::WeightLayout layout = ops::WeightLayout::in_out, bool bias = true)
      : layout_(layout),
        weight_(scope.declare(
            "weight", layout == ops::WeightLayout::in_out ? Shape{inputs, outputs} : Shape{outputs, inputs},
            Initializer::normal(deviation))),
        bias_(bias ? &scope.declare("bias", Shape{outputs}, Initializer::zeros()) : nullptr) {}

  Variable operator()(const Variable& x, const BlockContext& context) const {
    return ops::linear(x, context.weight(weight_), bias_ ? context.weight(*bias_) : Variable(), layout_);
  }

 private:
  ops::WeightLayout layout_;
  const Parameter& weight_;
  const Parameter* bias_;
};

/// Layer normalisation with parameters "weight" and, unless told otherwise, "bias".
class LayerNorm {
 public:
  LayerNorm(const ParameterScope& scope, Index size, float eps, bool bias = true)
      : eps_(eps),
        weight_(scope.declare("weight", Shape{size}, Initializer::ones())),
        bias_(bias ? &scope.declare("bias", Shape{size}, Initializer::zeros()) : nullptr) {}

  Variable operator()(const Variable& x, const BlockContext& context) const {
    return ops::layer_norm(x, context.weight(weight_), bias(context), eps_);
  }
  /// {x + branch, the norm of it} in one pass.
  ops::SumAndNorm operator()(const Variable& x, const Variable& branch, const BlockContext& context) const {
    return ops::add_layer_norm(x, branch, context.weight(weight_), bias(context), eps_);
  }

 private:
  Variable bias(const BlockContext& context) const { return bias_ ? context.weight(*bias_) : Variable(); }

  float eps_;
  const Parameter& weight_;
  const Parameter* bias_;
};

/// RMS normalisation with parameter "weight".
class RmsNorm {
 public:
  RmsNorm(const ParameterScope& scope, Index size, float eps)
      : eps_(eps), weight_(scope.declare("weight", Shape{size}, Initializer::ones())) {}

  Variable operator()(const Variable& x, const BlockContext& context) const {
    return ops::rms_norm(x, context.weight(weight_), eps_);
  }
  /// {x + branch, the norm of it} in one pass.
  ops::SumAndNorm operator()(const Variable& x, const Variable& branch, const BlockContext& context) const {
    return ops::add_rms_norm(x, branch, context.weight(weight_), eps_);
  }
  /// Norm of each head of x (..., heads size), all with the same weights.
  Variable of_heads(const Variable& x, const BlockContext& context) const {
    return ops::head_rms_norm(x, context.weight(weight_), eps_);
  }

 private:
  float eps_;
  const Parameter& weight_;
};

/// Rows of a table, parameter "weight" (rows, width).
class Embedding {
 public:
  Embedding(const ParameterScope& scope, Index rows, Index width, float deviation)
      : weight_(scope.declare("weight", Shape{rows, width}, Initializer::normal(deviation))) {}

  Variable operator()(const Variable& ids, const BlockContext& context) const {
    return ops::embedding(ids, context.weight(weight_));
  }

  const Parameter& weight() const { return weight_; }

 private:
  const Parameter& weight_;
};

}  // namespace penstock
