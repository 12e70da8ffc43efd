// The compute threads of one rank. Work is cut by shape alone and results never depend on which thread takes
// a piece.
#pragma once

#include <functional>
#include <memory>

#include "core/checked.h"

namespace penstock {

class ThreadPool {
 public:
  /// `threads` counts the caller: 1 starts none. Throws ValueError below 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  /// Number of the calling thread among those of the pool whose task it runs, 0 for the pool's owner: a
  /// task's share of a workspace for each thread.
  static int worker();

  /// Calls body(task) once for each task in 0..tasks-1 and returns when all are done. Tasks are handed out
  /// one by one to the caller and the pool's threads. An exception of a task is rethrown here after the
  /// others ended. Not reentrant.
  template <class Body>
  void parallel_for(Index tasks, Body&& body) {
    if (threads_ == 1 || tasks <= 1) {
      for (Index task = 0; task < tasks; ++task) body(task);
      return;
    }
    run(
        tasks, [](void* b, Index task) { (*static_cast<std::remove_reference_t<Body>*>(b))(task); }, &body);
  }

  /// Cuts 0..n-1 into ranges of `grain` elements: calls body(begin, end) for each.
  template <class Body>
  void parallel_ranges(Index n, Index grain, Body&& body) {
    parallel_for(div_up(n, grain), [&](Index task) {
      const Index begin = task * grain;
      body(begin, begin + grain < n ? begin + grain : n);
    });
  }

  /// The thread that calls this, or runs a pool's tasks, uses no OpenMP threads of its own inside oneDNN.
  static void make_library_calls_single_threaded();

 private:
  using Task = void (*)(void*, Index);
  void run(Index tasks, Task task, void* body);

  struct State;
  std::unique_ptr<State> state_;
  int threads_;
};

}  // namespace penstock
