// The safetensors format: the header is read by events, so that its depth, its keys and their form are
// checked while it is parsed and nothing is built from what is wrong.
#include "core/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/error.h"

namespace penstock {
namespace {

static_assert(std::endian::native == std::endian::little, "the file format is little-endian");

constexpr std::uint64_t largest_header = 100'000'000;
constexpr std::string_view metadata_key = "__metadata__";

struct FileType {
  std::string_view name;
  std::int64_t bytes;
  std::optional<DType> dtype;  // nothing: a type of the format that Penstock has not
};

constexpr FileType file_types[] = {
    {"F32", 4, DType::f32},       {"F64", 8, DType::f64},           {"BF16", 2, DType::bf16},
    {"F16", 2, DType::f16},       {"I32", 4, DType::i32},           {"I64", 8, DType::i64},
    {"U8", 1, DType::u8},         {"BOOL", 1, std::nullopt},        {"I8", 1, std::nullopt},
    {"I16", 2, std::nullopt},     {"U16", 2, std::nullopt},         {"U32", 4, std::nullopt},
    {"U64", 8, std::nullopt},     {"F8_E5M2", 1, std::nullopt},     {"F8_E4M3", 1, std::nullopt},
    {"F8_E8M0", 1, std::nullopt}, {"F8_E4M3FNUZ", 1, std::nullopt}, {"F8_E5M2FNUZ", 1, std::nullopt},
    {"C64", 8, std::nullopt},
};

// One tensor of the header, as it stands there.
struct Declared {
  std::string name;
  const FileType* type = nullptr;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> offsets;
  bool has_shape = false, has_offsets = false;
};

// Takes the parser's events. Depth 1 is the header, 2 a tensor or the metadata, 3 a list of numbers.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(std::string file) : file_(std::move(file)) {}

  std::vector<Declared> tensors;
  SafetensorsMetadata metadata;

  bool key(std::string& name) override {
    if (depth_ == 1) {
      expect(names_.insert(name).second, "stands twice in the header", name);
      in_metadata_ = name == metadata_key;
      if (!in_metadata_) tensors.emplace_back().name = name;
    } else if (!in_metadata_) {
      expect(name == "dtype" || name == "shape" || name == "data_offsets",
             fmt::format("unknown key '{}' in the header", name));
    }
    key_ = name;
    return true;
  }

  bool start_object(std::size_t) override {
    expect(depth_ < 2, "its header entry is nested too deeply");
    ++depth_;
    return true;
  }

  bool end_object() override {
    if (--depth_ != 1 || in_metadata_) return true;
    const Declared& tensor = tensors.back();
    expect(tensor.type != nullptr, "has no dtype");
    expect(tensor.has_shape, "has no shape");
    expect(tensor.has_offsets && tensor.offsets.size() == 2, "data_offsets must be two numbers");
    return true;
  }

  bool start_array(std::size_t) override {
    expect(depth_ == 2 && !in_metadata_, "a list where none belongs");
    expect(key_ == "shape" || key_ == "data_offsets", fmt::format("{} must not be a list", key_));
    bool& seen = key_ == "shape" ? tensors.back().has_shape : tensors.back().has_offsets;
    expect(!seen, fmt::format("{} stands twice", key_));
    seen = true;
    ++depth_;
    return true;
  }

  bool end_array() override {
    --depth_;
    return true;
  }

  bool number_unsigned(std::uint64_t value) override {
    expect(depth_ == 3, "a number where none belongs");
    expect(std::in_range<std::int64_t>(value), fmt::format("{} in {} is too large", value, key_));
    auto& list = key_ == "shape" ? tensors.back().shape : tensors.back().offsets;
    list.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool number_integer(std::int64_t value) override {
    return refuse(fmt::format("{} in {} must not be negative", value, key_));
  }

  bool number_float(double, const std::string& text) override {
    return refuse(fmt::format("{} in {} is not an integer of 64 bits", text, key_));
  }

  bool string(std::string& value) override {
    if (depth_ == 2 && in_metadata_) {
      expect(metadata.emplace(key_, value).second, fmt::format("key '{}' stands twice", key_));
      return true;
    }
    expect(depth_ == 2 && key_ == "dtype", "a text where none belongs");
    expect(tensors.back().type == nullptr, "dtype stands twice");
    for (const FileType& type : file_types)
      if (type.name == value) tensors.back().type = &type;
    expect(tensors.back().type != nullptr, fmt::format("unknown dtype '{}'", value));
    return true;
  }

  bool null() override {
    expect(depth_ == 1 && in_metadata_, "a null where none belongs");
    return true;
  }

  bool boolean(bool) override { return refuse("a truth value where none belongs"); }
  bool binary(nlohmann::json::binary_t&) override { return refuse("binary data where none belongs"); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    throw IoError("{}: the header is not valid JSON (near its byte {})", file_, position);
  }

 private:
  // Throws, naming what is being read, unless the condition holds.
  void expect(bool condition, const std::string& why, const std::string& name = {}) const {
    if (condition) return;
    if (!name.empty()) throw IoError("{}: '{}' {}", file_, name, why);
    if (depth_ == 0 || key_.empty()) throw IoError("{}: header: {}", file_, why);
    if (in_metadata_) throw IoError("{}: {}: {}", file_, metadata_key, why);
    throw IoError("{}: tensor '{}': {}", file_, tensors.empty() ? key_ : tensors.back().name, why);
  }
  bool refuse(const std::string& why) const {
    expect(false, why);
    return false;
  }

  std::string file_;
  std::string key_;
  std::unordered_set<std::string> names_;
  int depth_ = 0;
  bool in_metadata_ = false;
};

// Elements of a shape times bytes of one; nothing when that overflows.
std::optional<std::int64_t> bytes_of(std::span<const std::int64_t> shape, std::int64_t element_bytes) {
  std::int64_t bytes = element_bytes;
  for (const std::int64_t size : shape)
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  return bytes;
}

std::string_view header_text(const MappedFile& file) {
  const std::string name = file.path().string();
  const std::string_view text = file.text();
  std::uint64_t length = 0;
  require<IoError>(text.size() >= sizeof length, "{}: {} bytes are too few for a safetensors file", name,
                   text.size());
  std::memcpy(&length, text.data(), sizeof length);
  require<IoError>(length <= largest_header,
                   "{}: a header of {} bytes (allowed: {}); is it a safetensors file?", name, length,
                   largest_header);
  require<IoError>(length <= text.size() - sizeof length,
                   "{}: is truncated: its header has {} bytes, {} are there", name, length,
                   text.size() - sizeof length);
  const std::string_view header = text.substr(sizeof length, length);
  require<IoError>(header.starts_with('{'), "{}: the header is not a JSON object", name);
  return header;
}

}  // namespace

std::string_view safetensors_dtype(DType dtype) {
  for (const FileType& type : file_types)
    if (type.dtype == dtype) return type.name;
  throw ValueError("safetensors has no type for {}", name_of(dtype));
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const std::string file = path.string();
  const std::string_view header = header_text(file_);
  HeaderReader reader(file);
  nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
  metadata_ = std::move(reader.metadata);

  const std::byte* const data = file_.bytes().data() + sizeof(std::uint64_t) + header.size();
  const auto data_bytes =
      static_cast<std::int64_t>(file_.bytes().size() - sizeof(std::uint64_t) - header.size());
  std::sort(reader.tensors.begin(), reader.tensors.end(),
            [](const Declared& a, const Declared& b) { return a.offsets < b.offsets; });
  std::int64_t end_of_last = 0;
  for (Declared& tensor : reader.tensors) {
    const std::int64_t begin = tensor.offsets[0], end = tensor.offsets[1];
    require<IoError>(begin <= end, "{}: tensor '{}': data_offsets {} and {} run backwards", file, tensor.name,
                     begin, end);
    require<IoError>(end <= data_bytes, "{}: is truncated: tensor '{}' ends at byte {} of {}", file,
                     tensor.name, end, data_bytes);
    require<IoError>(begin >= end_of_last,
                     "{}: tensor '{}' begins at byte {}, inside the one that ends at {}", file, tensor.name,
                     begin, end_of_last);
    require<IoError>(begin == end_of_last, "{}: a hole of {} bytes before tensor '{}'", file,
                     begin - end_of_last, tensor.name);
    end_of_last = end;
    const auto needed = bytes_of(tensor.shape, tensor.type->bytes);
    require<IoError>(needed.has_value(), "{}: tensor '{}': shape ({}) overflows 64 bits", file, tensor.name,
                     fmt::join(tensor.shape, ", "));
    require<IoError>(*needed == end - begin, "{}: tensor '{}': shape ({}) of {} needs {} bytes, it has {}",
                     file, tensor.name, fmt::join(tensor.shape, ", "), tensor.type->name, *needed,
                     end - begin);
    if (!tensor.type->dtype) {
      foreign_.emplace(std::move(tensor.name), tensor.type->name);
      continue;
    }
    SafetensorsEntry entry{tensor.name, *tensor.type->dtype, {}, data + begin, end - begin};
    try {
      entry.shape = Shape(std::span<const Index>(tensor.shape));
    } catch (const ShapeError& error) {
      throw IoError("{}: tensor '{}': {}", file, tensor.name, error.what());
    }
    by_name_.emplace(std::move(tensor.name), entries_.size());
    entries_.push_back(std::move(entry));
  }
  require<IoError>(end_of_last == data_bytes, "{}: {} bytes behind the last tensor", file,
                   data_bytes - end_of_last);
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

const SafetensorsEntry& SafetensorsFile::at(std::string_view name) const {
  if (const SafetensorsEntry* entry = find(name)) return *entry;
  const auto other = foreign_.find(std::string(name));
  require<IoError>(other == foreign_.end(), "{}: tensor '{}' is {}, a type that is not supported",
                   path().string(), name, other == foreign_.end() ? "" : other->second);
  throw IoError("{}: has no tensor '{}'", path().string(), name);
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::span<const SafetensorsEntry> declared,
                                     const SafetensorsMetadata& metadata)
    : file_(path) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(metadata_key)] = metadata;
  std::int64_t offset = 0;
  std::unordered_set<std::string> names;
  for (const SafetensorsEntry& entry : declared) {
    require<ValueError>(entry.name != metadata_key, "{}: a tensor cannot be named {}", path.string(),
                        metadata_key);
    require<ValueError>(names.insert(entry.name).second, "{}: tensor '{}' is given twice", path.string(),
                        entry.name);
    const std::int64_t begin = offset;
    offset += checked_product(entry.shape.numel(), size_of(entry.dtype));
    nlohmann::ordered_json& record =
        header.emplace(entry.name, nlohmann::ordered_json::object()).first.value();
    record["dtype"] = safetensors_dtype(entry.dtype);
    record["shape"] = std::vector<Index>(entry.shape.sizes().begin(), entry.shape.sizes().end());
    record["data_offsets"] = {begin, offset};
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    throw ValueError("{}: a tensor's name or the metadata is not valid UTF-8", path.string());
  }
  text.resize(static_cast<std::size_t>(div_up(static_cast<Index>(text.size()), 8)) * 8,
              ' ');  // aligns the data
  const std::uint64_t length = text.size();
  require<ValueError>(length <= largest_header, "{}: the header would have {} bytes (allowed: {})",
                      path.string(), length, largest_header);
  file_.write(&length, sizeof length);
  file_.write(text);
  expected_ = file_.bytes_written() + offset;
}

void SafetensorsWriter::append(const void* data, std::int64_t bytes) {
  require<ValueError>(bytes <= expected_ - file_.bytes_written(),
                      "safetensors: {} bytes given, {} are missing", bytes,
                      expected_ - file_.bytes_written());
  file_.write(data, bytes);
}

void SafetensorsWriter::commit() {
  require<ValueError>(file_.bytes_written() == expected_,
                      "safetensors: {} bytes of the declared tensors are missing",
                      expected_ - file_.bytes_written());
  file_.commit();
}

void write_safetensors(const std::filesystem::path& path, std::span<const SafetensorsEntry> entries,
                       const SafetensorsMetadata& metadata) {
  std::vector<SafetensorsEntry> sorted(entries.begin(), entries.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return size_of(a.dtype) > size_of(b.dtype);
  });
  for (const SafetensorsEntry& entry : sorted) {
    const std::int64_t needed = checked_product(entry.shape.numel(), size_of(entry.dtype));
    require<ValueError>(entry.bytes == needed, "{}: tensor '{}' {} of {} needs {} bytes, {} given",
                        path.string(), entry.name, entry.shape.str(), name_of(entry.dtype), needed,
                        entry.bytes);
  }
  SafetensorsWriter writer(path, sorted, metadata);
  for (const SafetensorsEntry& entry : sorted) writer.append(entry.data, entry.bytes);
  writer.commit();
}

}  // namespace penstock
