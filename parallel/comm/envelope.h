// Envelope: what travels in front of a tensor between ranks, so that a receiver never takes one message for
// another.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "parallel/comm/communicator.h"

namespace penstock {

/// Header, dtype and shape of a message, as plain bytes of a fixed size without padding.
struct Envelope {
  MessageHeader header;
  std::int32_t dtype = 0;
  std::int32_t rank = 0;
  std::array<std::int64_t, Shape::max_rank> sizes{};

  static Envelope of(const MessageHeader& header, const Tensor& tensor);

  /// Bytes of the tensor. Throws CommError for what no tensor can be.
  Index bytes() const;

  /// "stage 1, micro-batch 3, forward, part 0, fp32 (2, 3)"; also of damaged ones.
  std::string str() const;

  friend bool operator==(const Envelope&, const Envelope&) = default;
};
static_assert(std::is_trivially_copyable_v<Envelope> && sizeof(Envelope) == 16 + 8 + 8 * Shape::max_rank);

/// The message of a receive that got another message than it asked for.
std::string mismatch_message(const Envelope& got, const Envelope& expected, int source, int tag);

}  // namespace penstock
