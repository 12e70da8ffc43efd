// Agreement of the ranks on files.
#include "apps/common/agreement.h"

#include <fmt/ranges.h>

#include <chrono>
#include <optional>
#include <random>
#include <system_error>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/file.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// A file in a directory that is made for it, and gone again with the object.
class Token {
 public:
  Token(const fs::path& directory, const std::string& text) {
    std::vector<fs::path> missing;
    for (fs::path place = fs::absolute(directory); !fs::exists(place); place = place.parent_path())
      missing.push_back(place);
    for (; !missing.empty(); missing.pop_back())
      if (fs::create_directory(missing.back())) made_.push_back(missing.back());
    path_ = directory / fmt::format("agreement-{}.tmp", text);
    write_file(path_, text);
  }
  ~Token() {
    std::error_code error;
    fs::remove(path_, error);
    for (; !made_.empty(); made_.pop_back()) fs::remove(made_.back(), error);  // only where it is empty
  }
  Token(const Token&) = delete;
  Token& operator=(const Token&) = delete;

 private:
  fs::path path_;
  std::vector<fs::path> made_;
};

bool sees(const fs::path& path, const std::string& text, double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    std::error_code error;
    if (fs::is_regular_file(path, error)) {
      try {
        if (read_file(path) == text) return true;
      } catch (const IoError&) {  // gone again, or not yet whole
      }
    }
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

void require_same(Communicator& world, const std::string& host, const std::string& what,
                  const std::string& mine) {
  const std::vector<std::string> hosts = world.all_gather(host), values = world.all_gather(mine);
  for (std::size_t rank = 1; rank < values.size(); ++rank)
    require<ValueError>(values[rank] == values[0],
                        "{}: rank {} on {} has {}, rank 0 on {} has {}; all ranks need the same", what, rank,
                        hosts[rank], values[rank], hosts[0], values[0]);
}

void require_shared_directory(Communicator& world, const std::string& host, const std::string& flag,
                              const fs::path& directory, double patience_seconds) {
  if (world.size() == 1) return;
  std::random_device device;
  std::optional<Token> token;
  std::string failure, text = fmt::format("{:08x}{:08x}", device(), device());
  if (world.rank() == 0) {
    try {
      token.emplace(directory, text);
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }
  failure = world.all_gather(failure)[0];
  require<ValueError>(failure.empty(), "--{} {}: {}", flag, directory.string(), failure);
  text = world.all_gather(text)[0];
  const bool seen = sees(directory / fmt::format("agreement-{}.tmp", text), text, patience_seconds);
  const std::vector<std::string> blind =
      world.all_gather(seen ? std::string() : fmt::format("rank {} on {}", world.rank(), host));
  token.reset();
  std::vector<std::string> names;
  for (const std::string& name : blind)
    if (!name.empty()) names.push_back(name);
  require<ValueError>(
      names.empty(),
      "--{} {}: {} cannot see there what rank 0 writes; all ranks need the same directory, on a "
      "file system that their machines share",
      flag, directory.string(), fmt::join(names, ", "));
}

}  // namespace penstock
