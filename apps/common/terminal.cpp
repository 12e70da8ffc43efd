// terminal_at.
#include "apps/common/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "parallel/comm/mpi_world.h"

namespace penstock {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

Terminal terminal_at(int descriptor) {
  Terminal result;
  winsize size{};
  const bool direct = !launched_by_mpi() && isatty(descriptor) != 0;
  if (direct && ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    result.columns = size.ws_col;
  else
    result.columns = std::max(Index{40}, static_cast<Index>(std::atoi(variable("COLUMNS").data())));
  if (variable("COLUMNS").empty() && size.ws_col == 0) result.columns = 100;
  const bool refused = !variable("NO_COLOR").empty() || variable("TERM") == "dumb";
  result.interactive = !refused && (direct || variable("PENSTOCK_COLOUR") == "always");
  return result;
}

}  // namespace penstock
