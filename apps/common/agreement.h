// What all ranks of a job must find alike before work starts, and may not: files have the same names on every
// machine, and not always the same content.
#pragma once

#include <filesystem>
#include <string>

#include "parallel/comm/communicator.h"

namespace penstock {

/// Throws ValueError, the same on all ranks, naming the first rank whose `mine` is not rank 0's: "WHAT: rank
/// 1 on HOST has ..., rank 0 has ...". Collective.
void require_same(Communicator& world, const std::string& host, const std::string& what,
                  const std::string& mine);

/// Throws ValueError, the same on all ranks, naming `flag` and the ranks that do not see what rank 0 writes
/// into `directory`; they are given `patience_seconds` for a slow file system. Leaves no trace. Collective.
void require_shared_directory(Communicator& world, const std::string& host, const std::string& flag,
                              const std::filesystem::path& directory, double patience_seconds = 2);

}  // namespace penstock
