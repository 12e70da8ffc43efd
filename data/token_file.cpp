// Token files, mapped; every id is looked at once, so that a bad one is found before work starts.
#include "data/token_file.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "core/error.h"
#include "core/file.h"

namespace penstock {
namespace {

constexpr std::size_t header_bytes = 256 * sizeof(std::int32_t);

struct HeaderKind {
  std::int32_t magic, version;
  int width;
};
constexpr HeaderKind header_kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

// The largest id; throws for one that is too large.
template <class Id>
std::int64_t largest_id(const std::string& file, const std::byte* data, std::int64_t count,
                        std::int64_t bound) {
  Id largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Id id;
    std::memcpy(&id, data + i * static_cast<std::int64_t>(sizeof(Id)), sizeof(Id));
    if (static_cast<std::int64_t>(id) >= bound)
      throw IoError("{}: token {} is {}, not below the vocabulary of {} (is --token-dtype right?)", file, i,
                    id, bound);
    largest = std::max(largest, id);
  }
  return static_cast<std::int64_t>(largest);
}

}  // namespace

TokenDType parse_token_dtype(std::string_view text) {
  if (text == "auto") return TokenDType::automatic;
  if (text == "uint16") return TokenDType::uint16;
  if (text == "uint32") return TokenDType::uint32;
  throw ValueError("--token-dtype {}: allowed are auto, uint16, uint32", text);
}

TokenFile open_token_file(const std::filesystem::path& path, TokenDType dtype, std::int64_t vocabulary) {
  const std::string file = path.string();
  const auto mapped = std::make_shared<const MappedFile>(path);
  const std::span<const std::byte> bytes = mapped->bytes();
  require<IoError>(!bytes.empty(), "{}: is empty", file);

  TokenFile result;
  std::int32_t start[3] = {0, 0, 0};  // magic, version, number of tokens
  std::memcpy(start, bytes.data(), std::min(sizeof start, bytes.size()));
  const auto* const kind = std::find_if(std::begin(header_kinds), std::end(header_kinds),
                                        [&](const HeaderKind& k) { return k.magic == start[0]; });
  std::size_t offset = 0;
  if (kind != std::end(header_kinds)) {
    result.has_header = true;
    result.width = kind->width;
    offset = header_bytes;
    require<IoError>(bytes.size() >= header_bytes, "{}: is truncated: {} bytes of a header of {}", file,
                     bytes.size(), header_bytes);
    require<IoError>(start[1] == kind->version,
                     "{}: header version {} is not known (allowed with magic {}: {})", file, start[1],
                     kind->magic, kind->version);
    require<IoError>(dtype == TokenDType::automatic || (dtype == TokenDType::uint16) == (kind->width == 2),
                     "{}: its header says uint{}, --token-dtype something else", file, 8 * kind->width);
    require<IoError>(start[2] > 0, "{}: its header counts {} tokens", file, start[2]);
    const auto expected = static_cast<std::size_t>(start[2]) * static_cast<std::size_t>(kind->width);
    const std::size_t present = bytes.size() - header_bytes;
    require<IoError>(present >= expected,
                     "{}: is truncated: its header counts {} tokens ({} bytes), {} bytes are there", file,
                     start[2], expected, present);
    require<IoError>(present == expected, "{}: {} bytes behind the {} tokens that its header counts", file,
                     present - expected, start[2]);
  } else {
    const bool wide = dtype == TokenDType::uint32 || (dtype == TokenDType::automatic && vocabulary > 65536);
    result.width = wide ? 4 : 2;
    require<IoError>(bytes.size() % static_cast<std::size_t>(result.width) == 0,
                     "{}: is truncated or no token file: {} bytes are not whole ids of {} bytes", file,
                     bytes.size(), result.width);
  }

  const std::byte* const data = bytes.data() + offset;
  const auto count =
      static_cast<std::int64_t>((bytes.size() - offset) / static_cast<std::size_t>(result.width));
  const std::int64_t bound =
      vocabulary > 0 ? vocabulary : std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1;
  result.largest = result.width == 2 ? largest_id<std::uint16_t>(file, data, count, bound)
                                     : largest_id<std::uint32_t>(file, data, count, bound);
  result.row = TokenRow::view(mapped, data, result.width, count);
  return result;
}

}  // namespace penstock
