// One long row of token ids: what a corpus becomes and what samplers cut windows from. Cheap to copy: the ids
// are shared, in memory or mapped from token files, in one, two or four bytes each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace penstock {

/// Tells whether two runs read the same data. Depends on the ids alone, not on files or their format.
struct RowFingerprint {
  std::int64_t tokens = 0;
  std::uint64_t hash = 0;  ///< over at most 65,536 evenly spaced ids, the first and the last among them
  friend bool operator==(const RowFingerprint&, const RowFingerprint&) = default;
};

class TokenRow {
 public:
  TokenRow() = default;
  /// A row in memory, in the narrowest width that holds `ids`. Throws ValueError for a negative id.
  explicit TokenRow(std::span<const std::int32_t> ids);

  /// A row over `count` little-endian unsigned ids of `width` bytes (1, 2 or 4) at `data`, which `owner`
  /// keeps alive. Ids of 2^31 and more must not be in it (the corpus builder checks ids).
  static TokenRow view(std::shared_ptr<const void> owner, const std::byte* data, int width,
                       std::int64_t count);

  std::int64_t size() const { return size_; }
  /// Copies ids begin .. begin + count - 1 to `out`. Throws ValueError when that is not inside the row.
  void copy(std::int64_t begin, std::int64_t count, std::int32_t* out) const;
  /// Ids begin .. end - 1 as a row. Throws ValueError unless 0 <= begin <= end <= size().
  TokenRow slice(std::int64_t begin, std::int64_t end) const;
  /// Puts `other` behind this row.
  void append(const TokenRow& other);
  RowFingerprint fingerprint() const;

 private:
  struct Segment {
    std::shared_ptr<const void> owner;
    const std::byte* data;
    std::int64_t begin;  // place of its first id in the row
    std::int64_t count;
    int width;
  };
  std::vector<Segment> segments_;
  std::int64_t size_ = 0;
};

/// (training row, held-out row) for --valid-fraction: of n tokens the last h = floor(fraction x n), the
/// product taken in double, are held out and the first n - h are trained on; no token is in both. Throws
/// ValueError unless 0 < fraction < 1.
std::pair<TokenRow, TokenRow> split_row(const TokenRow& row, double fraction);

}  // namespace penstock
