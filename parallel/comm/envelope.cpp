// Envelope: made from a tensor, and put in words.
#include "parallel/comm/envelope.h"

#include <algorithm>
#include <span>

namespace penstock {
namespace {

std::string direction_name(std::int32_t direction) {
  switch (direction) {
    case 0:
      return "forward";
    case 1:
      return "backward";
    case 2:
      return "other";
  }
  return fmt::format("direction {}", direction);
}

std::string dtype_name(std::int32_t dtype) {
  if (dtype < 0 || dtype > static_cast<std::int32_t>(DType::u8)) return fmt::format("dtype {}", dtype);
  return std::string(name_of(static_cast<DType>(dtype)));
}

}  // namespace

Envelope Envelope::of(const MessageHeader& header, const Tensor& tensor) {
  Envelope result;
  result.header = header;
  result.dtype = static_cast<std::int32_t>(tensor.dtype());
  result.rank = tensor.shape().rank();
  std::ranges::copy(tensor.shape().sizes(), result.sizes.begin());
  return result;
}

Index Envelope::bytes() const {
  Index result = 1;
  bool good =
      dtype >= 0 && dtype <= static_cast<std::int32_t>(DType::u8) && rank >= 0 && rank <= Shape::max_rank;
  for (int i = 0; good && i < rank; ++i) {
    const Index size = sizes[static_cast<std::size_t>(i)];
    good = size >= 0 && !__builtin_mul_overflow(result, size, &result);
  }
  require<CommError>(good, "a damaged envelope: {}", str());
  return checked_product(result, size_of(static_cast<DType>(dtype)));
}

std::string Envelope::str() const {
  std::string shape;
  for (int i = 0; i < std::clamp(rank, 0, Shape::max_rank); ++i)
    shape += fmt::format("{}{}", i == 0 ? "" : ", ", sizes[static_cast<std::size_t>(i)]);
  return fmt::format("stage {}, micro-batch {}, {}, part {}, {} ({})", header.stage, header.micro_batch,
                     direction_name(header.direction), header.part, dtype_name(dtype), shape);
}

std::string mismatch_message(const Envelope& got, const Envelope& expected, int source, int tag) {
  return fmt::format("the message from rank {} (tag {}) is [{}] where [{}] was expected", source, tag,
                     got.str(), expected.str());
}

}  // namespace penstock
