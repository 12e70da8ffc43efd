// Plans as files: torch.distributed.pipelining's CSV (read and written) and a JSON document (written).
#pragma once

#include <string>
#include <string_view>

#include "parallel/pipeline/schedule/plan.h"

namespace penstock {

/// One row a rank, one cell an action, an empty cell a bubble. Lets pass CR LF, a byte-order mark, blanks
/// round a cell, empty cells and empty lines at the end. `source` names the text in errors. Throws ValueError
/// with source, row and cell (both from 1) for text that is no schedule. The plan is not verified.
Plan parse_csv(std::string_view text, const std::string& source);

/// parse_csv of a file. Throws IoError where it cannot be read.
Plan read_csv(const std::string& path);

/// The rows, cell for cell, bubbles included; lines end in LF.
std::string to_csv(const Plan& plan);

/// {"schedule","pp","micro_batches","stages","placement","replica","actions"} and, for asynchronous schemes,
/// "versions"; a bubble is an empty string. Throws ValueError for a plan without placement.
std::string to_json(const Plan& plan);

}  // namespace penstock
