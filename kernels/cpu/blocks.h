// Block sizes that both a kernel's body and its published workspace size must know.
#pragma once

#include "core/checked.h"

namespace penstock::kernels::cpu {

/// Elements whose squares `sum_of_squares` adds up in one go; one double of workspace each.
inline constexpr Index sum_of_squares_block = 16384;
/// Elements of a row that `reduce_sum` adds up in one go; one double of workspace each where a row has
/// several.
inline constexpr Index reduce_sum_block = 16384;
/// The same for `squared_error_forward`.
inline constexpr Index squared_error_block = 16384;

}  // namespace penstock::kernels::cpu
