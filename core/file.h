// Files: a read-only mapping of a whole file, and a writer whose file appears complete or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace penstock {

/// A whole regular file, mapped read-only. The bytes live as long as the object; the file must not be cut
/// short meanwhile.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws IoError (path and reason) for a file that is missing, unreadable or not a regular file. An empty
  /// file gives an empty span.
  explicit MappedFile(std::filesystem::path path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void release() noexcept;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Writes a file under a temporary name beside it ("NAME.tmp-PID-N"); `commit` syncs it to disk, gives it its
/// name and syncs the folder. Until then, and after any failure, an older file of that name stands untouched
/// and the temporary one is removed by the destructor. A symbolic link is followed; a device (/dev/null,
/// /dev/stdout) or a pipe is written in place. An older file's permissions are kept.
class AtomicFile {
 public:
  /// Throws IoError when the folder is missing or not writable, or when `path` is a folder.
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  /// Appends. Throws IoError (disk full, ...); the file is then lost, `commit` refuses.
  void write(const void* data, std::int64_t bytes);
  void write(std::string_view text) { write(text.data(), static_cast<std::int64_t>(text.size())); }
  /// Makes the file appear. Throws IoError; may be called once.
  void commit();
  std::int64_t bytes_written() const { return written_; }

 private:
  [[noreturn]] void fail(const char* action, int error);
  void discard() noexcept;
  void flush();

  std::filesystem::path path_;       // as the caller named it, for messages
  std::filesystem::path target_;     // links resolved
  std::filesystem::path temporary_;  // empty when written in place
  std::string buffer_;
  std::int64_t written_ = 0;
  int descriptor_ = -1;
};

/// The whole of a file or pipe. Throws IoError with path and reason.
std::string read_file(const std::filesystem::path& path);

/// AtomicFile in one call. Throws IoError.
void write_file(const std::filesystem::path& path, std::string_view text);

/// Makes the names in a folder durable (after a rename, a new file, a removal). Throws IoError.
void sync_folder(const std::filesystem::path& folder);

}  // namespace penstock
