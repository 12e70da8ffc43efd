// Allocator and Storage.
#include "core/memory.h"

#include <cstdlib>
#include <cstring>

#include "core/rank_context.h"

namespace penstock {
namespace {

constexpr Index alignment = 64;

/// Size classes: multiples of 64 bytes up to 4 KiB, then eight classes for each power of two (at most 12.5 %
/// more).
Index size_class(Index bytes) {
  if (bytes <= alignment) return alignment;
  if (bytes <= 4096) return div_up(bytes, alignment) * alignment;
  Index step = 512;
  while (step * 16 <= bytes) step *= 2;
  return div_up(bytes, step) * step;
}

}  // namespace

std::string_view name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::parameter:
      return "parameter";
    case MemoryKind::gradient:
      return "gradient";
    case MemoryKind::optimizer:
      return "optimizer";
    case MemoryKind::activation:
      return "activation";
    case MemoryKind::workspace:
      return "workspace";
    case MemoryKind::communication:
      return "communication";
  }
  return "?";
}

Index MemoryCount::total() const {
  Index sum = 0;
  for (const Index bytes : by_kind) sum += bytes;
  return sum;
}

Allocator::~Allocator() {
  for (auto& [size, blocks] : free_)
    for (void* block : blocks) std::free(block);
}

void* Allocator::take_from_system(Index rounded) {
  void* memory = std::aligned_alloc(static_cast<std::size_t>(alignment), static_cast<std::size_t>(rounded));
  if (!memory) {  // give back what is cached, then try once more
    for (auto& [size, blocks] : free_)
      for (void* block : blocks) std::free(block);
    free_.clear();
    memory = std::aligned_alloc(static_cast<std::size_t>(alignment), static_cast<std::size_t>(rounded));
  }
  if (!memory) {
    std::string table;
    for (int k = 0; k < memory_kinds; ++k)
      table += fmt::format(" {} {}", name_of(static_cast<MemoryKind>(k)),
                           live_.by_kind[static_cast<std::size_t>(k)]);
    throw DeviceError(
        "out of memory: {} bytes asked for; live bytes:{}. A smaller --micro-batch or more stages (--pp) "
        "help.",
        rounded, table);
  }
  ++system_allocations_;
  return memory;
}

void* Allocator::allocate(Index bytes, MemoryKind kind) {
  require<DeviceError>(bytes >= 0 && bytes < (Index{1} << 48), "allocation of {} bytes", bytes);
  const std::lock_guard lock(mutex_);
  void* memory = nullptr;
  if (device_.kind != DeviceKind::meta) {
    const Index rounded = size_class(bytes);
    std::vector<void*>& blocks = free_[rounded];
    if (blocks.empty()) {
      memory = take_from_system(rounded);
    } else {
      memory = blocks.back();
      blocks.pop_back();
    }
  }
  const auto k = static_cast<std::size_t>(kind);
  live_.by_kind[k] += bytes;
  live_total_ += bytes;
  peak_.by_kind[k] = std::max(peak_.by_kind[k], live_.by_kind[k]);
  peak_total_ = std::max(peak_total_, live_total_);
  return memory;
}

void Allocator::release(void* memory, Index bytes, MemoryKind kind) {
  const std::lock_guard lock(mutex_);
  live_.by_kind[static_cast<std::size_t>(kind)] -= bytes;
  live_total_ -= bytes;
  if (!memory) return;
  if (poison_) std::memset(memory, 0xff, static_cast<std::size_t>(bytes));  // every float reads as NaN
  free_[size_class(bytes)].push_back(memory);
}

MemoryCount Allocator::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

MemoryCount Allocator::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

Index Allocator::peak_total() const {
  const std::lock_guard lock(mutex_);
  return peak_total_;
}

void Allocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = live_;
  peak_total_ = live_total_;
}

Index Allocator::system_allocations() const {
  const std::lock_guard lock(mutex_);
  return system_allocations_;
}

Storage::Storage(RankContext& context, Index bytes, MemoryKind kind)
    : context_(&context),
      allocator_(context.shared_allocator()),
      data_(static_cast<std::byte*>(allocator_->allocate(bytes, kind))),
      bytes_(bytes),
      kind_(kind) {}

Storage::~Storage() { allocator_->release(data_, bytes_, kind_); }

}  // namespace penstock
