// Files over POSIX calls: mapping, and writing under a temporary name until all is on disk.
#include "core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace penstock {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 16;

std::string reason(int error) { return std::generic_category().message(error); }

// A descriptor that is closed when the scope ends.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }

 private:
  int value_;
};

int open_retrying(const char* path, int flags, mode_t mode = 0) {
  int descriptor = -1;
  do descriptor = ::open(path, flags | O_CLOEXEC, mode);
  while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

// The folder that holds `path`.
std::filesystem::path folder_of(const std::filesystem::path& path) {
  const auto parent = path.parent_path();
  return parent.empty() ? std::filesystem::path(".") : parent;
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  // Not blocking: opening a pipe must not wait for its other end just to be refused.
  const Descriptor descriptor(open_retrying(path_.c_str(), O_RDONLY | O_NONBLOCK));
  require<IoError>(descriptor.get() >= 0, "{}: cannot open: {}", path_.string(), reason(errno));
  struct stat status {};
  require<IoError>(::fstat(descriptor.get(), &status) == 0, "{}: cannot read its size: {}", path_.string(),
                   reason(errno));
  require<IoError>(!S_ISDIR(status.st_mode), "{}: is a folder, not a file", path_.string());
  require<IoError>(S_ISREG(status.st_mode), "{}: is not a regular file", path_.string());
  if (status.st_size == 0) return;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
  require<IoError>(address != MAP_FAILED, "{}: cannot map {} bytes: {}", path_.string(), size, reason(errno));
  data_ = static_cast<const std::byte*>(address);
  size_ = size;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  release();
  path_ = std::move(other.path_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

MappedFile::~MappedFile() { release(); }

void MappedFile::release() noexcept {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  data_ = nullptr;
  size_ = 0;
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)), target_(path_) {
  require<IoError>(!path_.filename().empty(), "'{}': is not a file name", path_.string());
  struct stat status {};
  const bool exists = ::stat(path_.c_str(), &status) == 0;
  require<IoError>(!exists || !S_ISDIR(status.st_mode), "{}: cannot write: is a folder", path_.string());
  if (exists && !S_ISREG(status.st_mode)) {  // a device or pipe has no older content to keep
    descriptor_ = open_retrying(path_.c_str(), O_WRONLY);
    if (descriptor_ < 0) fail("cannot open for writing", errno);
    return;
  }
  if (exists) {
    std::error_code error;
    target_ = std::filesystem::canonical(path_, error);
    if (error) fail("cannot resolve", error.value());
    if (::access(target_.c_str(), W_OK) != 0) fail("cannot write", errno);
  }
  static std::atomic<unsigned> counter{0};
  for (int attempt = 0; descriptor_ < 0; ++attempt) {
    temporary_ = target_;
    temporary_ += fmt::format(".tmp-{}-{}", ::getpid(), counter++);
    descriptor_ = open_retrying(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (descriptor_ < 0 && (errno != EEXIST || attempt == 100)) {
      const int error = errno;
      temporary_.clear();  // not ours
      fail("cannot create a file beside it", error);
    }
  }
  if (exists && ::fchmod(descriptor_, status.st_mode & 07777) != 0) fail("cannot set permissions", errno);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void AtomicFile::fail(const char* action, int error) {
  discard();
  throw IoError("{}: {}: {}", path_.string(), action, reason(error));
}

void AtomicFile::flush() {
  const char* rest = buffer_.data();
  std::size_t left = buffer_.size();
  while (left > 0) {
    const ssize_t done = ::write(descriptor_, rest, left);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail("cannot write", errno);
    rest += done;
    left -= static_cast<std::size_t>(done);
  }
  buffer_.clear();
}

void AtomicFile::write(const void* data, std::int64_t bytes) {
  require<IoError>(descriptor_ >= 0, "{}: written to after it was closed or failed", path_.string());
  require<ValueError>(bytes >= 0, "{}: cannot write {} bytes", path_.string(), bytes);
  const char* rest = static_cast<const char*>(data);
  for (auto left = static_cast<std::size_t>(bytes); left > 0;) {
    const std::size_t piece = std::min(left, buffer_bytes - buffer_.size());
    buffer_.append(rest, piece);
    if (buffer_.size() == buffer_bytes) flush();
    rest += piece;
    left -= piece;
  }
  written_ += bytes;
}

void AtomicFile::commit() {
  require<IoError>(descriptor_ >= 0, "{}: cannot be finished: it was closed or failed", path_.string());
  flush();
  const bool in_place = temporary_.empty();
  if (!in_place && ::fsync(descriptor_) != 0) fail("cannot sync", errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("cannot close", errno);
  if (in_place) return;
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) fail("cannot rename", errno);
  temporary_.clear();
  sync_folder(folder_of(target_));
}

std::string read_file(const std::filesystem::path& path) {
  const Descriptor descriptor(open_retrying(path.c_str(), O_RDONLY));
  require<IoError>(descriptor.get() >= 0, "{}: cannot open: {}", path.string(), reason(errno));
  std::string text;
  for (;;) {
    const std::size_t before = text.size();
    text.resize(before + buffer_bytes);
    const ssize_t got = ::read(descriptor.get(), text.data() + before, buffer_bytes);
    if (got < 0 && errno != EINTR) throw IoError("{}: cannot read: {}", path.string(), reason(errno));
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return text;
  }
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void sync_folder(const std::filesystem::path& folder) {
  const Descriptor descriptor(open_retrying(folder.c_str(), O_RDONLY | O_DIRECTORY));
  require<IoError>(descriptor.get() >= 0, "{}: cannot open: {}", folder.string(), reason(errno));
  // Some network file systems know no sync of a folder: they say EINVAL and have nothing to do.
  require<IoError>(::fsync(descriptor.get()) == 0 || errno == EINVAL, "{}: cannot sync: {}", folder.string(),
                   reason(errno));
}

}  // namespace penstock
