// Module: a named tree of parameters. Layers declare theirs in their constructors.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "nn/parameter.h"

namespace penstock {

/// Collects the parameters that a block's layers declare, under a prefix of names.
class ParameterScope {
 public:
  ParameterScope(std::deque<Parameter>& parameters, std::string prefix)
      : parameters_(&parameters), prefix_(std::move(prefix)) {}

  /// Scope of a child: "transformer.h.0" / "attn" declares "transformer.h.0.attn.NAME".
  ParameterScope operator/(const std::string& child) const {
    return {*parameters_, prefix_.empty() ? child : prefix_ + "." + child};
  }

  /// Declares a parameter and returns a reference that stays valid. Throws ValueError when the block has one
  /// of that name.
  const Parameter& declare(const std::string& name, const Shape& shape, Initializer initializer) const;

  const std::string& prefix() const { return prefix_; }

 private:
  std::deque<Parameter>* parameters_;
  std::string prefix_;
};

}  // namespace penstock
