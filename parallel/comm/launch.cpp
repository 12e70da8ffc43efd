// Launch: MPI or threads.
#include "parallel/comm/launch.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "core/checked.h"
#include "parallel/comm/thread_group.h"

namespace penstock {

Launch::Launch(const MpiWorld::Options& options) {
  if (!launched_by_mpi()) return;
  mpi_.emplace(options);
  world_ = mpi_->world();
}

std::string Launch::host_name() const { return mpi_ ? mpi_->host_name() : local_host_name(); }

void Launch::refuse_threads(std::optional<Index> threads) const {
  require<ValueError>(!mpi_ || !threads,
                      "--ranks {}: under mpirun the ranks are its processes; leave --ranks out",
                      threads.value_or(0));
}

void Launch::run(const LaunchOptions& options, const std::function<void(Communicator&)>& body) {
  refuse_threads(options.threads);
  if (!world_) {
    run_ranks(narrow<int>(options.threads.value_or(1)), body, options.deadline_seconds);
    return;
  }
  mpi_->set_deadline_seconds(options.deadline_seconds);
  world_->set_deadline_seconds(options.deadline_seconds);
  body(*world_);
}

void Launch::abort(const std::string& reason) noexcept {
  if (world_) world_->abort(reason);
}

void launch(const LaunchOptions& options, const std::function<void(Communicator&)>& body) {
  Launch ranks({.deadline_seconds = options.deadline_seconds});
  try {
    ranks.run(options, body);
  } catch (const std::exception& failure) {
    ranks.abort(failure.what());
    throw;
  } catch (...) {
    ranks.abort("an unknown error");
    throw;
  }
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

std::string local_host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
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
