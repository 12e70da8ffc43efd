# What scripts/quickstart and scripts/test share: package lists, installing what is missing, the launcher's environment.
# Sourced by bash; the caller has `set -euo pipefail` on.
# shellcheck shell=bash disable=SC2034

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# What the programs are built from and run with. The names are the same from Ubuntu 22.04 and Debian 12 on. (OpenCL is
# not used: the CMake package of Debian's oneDNN asks for it.)
build_packages=(g++ cmake ninja-build ccache libfmt-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev
                libdnnl-dev ocl-icd-opencl-dev libopenmpi-dev openmpi-bin)
# What the tests need besides: see also sanitizer_packages, whose names depend on the release.
test_packages=(libgtest-dev libbenchmark-dev clang python3 doxygen)

if [ -t 1 ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi
say() { printf '%s==> %s%s\n' "$bold" "$*" "$plain"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }
bad_usage() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 2; }

# The comment at the head of the script is its help.
usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; }

# CPUs that this process may use. (nproc would also obey OMP_NUM_THREADS.)
cpus() { env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc; }

is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# as_root COMMAND...: runs it as root, through sudo where that is needed.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# require_packages NAME...: installs those that are missing; without any, the network is not touched.
require_packages() {
  local missing=() name
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    die "packages are installed with apt-get, which is not here. Install by your own means what Debian calls" \
        "$* , then run this again with --no-install"
  fi
  for name in "$@"; do is_installed "$name" || missing+=("$name"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
    die "these packages are missing: ${missing[*]}. Run this as root, or install sudo, or let an administrator run:" \
        "apt-get install ${missing[*]}"
  fi
  say "installing ${missing[*]}"
  refresh_package_lists
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq \
    --no-install-recommends "${missing[@]}" >"$install_log" 2>&1 ||
    { tail -n 20 "$install_log" >&2; die "apt-get could not install: ${missing[*]} (the last lines are above)"; }
}

install_log=${TMPDIR:-/tmp}/penstock-install-$(id -u)-$$.log
trap 'rm -f "$install_log"' EXIT

# Once a run at most; a repository that cannot be reached only matters when a package is then not found.
package_lists_fresh=
refresh_package_lists() {
  [ -z "$package_lists_fresh" ] || return 0
  as_root apt-get -o DPkg::Lock::Timeout=300 update -qq ||
    printf 'apt-get update failed; going on with the lists that are here\n' >&2
  package_lists_fresh=yes
}

# has_candidate NAME: apt can install it. (No pipe into grep -q: it ends early, and pipefail takes apt-cache's SIGPIPE for
# a no.)
has_candidate() { [[ $(apt-cache policy "$1" 2>/dev/null) =~ Candidate:\ [^\(] ]]; }

# The sanitizers' run-time library and the formatter have names that depend on the release: sets `sanitizer_packages`.
# Debian 12 and later split the library from clang into libclang-rt-VERSION-dev; before, it came with clang.
find_sanitizer_packages() {
  local version
  sanitizer_packages=()
  version=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\).*/\1/p' | head -n 1)
  if [ -n "$version" ] && has_candidate "libclang-rt-$version-dev"; then
    sanitizer_packages+=("libclang-rt-$version-dev")
  fi
  # The sources are formatted by clang-format 14; releases that still have it use that very version.
  if has_candidate clang-format-14; then
    sanitizer_packages+=(clang-format-14)
  else
    sanitizer_packages+=(clang-format)
  fi
}

# The settings under which mpirun starts ranks on a machine as it comes: as root, in a container, with fewer cores than
# ranks. Each stands under the names of Open MPI 4 and 5. What the caller has set stays.
mpi_environment() {
  if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
  export OMPI_MCA_rmaps_base_oversubscribe=${OMPI_MCA_rmaps_base_oversubscribe:-1}
  export PRTE_MCA_rmaps_default_mapping_policy=${PRTE_MCA_rmaps_default_mapping_policy:-:oversubscribe}
  # Containers often forbid reading another process's memory; messages then pass through shared memory alone.
  export OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}
  export OMPI_MCA_smsc=${OMPI_MCA_smsc:-^cma,knem,xpmem}
  # Our own threads do the work: libraries that would start more are held to one.
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
}
