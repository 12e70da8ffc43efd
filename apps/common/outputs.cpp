// Checks of outputs.
#include "apps/common/outputs.h"

#include <unistd.h>

#include <system_error>

#include "core/error.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

void require_access(const std::string& flag, const std::string& path, const fs::path& place) {
  require<IoError>(access(place.c_str(), W_OK) == 0, "--{} {}: {} may not be written", flag, path,
                   place.string());
}

/// The place that a path leads to, links resolved where they exist.
fs::path resolved(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  const fs::path place = fs::weakly_canonical(absolute, error);
  return error ? absolute : place;
}

}  // namespace

void require_writable_file(const std::string& flag, const std::string& path) {
  std::error_code error;
  require<IoError>(!path.empty(), "--{} '': a file's name is wanted", flag);
  require<IoError>(!fs::is_directory(path, error), "--{} {}: is a directory", flag, path);
  const fs::path folder = fs::absolute(path, error).parent_path();
  require<IoError>(fs::is_directory(folder, error), "--{} {}: there is no directory {}", flag, path,
                   folder.string());
  require_access(flag, path, fs::exists(path, error) ? fs::path(path) : folder);
}

void require_writable_folder(const std::string& flag, const std::string& path) {
  std::error_code error;
  require<IoError>(!path.empty(), "--{} '': a directory's name is wanted", flag);
  fs::path place = resolved(path);
  require<IoError>(!fs::is_symlink(place, error), "--{} {}: is a link that leads nowhere", flag, path);
  while (!fs::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  require<IoError>(fs::is_directory(place, error), "--{} {}: {} is no directory", flag, path, place.string());
  require_access(flag, path, place);
}

void require_distinct(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto refuse_same = [&, place = resolved(outputs[i].path)](const NamedPath& other) {
      require<ValueError>(place != resolved(other.path), "--{} {}: --{} names the same file", outputs[i].flag,
                          outputs[i].path, other.flag);
    };
    for (std::size_t k = 0; k < i; ++k) refuse_same(outputs[k]);
    for (const NamedPath& input : inputs) refuse_same(input);
  }
}

}  // namespace penstock
