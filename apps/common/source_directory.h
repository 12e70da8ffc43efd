// The directories that --from and --init-from name.
#pragma once

#include <string>

#include "parallel/checkpoint/checkpoint.h"

namespace penstock {

/// Opens a Penstock checkpoint (a step's directory, or the directory of steps: then the newest). Throws
/// IoError naming the flag for what is missing or damaged; ValueError for a Hugging Face directory, which is
/// not yet read.
Checkpoint open_source(const std::string& flag, const std::string& directory);

}  // namespace penstock
