// machine_memory: the least of what the machine has and what the system grants.
#include "core/machine_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace penstock {

Index machine_memory() {
  Index bytes = std::numeric_limits<Index>::max();
  const auto at_most = [&](Index limit) {
    if (limit > 0) bytes = std::min(bytes, limit);
  };
  const Index pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) at_most(checked_product(pages, page));
  rlimit limit{};
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA})
    if (::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        std::in_range<Index>(limit.rlim_cur))
      at_most(static_cast<Index>(limit.rlim_cur));
  // Version 2 and version 1 of control groups, as a container sees its own.
  for (const char* file : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    Index granted = 0;
    if (std::ifstream(file) >> granted) at_most(granted);  // "max" is no number
  }
  return bytes;
}

}  // namespace penstock
