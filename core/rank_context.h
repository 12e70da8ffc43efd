// RankContext: everything that one rank owns. A rank is a process, or a thread under --ranks. There is no
// other mutable global state, so many ranks in one process count memory, compute and fail each for itself.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <typeindex>

#include "core/memory.h"
#include "core/stream.h"

namespace penstock {

class RankContext {
 public:
  struct Options {
    Device device{};
    int threads = 1;                ///< compute threads, the caller included
    double deadline_seconds = 300;  ///< the longest that a wait for another rank may take
    bool poison = false;            ///< fill freed memory with NaN (debug builds: always)
  };

  explicit RankContext(const Options& options);
  RankContext() : RankContext(Options{}) {}
  RankContext(const RankContext&) = delete;
  RankContext& operator=(const RankContext&) = delete;

  Device device() const { return options_.device; }
  double deadline_seconds() const { return options_.deadline_seconds; }
  ThreadPool& pool() { return pool_; }
  /// The stream that forward and backward run on.
  Stream& stream() { return stream_; }
  Allocator& allocator() { return *allocator_; }
  const std::shared_ptr<Allocator>& shared_allocator() { return allocator_; }

  /// Work to do between two ops: the runtime moves its messages along here (Open MPI has no progress thread).
  void set_between_ops(std::function<void()> work) { between_ops_ = std::move(work); }
  void between_ops() {
    if (between_ops_) between_ops_();
  }

  /// A cache that lives as long as the rank (primitives, plans), one for each type T; made on first use.
  template <class T>
  T& cache() {
    std::shared_ptr<void>& slot = caches_[std::type_index(typeid(T))];
    if (!slot) slot = std::make_shared<T>();
    return *static_cast<T*>(slot.get());
  }

 private:
  Options options_;
  ThreadPool pool_;
  Stream stream_;
  std::shared_ptr<Allocator> allocator_;
  std::map<std::type_index, std::shared_ptr<void>> caches_;
  std::function<void()> between_ops_;
};

}  // namespace penstock
