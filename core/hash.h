// A 64-bit hash of bytes, for finding damaged files: not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace penstock {

/// Streams bytes in pieces of any size; the result depends on the bytes alone. Eight bytes at a time are
/// multiplied in with FNV's 64-bit prime and folded; the length and the last bytes close it.
class Hasher {
 public:
  void add(std::span<const std::byte> bytes) {
    std::size_t at = 0;
    while (pending_ != 0 && at < bytes.size()) push(bytes[at++]);
    while (at + 8 <= bytes.size()) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, 8);
      mix(word);
      at += 8;
      length_ += 8;
    }
    for (; at < bytes.size(); ++at) push(bytes[at]);
  }

  std::uint64_t value() const {
    std::uint64_t h = (state_ ^ word_ ^ (length_ << 1)) * prime;
    h ^= h >> 29;
    h *= prime;
    return h ^ (h >> 32);
  }

 private:
  static constexpr std::uint64_t prime = 0x100000001B3ULL;

  void push(std::byte b) {
    word_ |= static_cast<std::uint64_t>(b) << (8 * pending_);
    ++length_;
    if (++pending_ == 8) {
      mix(word_);
      word_ = 0;
      pending_ = 0;
    }
  }
  void mix(std::uint64_t word) {
    state_ = (state_ ^ word) * prime;
    state_ ^= state_ >> 32;
  }

  std::uint64_t state_ = 0xCBF29CE484222325ULL, word_ = 0, length_ = 0;
  int pending_ = 0;
};

}  // namespace penstock
