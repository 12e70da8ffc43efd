// Memory of a rank: an allocator that counts bytes by kind and keeps freed blocks for the next step, and
// Storage.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "core/checked.h"
#include "core/device.h"

namespace penstock {

class RankContext;
class Stream;

/// What memory is used for. Accounting, reports and predictions go by kind.
enum class MemoryKind : std::uint8_t { parameter, gradient, optimizer, activation, workspace, communication };
inline constexpr int memory_kinds = 6;

std::string_view name_of(MemoryKind kind);

/// Bytes by kind.
struct MemoryCount {
  std::array<Index, memory_kinds> by_kind{};

  Index operator[](MemoryKind kind) const { return by_kind[static_cast<std::size_t>(kind)]; }
  Index total() const;
};

/// Allocator of one rank on one device. Counts requested bytes exactly (rounding and caching do not show).
/// Freed blocks are kept by size and handed out again, so that a steady step takes nothing from the system.
/// Thread-safe: a tensor handed to another rank's thread may be freed there.
class Allocator {
 public:
  explicit Allocator(Device device, bool poison = false) : device_(device), poison_(poison) {}
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// Memory aligned to 64 bytes; nullptr on the meta device. Throws DeviceError with the table of what is
  /// live when there is none left. Zero bytes are fine.
  void* allocate(Index bytes, MemoryKind kind);
  void release(void* memory, Index bytes, MemoryKind kind);

  MemoryCount live() const;
  /// Largest live bytes of each kind, and of their sum, since the last `reset_peak`.
  MemoryCount peak() const;
  Index peak_total() const;
  void reset_peak();
  /// Blocks taken from the system so far.
  Index system_allocations() const;

 private:
  void* take_from_system(Index rounded);

  Device device_;
  bool poison_;
  mutable std::mutex mutex_;
  std::map<Index, std::vector<void*>> free_;  // by rounded size
  MemoryCount live_, peak_;
  Index live_total_ = 0, peak_total_ = 0, system_allocations_ = 0;
};

/// An owning piece of device memory.
class Storage {
 public:
  Storage(RankContext& context, Index bytes, MemoryKind kind);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return data_; }
  Index bytes() const { return bytes_; }
  MemoryKind kind() const { return kind_; }
  RankContext& context() const { return *context_; }
  /// How often the bytes were changed in place since they were made, as far as the writers told: a backward
  /// sees by it that a value which its forward saved is another one now. Every view of the storage counts.
  std::uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void changed_in_place() { version_.fetch_add(1, std::memory_order_relaxed); }
  /// Tells the allocator that `stream` uses this memory, so that it is not reused before that stream has
  /// passed here.
  void record(Stream& stream) { (void)stream; }

 private:
  RankContext* context_;
  std::shared_ptr<Allocator> allocator_;
  std::byte* data_;
  Index bytes_;
  MemoryKind kind_;
  std::atomic<std::uint32_t> version_ = 0;
};

}  // namespace penstock
