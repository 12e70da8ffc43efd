// test_comm_mpi RANKS [MODE]: the shared scenarios over MPI, or one planned failure that mpi_failures.py
// looks at.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>

#include "parallel/comm/launch.h"
#include "tests/parallel/comm/scenarios.h"

namespace penstock {
namespace {

void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

int run_scenarios(MpiWorld& world) {
  const auto comm = world.world();
  comm->set_deadline_seconds(60);
  int passed = 0;
  for (const testing::Scenario& scenario : testing::all_scenarios()) {
    if (comm->size() < scenario.min_ranks) continue;
    RankContext context;
    try {
      scenario.run(*comm, context);
      comm->barrier();
    } catch (const std::exception& error) {
      say(fmt::format("rank {}: {}: {}", comm->rank(), scenario.name, error.what()));
      world.abort(1);
    }
    ++passed;
  }
  double counts[] = {static_cast<double>(passed)};
  comm->all_reduce_sum(counts);
  if (counts[0] != passed * comm->size()) world.abort(1);
  if (comm->rank() == 0) say(fmt::format("passed: {} scenarios on {} ranks", passed, comm->size()));
  return passed > 0 ? 0 : 1;
}

/// Rank 1 fails in the manner of `mode`; the others wait for it in three different ways and tell how they
/// were released.
int run_failure(MpiWorld& world, const std::string& mode) {
  const auto comm = world.world();
  comm->set_deadline_seconds(mode == "silent" || mode == "absent" ? 1.5 : 60);
  RankContext context;
  const Tensor tensor = Tensor::zeros(context, {Index{1} << 20});
  const auto part = comm->split(0, comm->rank());
  if (comm->rank() == 1) {
    if (mode == "abort") {
      comm->abort("a planned failure");
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      world.abort(1);
    }
    if (mode == "throw") throw ValueError("a planned exception");
    if (mode == "exit") std::_Exit(3);
    if (mode == "silent") std::this_thread::sleep_for(std::chrono::seconds(4));
    if (mode == "absent") return 0;  // leaves in good order though others wait
    return 0;
  }
  try {
    if (comm->rank() == 0)
      comm->recv(tensor, 1, 1, {}, context.stream()).host_wait(comm->deadline_seconds(), "rank 0, 1RECV_F0");
    if (comm->rank() == 2)
      comm->send(tensor, 1, 2, {}, context.stream()).host_wait(comm->deadline_seconds(), "rank 2, 1SEND_B0");
    if (comm->rank() == 3) part->barrier();
    say(fmt::format("rank {} was not released", comm->rank()));
  } catch (const CommError& error) {
    say(fmt::format("rank {} released: {}", comm->rank(), error.what()));
    std::this_thread::sleep_for(std::chrono::milliseconds(800));  // so that all have said it
    if (comm->rank() == 0 && mode != "throw") world.abort(1);
    throw;
  }
  return 1;
}

/// The job as `launch` runs it. Mode "launch": the last rank throws, the others wait for it. Mode
/// "launch-threads": threads are asked for. Otherwise all is well.
int run_launched(int ranks, const std::string& mode) {
  LaunchOptions options{.deadline_seconds = 30};
  if (mode == "launch-threads") options.threads = 2;
  launch(options, [&](Communicator& comm) {
    require<Error>(comm.size() == ranks && comm.deadline_seconds() == 30, "{} ranks", comm.size());
    if (mode == "launch" && comm.rank() + 1 == ranks) throw ShapeError("a planned exception");
    try {
      comm.barrier();
    } catch (const CommError& error) {
      say(fmt::format("rank {} released: {}", comm.rank(), error.what()));
      std::this_thread::sleep_for(std::chrono::milliseconds(800));  // so that all have said it
      throw;
    }
    say(fmt::format("rank {} done", comm.rank()));
  });
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  using namespace penstock;
  if (argc < 2 || argc > 3) return 2;
  const int ranks = std::atoi(argv[1]);
  try {
    if (!launched_by_mpi()) {
      say("this test runs under mpirun");
      return 2;
    }
    if (argc > 2 && std::string(argv[2]).starts_with("launch")) return run_launched(ranks, argv[2]);
    MpiWorld world({.deadline_seconds = argc > 2 ? 5.0 : 60.0, .piece_bytes = Index{1} << 20});
    if (world.size() != ranks || world.host_name().empty()) {
      say(fmt::format("{} ranks where {} were asked for", world.size(), ranks));
      world.abort(2);
    }
    return argc > 2 ? run_failure(world, argv[2]) : run_scenarios(world);
  } catch (const std::exception& error) {
    say(fmt::format("ended: {}", error.what()));
    return 2;
  }
}
