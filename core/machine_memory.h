// How much memory a process may have at most.
#pragma once

#include "core/checked.h"

namespace penstock {

/// Bytes: those of the machine, or less where the process's address space or its control group (a container,
/// a batch job) is limited. What other processes use is not taken off.
Index machine_memory();

}  // namespace penstock
