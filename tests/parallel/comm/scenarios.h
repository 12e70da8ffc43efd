// What every communicator must do, written once and run over threads (gtest) and over processes (mpirun).
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace penstock::testing {

struct Scenario {
  std::string name;
  int min_ranks;
  /// Run by all ranks of a group; throws when something is not as it must be. Leaves the group usable.
  void (*run)(Communicator& comm, RankContext& context);
};

/// For gtest's messages.
inline std::ostream& operator<<(std::ostream& out, const Scenario& scenario) { return out << scenario.name; }

const std::vector<Scenario>& point_to_point_scenarios();
const std::vector<Scenario>& collective_scenarios();

/// Both lists.
std::vector<Scenario> all_scenarios();

/// Throws std::logic_error with the message unless `condition` holds.
template <class... Args>
void check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw std::logic_error(fmt::format(format, std::forward<Args>(args)...));
}

/// The message of the CommError that `action` must throw; it must contain each of `words`.
template <class Action>
std::string check_comm_error(Action&& action, const std::vector<std::string>& words) {
  try {
    action();
  } catch (const CommError& error) {
    const std::string message = error.what();
    for (const std::string& word : words)
      check(message.find(word) != std::string::npos, "no '{}' in: {}", word, message);
    return message;
  }
  throw std::logic_error("no CommError was thrown");
}

}  // namespace penstock::testing
