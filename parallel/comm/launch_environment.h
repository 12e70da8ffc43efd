// What the environment says of how this process was started. Launchers tell it in variables of their own; a
// launcher that the MPI library does not understand shows in the two contradicting each other.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace penstock {

/// The number of ranks that a launcher announced, and the variable that says so.
struct LaunchClaim {
  std::string variable;
  int ranks = 0;
};

/// Value of an environment variable, none when unset.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string&)>;

/// The process's own environment.
std::optional<std::string> environment_variable(const std::string& name);

/// Reads what mpirun of Open MPI, MPICH or Intel MPI (hydra), MVAPICH or Slurm's srun have set; the innermost
/// launcher counts. A shell inside a Slurm allocation (salloc) claims nothing.
std::optional<LaunchClaim> launch_claim(const EnvironmentLookup& lookup = environment_variable);

/// True when a launcher started this process as a rank of MPI, be it the only one; Slurm counts with more
/// than one task.
bool launched_by_mpi(const EnvironmentLookup& lookup);

}  // namespace penstock
