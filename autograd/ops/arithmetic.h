// Elementwise ops on fp32: arithmetic with broadcasting, functions of one operand, choices, comparisons,
// casts.
//
// Two operands broadcast as in NumPy: dimensions are matched from the last; one that is missing or has size 1
// repeats. The gradient of a repeated operand is the sum over its repetitions. Every op throws ShapeError
// where shapes do not fit and ValueError for a dtype that it does not have, with its name.
#pragma once

#include "autograd/op.h"

namespace penstock::ops {

/// A constant of shape () on the context's device, for any op that broadcasts.
Variable scalar(RankContext& context, float value);

Variable add(const Variable& a, const Variable& b);  ///< a + b
Variable sub(const Variable& a, const Variable& b);  ///< a - b
Variable mul(const Variable& a, const Variable& b);  ///< a b
Variable div(const Variable& a, const Variable& b);  ///< a / b, as IEEE 754 divides

Variable add(const Variable& x, float value);  ///< x + value
Variable mul(const Variable& x, float value);  ///< x value

Variable neg(const Variable& x);                  ///< -x
Variable exp(const Variable& x);                  ///< e^x; results below 2^-126 are 0
Variable log(const Variable& x);                  ///< ln x
Variable tanh(const Variable& x);                 ///< tanh x
Variable sqrt(const Variable& x);                 ///< sqrt x; its slope at 0 is infinite
Variable pow(const Variable& x, float exponent);  ///< x^exponent; its slope is 0 for the exponent 0
Variable relu(const Variable& x);                 ///< max(x, 0), with slope 0 at 0; NaN stays
Variable sigmoid(const Variable& x);              ///< 1 / (1 + e^-x)
Variable silu(const Variable& x);                 ///< x / (1 + e^-x)

/// a where condition (uint8) is not 0, b elsewhere; all three broadcast. The gradient goes to what was
/// chosen.
Variable where(const Variable& condition, const Variable& a, const Variable& b);

/// uint8: 1 where it holds, 0 elsewhere. Both are fp32, int32, int64 or uint8. A comparison has no gradient:
/// its result is a constant, whatever its operands are.
Variable equal(const Variable& a, const Variable& b);
Variable not_equal(const Variable& a, const Variable& b);
Variable less(const Variable& a, const Variable& b);
Variable less_equal(const Variable& a, const Variable& b);
Variable greater(const Variable& a, const Variable& b);
Variable greater_equal(const Variable& a, const Variable& b);

/// x as another dtype, among fp32, bf16, fp16, int32, int64, uint8; x itself where it has it. To a floating
/// type it rounds to the nearest, ties to even, and passes its gradient through; to an integer type it must
/// be exact (ValueError for a fraction, NaN, or a number out of range), and the result is a constant.
Variable cast(const Variable& x, DType dtype);

}  // namespace penstock::ops
