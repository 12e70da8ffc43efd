// Mesh: which part of the model and of the batch a rank has. Rank order, fastest first: tensor, context,
// data, pipeline.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/checked.h"

namespace penstock {

/// Sizes of the axes. The replicas of a bidirectional schedule are an axis between data and pipeline; experts
/// (ep) are spread within data.
struct MeshShape {
  int pp = 1, tp = 1, dp = 1, cp = 1, ep = 1, replicas = 1;

  /// Ranks; a product that is no int counts as the largest one.
  int size() const {
    std::int64_t product = 1;
    for (const int axis : {pp, replicas, dp, cp, tp})
      product = std::min<std::int64_t>(product * axis, INT32_MAX);
    return static_cast<int>(product);
  }
};

/// Place of a rank on each axis.
struct MeshCoordinates {
  int pp = 0, replica = 0, dp = 0, cp = 0, tp = 0;
};

class Mesh {
 public:
  /// Throws ValueError, naming the numbers, unless the axes are positive and multiply to `ranks`, and ep
  /// divides dp.
  Mesh(const MeshShape& shape, int ranks);

  const MeshShape& shape() const { return shape_; }
  /// Each throws ValueError outside the mesh.
  MeshCoordinates coordinates(int rank) const;
  int rank(const MeshCoordinates& at) const;

 private:
  MeshShape shape_;
};

}  // namespace penstock
