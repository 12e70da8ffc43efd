// ParameterScope: declaration.
#include "nn/module.h"

#include "core/error.h"

namespace penstock {

const Parameter& ParameterScope::declare(const std::string& name, const Shape& shape,
                                         Initializer initializer) const {
  std::string full = prefix_.empty() ? name : prefix_ + "." + name;
  for (const Parameter& other : *parameters_)
    require<ValueError>(other.name != full,
                        "parameter {} is declared twice in one block; give the second use the first one",
                        full);
  parameters_->push_back({std::move(full), shape, initializer, static_cast<int>(parameters_->size())});
  return parameters_->back();
}

}  // namespace penstock
