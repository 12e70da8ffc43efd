// The byte tokenizer: an id is a byte's value.
#include "data/tokenizer/byte_tokenizer.h"

#include "core/error.h"

namespace penstock {

std::vector<std::int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size());
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const std::int32_t id : ids) {
    require<ValueError>(id >= 0 && id < 256, "byte tokenizer: id {} is outside 0 .. 255", id);
    text.push_back(static_cast<char>(static_cast<unsigned char>(id)));
  }
  return text;
}

}  // namespace penstock
