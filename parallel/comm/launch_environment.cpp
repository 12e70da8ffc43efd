// Launchers' environment variables.
#include "parallel/comm/launch_environment.h"

#include <charconv>
#include <cstdlib>

namespace penstock {
namespace {

std::optional<int> positive(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc{} || end != text->data() + text->size() || value < 1) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

std::optional<LaunchClaim> launch_claim(const EnvironmentLookup& lookup) {
  for (const char* variable :
       {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (const auto ranks = positive(lookup(variable))) return LaunchClaim{variable, *ranks};
  // SLURM_PROCID marks a task; an interactive allocation has the number of tasks without it.
  if (const auto ranks = positive(lookup("SLURM_NTASKS")); ranks && lookup("SLURM_PROCID"))
    return LaunchClaim{"SLURM_NTASKS", *ranks};
  return std::nullopt;
}

bool launched_by_mpi(const EnvironmentLookup& lookup) {
  for (const char* variable :
       {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_SIZE"})
    if (lookup(variable)) return true;
  const auto claim = launch_claim(lookup);
  return claim && claim->ranks > 1;
}

}  // namespace penstock
