// An op that the library does not have, added from outside.
#pragma once

#include "autograd/op.h"

/// y = a x + (1 - a) ln(1 + e^x), element by element: a leaky ReLU without the kink. The slope a (1) may be a
/// parameter: it has a gradient too. fp32. Throws ShapeError when the slope is not one number.
penstock::Variable smooth_leaky_relu(const penstock::Variable& x, const penstock::Variable& slope);
