// Streams and events: the order in which a device runs kernels. On the CPU they are synchronous, the contract
// is the same.
#pragma once

#include "core/device.h"
#include "core/thread_pool.h"

namespace penstock {

class Stream;

/// A point in a stream. `Stream::record` sets it, `Stream::wait` orders another stream behind it.
class Event {
 public:
  /// True once all that was recorded before it has run.
  bool query() const { return true; }
  /// Holds the host until then.
  void synchronize() const {}

 private:
  friend class Stream;
  void* native_ = nullptr;
};

/// A queue of kernels on a device, owned by a RankContext. Every kernel takes one.
class Stream {
 public:
  Stream(Device device, ThreadPool& pool) : device_(device), pool_(&pool) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device device() const { return device_; }
  /// The rank's compute threads, for kernels that run on the CPU.
  ThreadPool& pool() { return *pool_; }

  void record(Event& event) { event.native_ = native_; }
  /// What is queued here from now on runs after `event`.
  void wait(const Event& event) { (void)event; }
  /// Holds the host until everything queued has run.
  void synchronize() {}

  /// Floating-point operations of the matrix products that went through this stream, counted on every device:
  /// the cost that a block states is this count on `meta`.
  double flops() const { return flops_; }
  void count_flops(double flops) { flops_ += flops; }

 private:
  Device device_;
  ThreadPool* pool_;
  void* native_ = nullptr;
  double flops_ = 0;
};

}  // namespace penstock
