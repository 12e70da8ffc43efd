// Ranks: a launch whose failures name the rank.
#include "apps/common/ranks.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <exception>

#include "apps/common/version.h"

namespace penstock {

void Ranks::join(const std::function<Wishes()>& read) {
  Wishes wishes;
  std::exception_ptr refusal;
  try {
    wishes = read();
  } catch (...) {
    refusal = std::current_exception();
  }
  const auto end_stuck_process = [this](const std::string& words) {
    if (!words.empty() && !told_.exchange(true)) fmt::print(stderr, "{}: {}\n", name_, words);
    _exit(kExitFailure);
  };
  launch_.emplace(
      MpiWorld::Options{.deadline_seconds = wishes.deadline_seconds, .on_stuck = end_stuck_process});
  Communicator* world = launch_->world();
  if (world) frame_.is_printing_rank = [rank = world->rank()] { return rank == 0; };
  agree([&] {
    if (refusal) std::rethrow_exception(refusal);
    launch_->refuse_threads(wishes.in_process);
  });
  if (world) require_alike(*world, wishes.settings ? wishes.settings() : nlohmann::json::object());
}

void Ranks::require_alike(Communicator& world, const nlohmann::json& settings) const {
  const nlohmann::json mine{{"version", kVersion}, {"host", launch_->host_name()}, {"settings", settings}};
  const auto replace = nlohmann::json::error_handler_t::replace;  // a path may be any bytes
  const std::vector<std::string> texts = world.all_gather(mine.dump(-1, ' ', false, replace));
  const nlohmann::json first = nlohmann::json::parse(texts[0]);
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    const nlohmann::json other = nlohmann::json::parse(texts[rank]);
    const std::string who = fmt::format("rank {} on {}", rank, other["host"].get<std::string>());
    require<ValueError>(other["version"] == first["version"],
                        "{} runs version {} of {}, rank 0 on {} version {}", who, other["version"].dump(),
                        name_, first["host"].get<std::string>(), first["version"].dump());
    const auto value = [](const nlohmann::json& all, const std::string& key) {
      return all.contains(key) && !all[key].is_null() ? all[key].dump() : "nothing";
    };
    for (const nlohmann::json& names : {first["settings"], other["settings"]})
      for (const auto& [key, unused] : names.items()) {
        const std::string here = value(other["settings"], key), there = value(first["settings"], key);
        std::string flag = key;
        std::replace(flag.begin(), flag.end(), '_', '-');
        require<ValueError>(here == there, "--{}: {} has {}, rank 0 has {}; all ranks need the same", flag,
                            who, here, there);
      }
  }
}

void Ranks::agree(const std::function<void()>& checks) {
  if (Communicator* world = launch_->world())
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
    launch_->run({.threads = in_process, .deadline_seconds = deadline_seconds}, watched);
  } catch (...) {
    if (!frame_.work_started() || failed < 0) throw;
    failure_ = frame_.words_of_failure();
    throw Error("rank {}: {}", failed.load(), failure_);
  }
}

void Ranks::abort(const std::string& reason) noexcept {
  told_ = true;
  if (launch_) launch_->abort(failure_.empty() ? reason : failure_);
}

int run_program(const std::string& name, const std::function<int(Frame&, Ranks&)>& body) {
  return run_program(name, [&](Frame& frame) {
    Ranks ranks(name, frame);
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
