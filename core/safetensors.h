// The safetensors file format (https://github.com/huggingface/safetensors): a reader that trusts nothing in
// the file, and an atomic writer. Both work on raw views, so they need no device, allocator or Tensor.
//
// A file is an 8-byte little-endian header length, a JSON header {name: {dtype, shape, data_offsets}} with
// optional
// "__metadata__" (text to text), and the tensors' bytes, without holes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/dtype.h"
#include "core/file.h"
#include "core/shape.h"

namespace penstock {

using SafetensorsMetadata = std::map<std::string, std::string>;

/// One tensor: a row-major view. What a reader gives may be unaligned for its type: copy it out with memcpy.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  const std::byte* data = nullptr;
  std::int64_t bytes = 0;
};

/// Name of a dtype in the file: "F32", "BF16", ...
std::string_view safetensors_dtype(DType dtype);

/// A mapped file; the entries' data live as long as the object.
class SafetensorsFile {
 public:
  /// Throws IoError naming file, tensor and reason for whatever the format does not allow: a header that is
  /// cut short, longer than 100 MB or not JSON of the right form; a name, key or metadata key twice; an
  /// unknown dtype; a negative or overflowing shape, or one that does not fit its bytes; ranges that overlap,
  /// leave a hole or lie outside; trailing bytes. Also for more than eight dimensions.
  explicit SafetensorsFile(const std::filesystem::path& path);

  /// In the order of their bytes. Tensors of a type that Penstock has not (BOOL, I16, F8_E4M3, ...) are left
  /// out.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  /// Names of the tensors that were left out, with their type as the file calls it.
  const std::map<std::string, std::string>& foreign() const { return foreign_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return file_.path(); }

  /// nullptr when there is no such tensor.
  const SafetensorsEntry* find(std::string_view name) const;
  /// Throws IoError naming file and tensor when it is not there or of a type that Penstock has not.
  const SafetensorsEntry& at(std::string_view name) const;

 private:
  MappedFile file_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::string> foreign_;
  SafetensorsMetadata metadata_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

/// Writes a file tensor by tensor, so that no more than one need be in memory. Names, types and shapes are
/// declared first (data and bytes of the entries are not read), then `append` gives each one's bytes in that
/// order.
class SafetensorsWriter {
 public:
  /// Throws ValueError for a name twice, the name "__metadata__", text that is not UTF-8; IoError when the
  /// file cannot be made.
  SafetensorsWriter(const std::filesystem::path& path, std::span<const SafetensorsEntry> declared,
                    const SafetensorsMetadata& metadata = {});

  /// Bytes of the next tensor; a tensor may come in several pieces. Throws ValueError when more bytes come
  /// than were declared, IoError when they cannot be written.
  void append(const void* data, std::int64_t bytes);
  /// Throws ValueError when bytes are missing, IoError when they cannot be written. Only now does the file
  /// appear.
  void commit();

 private:
  AtomicFile file_;
  std::int64_t expected_ = 0;  // bytes of the whole file
};

/// Writes all tensors at once, those with wide elements first (so that each is aligned), else in the given
/// order. Throws ValueError when an entry's `bytes` is not what its shape and type need, and as
/// SafetensorsWriter does.
void write_safetensors(const std::filesystem::path& path, std::span<const SafetensorsEntry> entries,
                       const SafetensorsMetadata& metadata = {});

}  // namespace penstock
