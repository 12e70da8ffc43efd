// Refusals of the CPU kernels. They are plain functions, compiled once for the baseline processor: the bodies
// in isa/ are compiled for newer ones too and must not instantiate library templates, of which the linker
// keeps any one copy.
#pragma once

#include "core/checked.h"
#include "core/dtype.h"

namespace penstock::kernels::cpu {

[[noreturn]] void throw_wrong_dtype(DType expected, DType given);
[[noreturn]] void throw_id_out_of_range(Index row, Index id, Index vocabulary);
[[noreturn]] void throw_target_out_of_range(Index row, Index target, Index vocabulary, Index ignored);
[[noreturn]] void throw_attention(const char* what, Index a, Index b);
[[noreturn]] void throw_dropout_probability(float probability);
[[noreturn]] void throw_no_such_dtype(const char* kernel, DType given);
[[noreturn]] void throw_index_out_of_range(Index place, Index index, Index rows);
[[noreturn]] void throw_inexact_cast(Index place, double value, DType to);

}  // namespace penstock::kernels::cpu
