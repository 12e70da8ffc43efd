// The byte tokenizer: needs no file, knows every text, vocabulary 256.
#pragma once

#include "data/tokenizer/tokenizer.h"

namespace penstock {

class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::int64_t vocabulary() const override { return 256; }
};

}  // namespace penstock
