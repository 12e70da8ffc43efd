// Launchers' environments, as each of them sets it, and what they claim.
#include "parallel/comm/launch_environment.h"

#include <gtest/gtest.h>

#include <map>

namespace penstock {
namespace {

struct Case {
  std::string name;
  std::map<std::string, std::string> environment;
  bool launched;
  int ranks;  // 0: no claim
};

class LaunchEnvironment : public ::testing::TestWithParam<Case> {};

TEST_P(LaunchEnvironment, IsUnderstood) {
  const Case& c = GetParam();
  const EnvironmentLookup lookup = [&](const std::string& name) -> std::optional<std::string> {
    const auto it = c.environment.find(name);
    if (it == c.environment.end()) return std::nullopt;
    return it->second;
  };
  EXPECT_EQ(launched_by_mpi(lookup), c.launched);
  const auto claim = launch_claim(lookup);
  EXPECT_EQ(claim ? claim->ranks : 0, c.ranks);
  if (claim) {
    EXPECT_EQ(c.environment.at(claim->variable), std::to_string(claim->ranks));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Comm, LaunchEnvironment,
    ::testing::Values(
        Case{"alone", {{"HOME", "/"}}, false, 0},
        Case{"open_mpi",
             {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"PMIX_RANK", "1"}},
             true,
             4},
        Case{"open_mpi_one_rank", {{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}}, true, 1},
        Case{"hydra", {{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}}, true, 2},
        Case{"pmix_alone", {{"PMIX_RANK", "0"}}, true, 0},
        Case{"mvapich", {{"MV2_COMM_WORLD_SIZE", "8"}}, true, 8},
        Case{"srun", {{"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_NTASKS", "3"}, {"SLURM_PROCID", "2"}}, true, 3},
        Case{"srun_one_task",
             {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "16"}, {"SLURM_PROCID", "0"}},
             false,
             1},
        Case{"slurm_task", {{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "0"}}, true, 2},
        Case{"salloc_shell", {{"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "77"}}, false, 0},
        Case{"mpirun_in_slurm",
             {{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}},
             true,
             1},
        Case{"nonsense", {{"PMI_SIZE", "two"}, {"OMPI_COMM_WORLD_SIZE", "-3"}}, true, 0}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace penstock
