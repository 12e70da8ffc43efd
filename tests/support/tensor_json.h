// Tensors as the stored values of PyTorch have them: {"shape": [...], "data": [...]}, infinities and NaN as
// text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/shape.h"

namespace penstock::testing {

inline Shape shape_of(const nlohmann::json& tensor) {
  return Shape(tensor.at("shape").get<std::vector<Index>>());
}

inline std::vector<float> floats_of(const nlohmann::json& tensor) {
  std::vector<float> result;
  for (const nlohmann::json& v : tensor.at("data"))
    result.push_back(v.is_string() ? std::stof(v.get<std::string>()) : v.get<float>());
  return result;
}

}  // namespace penstock::testing
