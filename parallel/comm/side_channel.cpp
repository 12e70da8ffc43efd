// The side channel: frames, heartbeats, the thread that listens.
#include "parallel/comm/side_channel.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point time) {
  return std::chrono::duration<double>(Clock::now() - time).count();
}

Clock::time_point after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(seconds, 1e8)));
}

enum class Kind : std::int32_t { hello, heartbeat, failure, farewell, last };

/// In front of the text of every frame.
struct FrameHead {
  std::int32_t kind = 0;
  std::int32_t rank = 0;  // hello: who; failure: whose
  std::uint32_t text_bytes = 0;
};

constexpr std::size_t most_text = 4096;
constexpr std::size_t token_bytes = 32;

std::string frame(Kind kind, int rank, const std::string& text = {}) {
  const std::size_t bytes = std::min(text.size(), most_text);
  const FrameHead head{static_cast<std::int32_t>(kind), rank, static_cast<std::uint32_t>(bytes)};
  std::string result(sizeof head + bytes, '\0');
  std::memcpy(result.data(), &head, sizeof head);
  std::memcpy(result.data() + sizeof head, text.data(), bytes);
  return result;
}

struct Frame {
  Kind kind{};
  int rank = 0;
  std::string text;
};

enum class Parse : std::uint8_t { whole, part, damaged };

/// Takes the first frame off `bytes`.
Parse take_frame(std::string& bytes, Frame& into) {
  FrameHead head;
  if (bytes.size() < sizeof head) return Parse::part;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.kind < 0 || head.kind > static_cast<std::int32_t>(Kind::last) || head.text_bytes > most_text)
    return Parse::damaged;
  if (bytes.size() < sizeof head + head.text_bytes) return Parse::part;
  into = {static_cast<Kind>(head.kind), head.rank, bytes.substr(sizeof head, head.text_bytes)};
  bytes.erase(0, sizeof head + head.text_bytes);
  return Parse::whole;
}

/// The other end of a connection.
struct Peer {
  int rank = -1;
  std::string host;
  Socket socket;
  std::string in, out;  // of frames that are not whole yet; that have not left yet
  Clock::time_point heard = Clock::now();
  bool left = false;  // said farewell
  bool done = false;  // has nothing left to do but to end

  std::string name() const {
    return host.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} on {}", rank, host);
  }

  /// False when the connection is gone.
  bool flush() {
    while (!out.empty()) {
      const auto sent = socket.send_some(out.data(), out.size());
      if (!sent) return false;
      if (*sent == 0) return true;
      out.erase(0, *sent);
    }
    return true;
  }
};

/// A job of a thousand ranks needs more descriptors than a shell allows by default.
void allow_descriptors(int ranks) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = static_cast<rlim_t>(ranks) + 1024;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? wanted : std::min(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::string random_token() {
  std::random_device device;
  std::string token;
  while (token.size() < token_bytes) token += fmt::format("{:08x}", device());
  return token;
}

}  // namespace

SideChannel::Invitation::Invitation()
    : token_(random_token()),
      text_(fmt::format("{} {} {}", token_, socket_.port(), fmt::join(local_addresses(), " "))) {}

struct SideChannel::Impl {
  Options options;
  JobFailure& failure;
  int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::thread thread;

  mutable std::mutex mutex;        // of all that follows
  std::condition_variable turned;  // the thread has read what came and sent what it could
  std::vector<Peer> peers;         // rank 0: everyone else; the others: rank 0
  std::string activity;
  std::string suspect;  // what rank 0 last said of the silent
  double deadline_seconds = 300;
  bool leaving = false, closing = false, seen = false;
  Clock::time_point failed_at{}, seen_at{};

  Impl(const Options& o, JobFailure& f) : options(o), failure(f), deadline_seconds(o.deadline_seconds) {
    require<CommError>(wake >= 0, "no descriptor is left for the side channel: {}", std::strerror(errno));
  }
  ~Impl() {
    if (thread.joinable()) {
      {
        const std::lock_guard lock(mutex);
        closing = true;
      }
      nudge();
      thread.join();
    }
    ::close(wake);
  }

  void nudge() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake, &one, sizeof one);
  }

  void accept_all(Invitation& invitation);
  void join(const std::string& invitation);

  void loop();
  void read(Peer& peer);
  void handle(Peer& peer, const Frame& got);
  void lose(Peer& peer);
  void beat();
  void watch_silence();
  /// The job fails: words to everyone but the one that they came from, then to this rank's waits.
  void spread(const std::string& words, int rank, const Peer* source);
  void check_stuck(std::unique_lock<std::mutex>& lock);
};

// Joining.

void SideChannel::Impl::accept_all(Invitation& invitation) {
  const Clock::time_point until = after(options.deadline_seconds);
  allow_descriptors(options.size);
  std::vector<Peer> guests;  // connected, and not known yet
  while (peers.size() + 1 < static_cast<std::size_t>(options.size)) {
    std::vector<pollfd> entries{{invitation.socket_.descriptor(), POLLIN, 0}};
    for (const Peer& guest : guests) entries.push_back({guest.socket.descriptor(), POLLIN, 0});
    ::poll(entries.data(), entries.size(), 50);
    while (auto socket = invitation.socket_.accept()) guests.emplace_back().socket = std::move(*socket);
    for (Peer& guest : guests) {
      const bool alive = guest.socket.receive_some(guest.in);
      Frame got;
      const Parse parse = take_frame(guest.in, got);
      const auto is_known = [&](const Peer& peer) { return peer.rank == got.rank; };
      if (parse == Parse::whole && got.kind == Kind::hello && got.text.starts_with(invitation.token_) &&
          got.rank > 0 && got.rank < options.size && std::ranges::none_of(peers, is_known)) {
        guest.rank = got.rank;
        guest.host = got.text.substr(token_bytes);
        guest.heard = Clock::now();
        guest.out = frame(Kind::hello, 0, options.host);
        peers.push_back(std::move(guest));
        guest = Peer{};
      } else if (parse != Parse::part || !alive) {
        guest = Peer{};  // a stranger
      }
    }
    std::erase_if(guests, [](const Peer& guest) { return !guest.socket.open(); });
    if (Clock::now() < until) continue;
    std::vector<int> missing;
    for (int r = 1; r < options.size; ++r)
      if (std::ranges::none_of(peers, [&](const Peer& peer) { return peer.rank == r; })) missing.push_back(r);
    throw CommError("waited {} s for rank{} {} to join; down, stuck, or behind a firewall",
                    options.deadline_seconds, missing.size() == 1 ? "" : "s", fmt::join(missing, ", "));
  }
  std::ranges::sort(peers, {}, &Peer::rank);
}

void SideChannel::Impl::join(const std::string& invitation) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < invitation.size();) {
    const std::size_t end = std::min(invitation.find(' ', begin), invitation.size());
    words.push_back(invitation.substr(begin, end - begin));
    begin = end + 1;
  }
  require<CommError>(words.size() >= 3, "damaged invitation to the side channel");
  const Clock::time_point until = after(options.deadline_seconds);
  Peer& peer = peers.emplace_back();
  peer.rank = 0;
  peer.socket = connect_to({words.begin() + 2, words.end()}, std::stoi(words[1]), until);
  peer.out = frame(Kind::hello, options.rank, words[0] + options.host);
  Frame got;
  while (peer.flush() && peer.socket.receive_some(peer.in) && Clock::now() < until) {
    const Parse parse = take_frame(peer.in, got);
    if (parse == Parse::damaged) break;
    if (parse == Parse::whole && got.kind == Kind::hello) {
      peer.host = got.text;
      peer.heard = Clock::now();
      return;
    }
    pollfd entry{peer.socket.descriptor(), POLLIN, 0};
    ::poll(&entry, 1, 50);
  }
  throw CommError("rank 0 did not answer on the side channel; it is down or stuck");
}

// The thread.

void SideChannel::Impl::spread(const std::string& words, int rank, const Peer* source) {
  if (failure.is_set()) return;
  for (Peer& peer : peers) {
    if (&peer == source || !peer.socket.open()) continue;
    peer.out += frame(Kind::failure, rank, words);
    if (!peer.flush()) peer.socket.close();
  }
  failure.set(words, rank);
}

void SideChannel::Impl::lose(Peer& peer) {
  peer.socket.close();
  peer.out.clear();
  if (peer.left || leaving) return;
  spread(fmt::format("{} died: its connection closed (killed, out of memory, or crashed)", peer.name()),
         peer.rank, &peer);
}

void SideChannel::Impl::handle(Peer& peer, const Frame& got) {
  switch (got.kind) {
    case Kind::heartbeat:
      suspect = got.text;
      break;
    case Kind::failure:
      spread(got.text, got.rank, &peer);
      break;
    case Kind::farewell:
      peer.left = true;
      break;
    case Kind::last:
      peer.done = true;
      break;
    case Kind::hello:
      break;
  }
}

void SideChannel::Impl::read(Peer& peer) {
  const bool alive = peer.socket.receive_some(peer.in);
  Frame got;
  Parse parse = Parse::part;
  while ((parse = take_frame(peer.in, got)) == Parse::whole) {
    peer.heard = Clock::now();
    handle(peer, got);
  }
  if (!alive || parse == Parse::damaged) lose(peer);
}

/// Where frames wait for a full socket there is no room for heartbeats, and no need of them.
void SideChannel::Impl::beat() {
  std::string words;
  if (options.rank == 0 && !leaving) {
    for (const Peer& peer : peers)
      if (const double silent = seconds_since(peer.heard);
          !peer.left && silent > 5 * options.heartbeat_seconds)
        words += fmt::format("; {} has been silent for {:.1f} s", peer.name(), silent);
    suspect = words;
  }
  for (Peer& peer : peers)
    if (peer.socket.open() && peer.out.empty()) peer.out = frame(Kind::heartbeat, options.rank, words);
}

void SideChannel::Impl::watch_silence() {
  if (leaving) return;
  // A little earlier than the waits for the silent rank end: those may be for a rank that only waits itself.
  const double limit = std::max(0.5 * deadline_seconds, deadline_seconds - 2 * options.heartbeat_seconds);
  for (Peer& peer : peers) {
    if (!peer.socket.open() || peer.left || seconds_since(peer.heard) < limit) continue;
    spread(
        fmt::format(
            "{} has not answered for {:g} s (--deadline): it is stopped, or its machine or network is down",
            peer.name(), deadline_seconds),
        peer.rank, &peer);
  }
}

void SideChannel::Impl::check_stuck(std::unique_lock<std::mutex>& lock) {
  if (!failure.is_set() || !options.on_stuck) return;
  if (failed_at == Clock::time_point{}) failed_at = Clock::now();
  std::string words;
  if (!seen) {
    if (seconds_since(failed_at) < options.notice_seconds) return;
    words = (activity.empty() ? fmt::format("rank {}", options.rank) : activity) + ": " + failure.reason();
  } else if (seconds_since(seen_at) < options.leave_seconds) {
    return;
  }
  const auto end = std::exchange(options.on_stuck, {});
  lock.unlock();
  end(words);
  lock.lock();
}

void SideChannel::Impl::loop() {
  Clock::time_point next_beat{}, last_turn = Clock::now();
  std::vector<pollfd> entries;
  std::unique_lock lock(mutex);
  for (;;) {
    if (closing) {
      for (Peer& peer : peers)
        if (peer.socket.open()) peer.flush();
      return;
    }
    // This process was stopped itself: the others' silence is not theirs.
    if (seconds_since(last_turn) > 2 + 5 * options.heartbeat_seconds)
      for (Peer& peer : peers) peer.heard = Clock::now();
    last_turn = Clock::now();
    if (Clock::now() >= next_beat) {
      beat();
      watch_silence();
      next_beat = after(options.heartbeat_seconds);
    }
    entries.assign(1, {wake, POLLIN, 0});
    for (Peer& peer : peers) {
      if (peer.socket.open() && !peer.flush()) lose(peer);
      entries.push_back(
          {peer.socket.descriptor(), static_cast<short>(peer.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    }
    turned.notify_all();
    check_stuck(lock);
    const double pause = std::min(options.heartbeat_seconds, failure.is_set() ? 0.05 : 1.0);
    lock.unlock();
    ::poll(entries.data(), entries.size(), static_cast<int>(1000 * pause) + 1);
    lock.lock();
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t drained = ::read(wake, &count, sizeof count);
    for (Peer& peer : peers)
      if (peer.socket.open()) read(peer);
  }
}

// The rank's own thread.

SideChannel::SideChannel(const Options& options, JobFailure& failure, Invitation invitation)
    : impl_(std::make_unique<Impl>(options, failure)) {
  impl_->accept_all(invitation);
  impl_->thread = std::thread([this] { impl_->loop(); });
}

SideChannel::SideChannel(const Options& options, JobFailure& failure, const std::string& invitation)
    : impl_(std::make_unique<Impl>(options, failure)) {
  impl_->join(invitation);
  impl_->thread = std::thread([this] { impl_->loop(); });
}

SideChannel::~SideChannel() = default;

void SideChannel::fail(const std::string& words) noexcept {
  try {
    std::unique_lock lock(impl_->mutex);
    if (!impl_->seen) {
      impl_->seen = true;
      impl_->seen_at = Clock::now();
    }
    impl_->spread(words, impl_->options.rank, nullptr);
    impl_->nudge();
    const auto all_sent = [&] {
      return std::ranges::all_of(impl_->peers,
                                 [](const Peer& peer) { return !peer.socket.open() || peer.out.empty(); });
    };
    impl_->turned.wait_for(lock, std::chrono::milliseconds(500), all_sent);
  } catch (...) {
    impl_->failure.set(words, impl_->options.rank);  // out of memory: the others see this process end
  }
}

void SideChannel::leave() noexcept {
  try {
    std::unique_lock lock(impl_->mutex);
    impl_->leaving = true;
    for (Peer& peer : impl_->peers)
      if (peer.socket.open()) peer.out += frame(Kind::farewell, impl_->options.rank);
    impl_->nudge();
  } catch (...) {  // out of memory: taken for a death
  }
}

std::string SideChannel::see_off() noexcept {
  try {
    std::unique_lock lock(impl_->mutex);
    const bool first = impl_->options.rank == 0;
    for (Peer& peer : impl_->peers)
      if (first && peer.socket.open()) peer.out += frame(Kind::last, 0);
    impl_->nudge();
    const auto is_waited_for = [&](const Peer& peer) { return peer.socket.open() && (first || !peer.done); };
    const auto until = after(impl_->deadline_seconds);
    if (impl_->turned.wait_until(lock, until,
                                 [&] { return std::ranges::none_of(impl_->peers, is_waited_for); }))
      return {};
    std::string names;
    for (const Peer& peer : impl_->peers)
      if (is_waited_for(peer)) names += (names.empty() ? "" : ", ") + peer.name();
    return fmt::format(
        "the run is over, but {} has not ended for {:g} s (--deadline): it is stopped, or its "
        "machine or network is down",
        names, impl_->deadline_seconds);
  } catch (...) {
    return {};  // out of memory, with nothing left to do: the launcher sees to the rest
  }
}

void SideChannel::noticed() noexcept {
  const std::lock_guard lock(impl_->mutex);
  if (std::exchange(impl_->seen, true)) return;
  impl_->seen_at = Clock::now();
}

void SideChannel::set_deadline_seconds(double seconds) noexcept {
  const std::lock_guard lock(impl_->mutex);
  impl_->deadline_seconds = seconds;
}

void SideChannel::set_activity(std::string activity) {
  const std::lock_guard lock(impl_->mutex);
  impl_->activity = std::move(activity);
}

std::string SideChannel::suspicion() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->suspect;
}

}  // namespace penstock
