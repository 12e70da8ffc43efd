// ThreadPool: workers spin shortly for the next loop, then sleep.
#include "core/thread_pool.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

// oneDNN is built with OpenMP; each of our threads makes single-threaded calls. Weak, so that a oneDNN with
// another threading runtime links too.
extern "C" void omp_set_num_threads(int) __attribute__((weak));

namespace penstock {
namespace {

thread_local int worker_number = 0;

}  // namespace

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<std::uint64_t> generation{0};
  std::atomic<bool> stop{false};

  // The loop in progress.
  std::atomic<Index> next{0};
  Index tasks = 0;
  Task task = nullptr;
  void* body = nullptr;
  std::atomic<int> busy{0};
  std::exception_ptr error;
  std::mutex error_mutex;

  std::vector<std::thread> workers;

  void take_tasks() {
    for (Index i = next.fetch_add(1); i < tasks; i = next.fetch_add(1)) {
      try {
        task(body, i);
      } catch (...) {
        const std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
      }
    }
  }

  void work(int number) {
    worker_number = number;
    make_library_calls_single_threaded();
    std::uint64_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < spin_rounds && generation.load() == seen && !stop.load(); ++spin) pause();
      if (generation.load() == seen && !stop.load()) {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return generation.load() != seen || stop.load(); });
      }
      if (stop.load()) return;
      seen = generation.load();
      take_tasks();
      busy.fetch_sub(1);
    }
  }

  static constexpr int spin_rounds = 4000;

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()), threads_(threads) {
  require<ValueError>(threads >= 1, "a rank needs at least one compute thread, not {}", threads);
  make_library_calls_single_threaded();
  state_->workers.reserve(static_cast<std::size_t>(threads - 1));
  for (int i = 1; i < threads; ++i) state_->workers.emplace_back([s = state_.get(), i] { s->work(i); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop.store(true);
  }
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

void ThreadPool::run(Index tasks, Task task, void* body) {
  State& s = *state_;
  s.tasks = tasks;
  s.task = task;
  s.body = body;
  s.error = nullptr;
  s.next.store(0);
  s.busy.store(threads_ - 1);
  {
    const std::lock_guard lock(s.mutex);
    s.generation.fetch_add(1);
  }
  s.wake.notify_all();
  s.take_tasks();
  int spins = 0;
  while (s.busy.load() != 0) {
    if (++spins < State::spin_rounds)
      State::pause();
    else
      std::this_thread::yield();
  }
  if (s.error) std::rethrow_exception(s.error);
}

int ThreadPool::worker() { return worker_number; }

void ThreadPool::make_library_calls_single_threaded() {
  if (omp_set_num_threads) omp_set_num_threads(1);
}

}  // namespace penstock
