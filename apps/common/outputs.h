// What a program will write, checked before work starts and without leaving a trace.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace penstock {

/// Throws IoError, naming the flag, unless the file can be made or replaced: its folder exists and may be
/// written, and it is no folder.
void require_writable_file(const std::string& flag, const std::string& path);

/// Throws IoError, naming the flag, unless the folder may be written or can be made.
void require_writable_folder(const std::string& flag, const std::string& path);

struct NamedPath {
  std::string flag, path;
};

/// Throws ValueError when two of the outputs, or an output and an input, are the same file.
void require_distinct(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs);

}  // namespace penstock
