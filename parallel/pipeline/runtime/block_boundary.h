// The boundary between two blocks of one stage, as gradients see it.
#pragma once

#include "autograd/variable.h"

namespace penstock {

/// The values as the next block gets them. Gradients that meet in a value are first added up within the block
/// that uses it, then over the boundary in the order of its values, and a value without a gradient gets
/// zeros: just what a cut between the blocks does. So a sum has one order, whether the model is cut there or
/// not. Nothing is copied; values that need no gradient stay as they are.
Variables at_block_boundary(const Variables& values);

}  // namespace penstock
