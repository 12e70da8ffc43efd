// open_source.
#include "apps/common/source_directory.h"

namespace penstock {

Checkpoint open_source(const std::string& flag, const std::string& directory) {
  const std::filesystem::path path = directory;
  std::error_code error;
  const bool hugging_face = std::filesystem::exists(path / "config.json", error) &&
                            !std::filesystem::exists(path / "manifest.json", error);
  require<ValueError>(!hugging_face,
                      "--{} {}: a Hugging Face directory is not yet read; give a Penstock checkpoint", flag,
                      directory);
  try {
    return Checkpoint::open(path);
  } catch (Error& e) {
    e.add_context(fmt::format("--{}", flag));
    throw;
  }
}

}  // namespace penstock
