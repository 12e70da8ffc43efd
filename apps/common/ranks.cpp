// Ranks: a launch whose failures name the rank.
#include "apps/common/ranks.h"

#include <atomic>

namespace penstock {

Ranks::Ranks(Frame& frame) : frame_(frame) {
  if (const Communicator* world = launch_.world())
    frame.is_printing_rank = [rank = world->rank()] { return rank == 0; };
}

void Ranks::agree(const std::function<void()>& checks) {
  if (Communicator* world = launch_.world())
    penstock::agree(*world, checks);
  else
    checks();
}

void Ranks::run(std::optional<Index> in_process, double deadline_seconds,
                const std::function<void(Communicator&)>& body) {
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
    launch_.run({.threads = in_process, .deadline_seconds = deadline_seconds}, watched);
  } catch (...) {
    if (!frame_.work_started() || failed < 0) throw;
    failure_ = frame_.words_of_failure();
    throw Error("rank {}: {}", failed.load(), failure_);
  }
}

void Ranks::abort(const std::string& reason) noexcept { launch_.abort(failure_.empty() ? reason : failure_); }

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

}  // namespace penstock
