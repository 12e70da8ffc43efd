// What a program may assume of the place that its text goes to.
#pragma once

#include "core/checked.h"

namespace penstock {

struct Terminal {
  bool interactive = false;  ///< a person looks on: colour, and lines that are drawn over
  Index columns = 100;
};

/// Of a file descriptor. Under mpirun a rank writes to the launcher, which hides where the text goes (Open
/// MPI even puts a pseudo- terminal between): then only PENSTOCK_COLOUR=always makes it interactive.
/// NO_COLOR, or a dumb terminal, never is. Columns: the terminal's, else COLUMNS, else 100.
Terminal terminal_at(int descriptor);

}  // namespace penstock
