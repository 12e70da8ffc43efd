// The elementwise ops stand in autograd/ops/arithmetic.h.
#pragma once

#include "autograd/ops/arithmetic.h"
