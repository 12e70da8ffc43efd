// Ranks: MPI or threads.
#include "apps/common/ranks.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "parallel/comm/thread_group.h"

namespace penstock {

Ranks::Ranks(Frame& frame) {
  if (!launched_by_mpi()) return;
  mpi_.emplace();
  frame.is_printing_rank = [rank = mpi_->rank()] { return rank == 0; };
}

void Ranks::run(std::optional<Index> in_process, double deadline_seconds, const std::function<void(Communicator&)>& body) {
  if (!mpi_) {
    run_ranks(narrow<int>(in_process.value_or(1)), body, deadline_seconds);
    return;
  }
  require<ValueError>(!in_process, "--ranks {}: under mpirun the ranks are its processes; leave --ranks out", in_process.value_or(0));
  const std::unique_ptr<Communicator> world = mpi_->world();
  world->set_deadline_seconds(deadline_seconds);
  body(*world);
}

std::string Ranks::host_name() const {
  if (mpi_) return mpi_->host_name();
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

void agree(Communicator& world, const std::function<void()>& checks) {
  std::string failure;
  try {
    checks();
  } catch (const Error& e) {
    failure = e.what();
    if (failure.empty()) failure = "input refused";
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
