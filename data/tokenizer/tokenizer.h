// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// A tokenizer is immutable: one object serves any number of threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Ids of a text, without special tokens.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// The bytes of the ids, which need not be valid UTF-8. Throws ValueError for an id outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// Number of ids: they are 0 .. vocabulary() - 1.
  virtual std::int64_t vocabulary() const = 0;
};

/// The tokenizer of a `--tokenizer` value. "byte": every byte is its own id, vocabulary 256. Throws
/// ValueError for any other value: tokenizer files are not built yet.
std::unique_ptr<Tokenizer> load_tokenizer(std::string_view spec);

}  // namespace penstock
