// Ranks: MPI or threads.
#include "apps/common/ranks.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <system_error>

#include "parallel/comm/thread_group.h"

namespace penstock {

Ranks::Ranks(Frame& frame) : frame_(frame) {
  if (!launched_by_mpi()) return;
  mpi_.emplace();
  frame.is_printing_rank = [rank = mpi_->rank()] { return rank == 0; };
  world_ = mpi_->world();
}

void Ranks::refuse_in_process(std::optional<Index> in_process) const {
  require<ValueError>(!mpi_ || !in_process,
                      "--ranks {}: under mpirun the ranks are its processes; leave --ranks out",
                      in_process.value_or(0));
}

void Ranks::agree(const std::function<void()>& checks) {
  if (world_)
    penstock::agree(*world_, checks);
  else
    checks();
}

void Ranks::run(std::optional<Index> in_process, double deadline_seconds,
                const std::function<void(Communicator&)>& body) {
  refuse_in_process(in_process);
  std::atomic<int> failed = -1;  // the first rank with a failure of its own
  const auto watched = [&](Communicator& world) {
    try {
      body(world);
    } catch (const CommError&) {
      throw;  // its words name the ranks
    } catch (...) {
      int none = -1;
      if (world.size() > 1) failed.compare_exchange_strong(none, world.rank());
      throw;
    }
  };
  try {
    if (!world_) {
      run_ranks(narrow<int>(in_process.value_or(1)), watched, deadline_seconds);
      return;
    }
    world_->set_deadline_seconds(deadline_seconds);
    watched(*world_);
  } catch (...) {
    if (!frame_.work_started() || failed < 0) throw;
    failure_ = frame_.words_of_failure();
    throw Error("rank {}: {}", failed.load(), failure_);
  }
}

void Ranks::abort(const std::string& reason) noexcept {
  if (world_) world_->abort(failure_.empty() ? reason : failure_);
}

std::string Ranks::host_name() const {
  if (mpi_) return mpi_->host_name();
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

int run_program(const std::string& name, const std::function<int(Frame&, Ranks&)>& body) {
  return run_program(name, [&](Frame& frame) {
    Ranks ranks(frame);
    try {
      return body(frame, ranks);
    } catch (...) {
      const int status = frame.tell_failure(name);
      if (status != kExitUsage) ranks.abort(frame.words_of_failure());
      return status;
    }
  });
}

void agree(Communicator& world, const std::function<void()>& checks) {
  std::string failure;
  const auto take = [&](const char* text) { failure = *text ? text : "input refused"; };
  try {
    checks();
  } catch (const Error& error) {
    take(error.what());
  } catch (const std::system_error& error) {  // of std::filesystem
    take(error.what());
  }
  for (const std::string& text : world.all_gather(failure)) require<ValueError>(text.empty(), "{}", text);
}

int default_threads(Communicator& world, const std::string& host) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int cpus = 1;
  std::string place = host + ":";
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) {
    cpus = CPU_COUNT(&mask);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &mask)) place += std::to_string(cpu) + ",";
  }
  const std::vector<std::string> places = world.all_gather(place);
  const auto sharing = static_cast<int>(std::count(places.begin(), places.end(), place));
  return std::max(1, cpus / sharing);
}

}  // namespace penstock
