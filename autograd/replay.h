// What a tape keeps of a segment that its backward runs again.
#pragma once

#include <memory>
#include <vector>

#include "autograd/tape.h"

namespace penstock {

struct Tape::Replay {
  Segment segment;
  std::vector<WeightHandle> weights;  ///< that it asks for and that need gradients
  std::vector<int> results;           ///< for each output of the node: which of the segment's it is
  std::unique_ptr<Tape> tape;         ///< between the halves: what the W half needs
};

}  // namespace penstock
