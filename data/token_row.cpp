// The row of tokens: segments of shared ids behind one another.
#include "data/token_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/checked.h"
#include "core/error.h"

namespace penstock {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

template <class Id>
void widen(const std::byte* data, std::int64_t begin, std::int64_t count, std::int32_t* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    Id id;
    std::memcpy(&id, data + (begin + i) * static_cast<std::int64_t>(sizeof(Id)), sizeof(Id));
    out[i] = static_cast<std::int32_t>(id);
  }
}

template <class Id>
std::shared_ptr<const void> narrowed(std::span<const std::int32_t> ids, const std::byte*& data) {
  auto owner = std::make_shared<std::vector<Id>>(ids.size());
  std::transform(ids.begin(), ids.end(), owner->begin(), [](std::int32_t id) { return static_cast<Id>(id); });
  data = reinterpret_cast<const std::byte*>(owner->data());
  return owner;
}

}  // namespace

TokenRow::TokenRow(std::span<const std::int32_t> ids) {
  if (ids.empty()) return;
  const auto [least, largest] = std::minmax_element(ids.begin(), ids.end());
  require<ValueError>(*least >= 0, "token row: id {} is negative", *least);
  Segment segment{nullptr, nullptr, 0, static_cast<std::int64_t>(ids.size()), 4};
  if (*largest < 256) {
    segment.width = 1;
    segment.owner = narrowed<std::uint8_t>(ids, segment.data);
  } else if (*largest < 65536) {
    segment.width = 2;
    segment.owner = narrowed<std::uint16_t>(ids, segment.data);
  } else {
    segment.owner = narrowed<std::uint32_t>(ids, segment.data);
  }
  size_ = segment.count;
  segments_.push_back(std::move(segment));
}

TokenRow TokenRow::view(std::shared_ptr<const void> owner, const std::byte* data, int width,
                        std::int64_t count) {
  require<ValueError>((width == 1 || width == 2 || width == 4) && count >= 0,
                      "token row: width {} must be 1, 2 or 4 bytes, count {} not negative", width, count);
  TokenRow row;
  if (count > 0) row.segments_.push_back({std::move(owner), data, 0, count, width});
  row.size_ = count;
  return row;
}

void TokenRow::copy(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
  require<ValueError>(begin >= 0 && count >= 0 && begin <= size_ && count <= size_ - begin,
                      "token row: {} ids from {} are not inside its {}", count, begin, size_);
  auto segment = std::upper_bound(segments_.begin(), segments_.end(), begin,
                                  [](std::int64_t place, const Segment& s) { return place < s.begin; });
  if (segment != segments_.begin()) --segment;
  for (; count > 0; ++segment) {
    const std::int64_t inside = begin - segment->begin;
    const std::int64_t piece = std::min(count, segment->count - inside);
    switch (segment->width) {
      case 1:
        widen<std::uint8_t>(segment->data, inside, piece, out);
        break;
      case 2:
        widen<std::uint16_t>(segment->data, inside, piece, out);
        break;
      default:
        widen<std::uint32_t>(segment->data, inside, piece, out);
    }
    begin += piece;
    count -= piece;
    out += piece;
  }
}

TokenRow TokenRow::slice(std::int64_t begin, std::int64_t end) const {
  require<ValueError>(begin >= 0 && begin <= end && end <= size_,
                      "token row: {} .. {} is not inside its {} ids", begin, end, size_);
  TokenRow result;
  for (const Segment& segment : segments_) {
    const std::int64_t from = std::max(begin, segment.begin);
    const std::int64_t to = std::min(end, segment.begin + segment.count);
    if (from >= to) continue;
    result.segments_.push_back({segment.owner, segment.data + (from - segment.begin) * segment.width,
                                from - begin, to - from, segment.width});
  }
  result.size_ = end - begin;
  return result;
}

void TokenRow::append(const TokenRow& other) {
  const std::vector<Segment> added = other.segments_;  // a copy: `other` may be this row
  const std::int64_t before = size_;
  for (Segment segment : added) {
    segment.begin += before;
    segments_.push_back(std::move(segment));
  }
  size_ = before + other.size_;
}

RowFingerprint TokenRow::fingerprint() const {
  constexpr std::int64_t most = 65536;
  const std::int64_t samples = std::min(size_, most);
  std::uint64_t hash = 0xCBF29CE484222325ULL;  // FNV-1a, 64 bits, an id at a time
  for (std::int64_t i = 0; i < samples; ++i) {
    // Evenly spaced, without overflow: i (n - 1) / (samples - 1).
    const std::int64_t gaps = std::max<std::int64_t>(samples - 1, 1);
    const std::int64_t whole = (size_ - 1) / gaps, rest = (size_ - 1) % gaps;
    std::int32_t id = 0;
    copy(i * whole + i * rest / gaps, 1, &id);
    hash = (hash ^ static_cast<std::uint32_t>(id)) * 0x100000001B3ULL;
  }
  return {size_, hash};
}

std::pair<TokenRow, TokenRow> split_row(const TokenRow& row, double fraction) {
  require<ValueError>(fraction > 0.0 && fraction < 1.0, "--valid-fraction {}: must lie between 0 and 1",
                      fraction);
  const auto held_out = static_cast<std::int64_t>(std::floor(fraction * static_cast<double>(row.size())));
  const std::int64_t trained = row.size() - held_out;
  return {row.slice(0, trained), row.slice(trained, row.size())};
}

}  // namespace penstock
