// Initialising and finalising MPI, the side channel, and what outlives communicators.
#include "parallel/comm/mpi_world.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "parallel/comm/launch_environment.h"
#include "parallel/comm/mpi_core.h"
#include "parallel/comm/watchdog.h"

namespace penstock {
namespace mpi {

std::string error_words(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> words{};
  int length = 0;
  if (MPI_Error_string(code, words.data(), &length) != MPI_SUCCESS) return fmt::format("error {}", code);
  return {words.data(), static_cast<std::size_t>(length)};
}

void check(int code, const char* call) {
  require<CommError>(code == MPI_SUCCESS, "{}: {}", call, code == MPI_SUCCESS ? "" : error_words(code));
}

Core::Core(Index piece_bytes) : piece_bytes_(piece_bytes) {
  require<ValueError>(piece_bytes >= 1 && piece_bytes <= (Index{1} << 30),
                      "MPI pieces of {} bytes; allowed are 1 to 2^30", piece_bytes);
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  int* limit = nullptr;
  int known = 0;
  check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&limit), &known),
        "MPI_Comm_get_attr");
  tag_limit_ = known != 0 ? *limit : 32767;  // the least that the standard allows
}

void Core::open(const std::string& host, double deadline_seconds,
                std::function<void(const std::string& words)> on_stuck) {
  if (size_ == 1) return;
  const SideChannel::Options options{.rank = rank_,
                                     .size = size_,
                                     .host = host,
                                     .deadline_seconds = deadline_seconds,
                                     .on_stuck = std::move(on_stuck)};
  std::optional<SideChannel::Invitation> invitation;
  std::string words;
  if (rank_ == 0) words = invitation.emplace().text();
  auto length = static_cast<int>(words.size());
  check(MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD), "MPI_Bcast");
  words.resize(static_cast<std::size_t>(length));
  check(MPI_Bcast(words.data(), length, MPI_CHAR, 0, MPI_COMM_WORLD), "MPI_Bcast");
  channel_ = rank_ == 0 ? std::make_unique<SideChannel>(options, failure_, std::move(*invitation))
                        : std::make_unique<SideChannel>(options, failure_, words);
}

void Core::poll() {
  if (!failure_.is_set()) return;
  if (channel_) channel_->noticed();
  throw CommError(failure_.reason());
}

void Core::abort(const std::string& reason) noexcept {
  if (channel_)
    channel_->fail(reason);
  else
    failure_.set(reason, rank_);
}

void Core::advance() {
  for (const auto& activity : active_) activity->advance();
  std::erase_if(active_, [](const auto& activity) { return activity->ended(); });
}

bool Core::leave(MPI_Comm communicator) {
  for (const auto& activity : active_)
    if (activity->communicator() == communicator) activity->cancel();
  advance();
  return std::ranges::none_of(active_,
                              [&](const auto& activity) { return activity->communicator() == communicator; });
}

}  // namespace mpi

bool launched_by_mpi() { return launched_by_mpi(environment_variable); }

struct MpiWorld::Impl {
  Options options;
  int exceptions = std::uncaught_exceptions();
  std::shared_ptr<mpi::Core> core;
  std::unique_ptr<Communicator> own;  // for the barrier at the end
  std::string host;

  /// What a call of MPI that cannot be interrupted comes to when another rank does not take part.
  std::function<void()> expiry(const char* what) const {
    return [what, end = options.on_stuck, seconds = options.deadline_seconds] {
      if (end)
        end(
            fmt::format("{}: waited {:g} s for the other ranks; one of them is down or stuck (--deadline "
                        "sets this limit)",
                        what, seconds));
    };
  }
};

MpiWorld::MpiWorld(const Options& options) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  int used = 0;
  mpi::check(MPI_Initialized(&used), "MPI_Initialized");
  require<CommError>(used == 0, "MPI is initialised already: there can be one MpiWorld in a process, once");
  const Watchdog watchdog(options.deadline_seconds, impl_->expiry("starting MPI"));
  int provided = MPI_THREAD_SINGLE;
  mpi::check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  try {
    require<CommError>(
        provided >= MPI_THREAD_SERIALIZED,
        "this MPI allows calls from the main thread alone (level {}); MPI_THREAD_SERIALIZED is needed",
        provided);
    impl_->core = std::make_shared<mpi::Core>(options.piece_bytes);
    const auto claim = launch_claim();
    require<ValueError>(
        size() > 1 || !claim || claim->ranks == 1,
        "the environment says that there are {} ranks ({}={}), MPI sees 1: the launcher and the MPI library "
        "do not fit together; start with the mpirun of the MPI that Penstock was built with, or unset {}",
        claim ? claim->ranks : 1, claim ? claim->variable : "", claim ? claim->ranks : 1,
        claim ? claim->variable : "");
    std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
    int length = 0;
    mpi::check(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name");
    impl_->host.assign(name.data(), static_cast<std::size_t>(length));
    impl_->core->open(impl_->host, options.deadline_seconds, options.on_stuck);
    impl_->own = world();
  } catch (...) {
    if (impl_->core && size() == 1) MPI_Finalize();
    throw;
  }
}

MpiWorld::~MpiWorld() {
  mpi::Core& core = *impl_->core;
  try {
    require<CommError>(std::uncaught_exceptions() == impl_->exceptions, "an exception ends the program");
    impl_->own->barrier();
  } catch (const std::exception& error) {
    core.abort(fmt::format("rank {}: {}", rank(), error.what()));
  }
  impl_->own.reset();
  // What MPI may still read or write must stay where it is, up to the end of the process; so must the
  // channel, by which the others see this end, and the thread that sees to it that it comes.
  const bool failed = core.failure().is_set();
  [[maybe_unused]] static std::shared_ptr<mpi::Core>* kept = nullptr;
  kept = new std::shared_ptr<mpi::Core>(impl_->core);
  core.close();
  if (failed) return;
  if (core.channel() != nullptr) core.channel()->leave();
  {
    const Watchdog watchdog(impl_->options.deadline_seconds, impl_->expiry("ending MPI"));
    MPI_Finalize();
  }
  if (core.channel() == nullptr) return;
  const std::string missed = core.channel()->see_off();
  if (!missed.empty() && impl_->options.on_stuck) impl_->options.on_stuck(missed);
}

void MpiWorld::set_deadline_seconds(double seconds) {
  impl_->options.deadline_seconds = seconds;
  impl_->own->set_deadline_seconds(seconds);
  if (impl_->core->channel() != nullptr) impl_->core->channel()->set_deadline_seconds(seconds);
}

int MpiWorld::rank() const { return impl_->core->rank(); }
int MpiWorld::size() const { return impl_->core->size(); }
const std::string& MpiWorld::host_name() const { return impl_->host; }

std::unique_ptr<Communicator> MpiWorld::world() {
  impl_->core->poll();
  MPI_Comm all = MPI_COMM_NULL;
  mpi::check(MPI_Comm_dup(MPI_COMM_WORLD, &all), "MPI_Comm_dup");
  std::vector<int> members(static_cast<std::size_t>(size()));
  std::iota(members.begin(), members.end(), 0);
  return mpi::make_communicator(impl_->core, all, std::move(members), impl_->options.deadline_seconds);
}

void MpiWorld::abort(int status) noexcept {
  MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

}  // namespace penstock
