// Sockets: POSIX calls and their corner cases.
#include "parallel/comm/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "core/error.h"

namespace penstock {
namespace {

void make_small_and_quick(int descriptor) {
  const int yes = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

/// Tries one address; an unopened socket when it does not answer by `until`.
Socket try_to_connect(const std::string& address, int port, std::chrono::steady_clock::time_point until) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> holder(found, freeaddrinfo);
  Socket socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.open()) return {};
  make_small_and_quick(socket.descriptor());
  if (connect(socket.descriptor(), found->ai_addr, found->ai_addrlen) == 0) return socket;
  if (errno != EINPROGRESS) return {};
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return {};
    pollfd entry{socket.descriptor(), POLLOUT, 0};
    const int ready = poll(&entry, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    int error = 0;
    socklen_t size = sizeof error;
    if (ready <= 0 || getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0)
      return {};
    return socket;
  }
}

}  // namespace

Socket::Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

Socket::~Socket() { close(); }

void Socket::close() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

std::optional<std::size_t> Socket::send_some(const char* data, std::size_t bytes) noexcept {
  for (;;) {
    const ssize_t sent = ::send(descriptor_, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    return std::nullopt;
  }
}

bool Socket::receive_some(std::string& into) noexcept {
  std::array<char, 4096> piece{};
  for (;;) {
    const ssize_t got = ::recv(descriptor_, piece.data(), piece.size(), MSG_DONTWAIT);
    if (got == 0) return false;
    if (got < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    try {
      into.append(piece.data(), static_cast<std::size_t>(got));
    } catch (...) {  // out of memory: as good as gone
      return false;
    }
  }
}

ListeningSocket::ListeningSocket() {
  // One that takes both protocols, where the machine has IPv6.
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_addr = in6addr_any;
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_addr.s_addr = htonl(INADDR_ANY);
  const std::array<std::pair<const sockaddr*, socklen_t>, 2> places{
      {{reinterpret_cast<const sockaddr*>(&any6), sizeof any6},
       {reinterpret_cast<const sockaddr*>(&any4), sizeof any4}}};
  for (const auto& [address, size] : places) {
    Socket socket(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.open()) continue;
    const int no = 0;
    if (address->sa_family == AF_INET6)
      setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (bind(socket.descriptor(), address, size) != 0 || listen(socket.descriptor(), SOMAXCONN) != 0)
      continue;
    sockaddr_storage bound{};
    socklen_t bound_size = sizeof bound;
    if (getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&bound), &bound_size) != 0) continue;
    port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                              : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
    socket_ = std::move(socket);
    return;
  }
  throw CommError("no TCP socket can be opened on this machine: {}", std::strerror(errno));
}

std::optional<Socket> ListeningSocket::accept() {
  const int descriptor = accept4(socket_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (descriptor < 0) return std::nullopt;
  make_small_and_quick(descriptor);
  return Socket(descriptor);
}

std::vector<std::string> local_addresses() {
  std::vector<std::string> outside, loopback;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) == 0) {
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> holder(list, freeifaddrs);
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr) continue;
      const int family = entry->ifa_addr->sa_family;
      if (family != AF_INET && family != AF_INET6) continue;
      const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::array<char, NI_MAXHOST> text{};
      if (getnameinfo(entry->ifa_addr, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
        continue;
      const std::string address = text.data();
      if (address.find('%') != std::string::npos)
        continue;  // link-local: means something on this machine alone
      const bool local = address == "::1" || address.starts_with("127.");
      (local ? loopback : outside).push_back(address);
    }
  }
  if (loopback.empty()) loopback.emplace_back("127.0.0.1");
  outside.insert(outside.end(), loopback.begin(), loopback.end());
  return outside;
}

Socket connect_to(const std::vector<std::string>& addresses, int port,
                  std::chrono::steady_clock::time_point until) {
  using namespace std::chrono_literals;
  using Clock = std::chrono::steady_clock;
  do {
    for (const std::string& address : addresses) {
      Socket socket = try_to_connect(address, port, std::min(until, Clock::now() + 2s));
      if (socket.open()) return socket;
    }
    std::this_thread::sleep_for(20ms);
  } while (Clock::now() < until);
  throw CommError("no TCP connection to rank 0 at {} port {}: a firewall between the machines?",
                  fmt::join(addresses, ", "), port);
}

}  // namespace penstock
