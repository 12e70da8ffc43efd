// TCP sockets of the side channel: few, small, never blocking after they are connected.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

/// A connected or listening socket; closed with the object.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  bool open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  void close() noexcept;

  /// Sends what the system takes at once; returns how many bytes, or none when the other end is gone.
  std::optional<std::size_t> send_some(const char* data, std::size_t bytes) noexcept;
  /// Appends what has arrived; false when the other end has closed or is gone.
  bool receive_some(std::string& into) noexcept;

 private:
  int descriptor_ = -1;
};

/// A socket that listens on all addresses of this machine, at a port that the system chose.
class ListeningSocket {
 public:
  /// Throws CommError.
  ListeningSocket();

  int port() const { return port_; }
  int descriptor() const { return socket_.descriptor(); }
  /// The next connection that waits, none when there is none.
  std::optional<Socket> accept();

 private:
  Socket socket_;
  int port_ = 0;
};

/// Addresses of this machine that others may reach, IPv4 and IPv6; loopback ones last.
std::vector<std::string> local_addresses();

/// Connects to the first of the addresses that answers; each is given two seconds, in turns, until `until`.
/// Throws CommError naming them.
Socket connect_to(const std::vector<std::string>& addresses, int port,
                  std::chrono::steady_clock::time_point until);

}  // namespace penstock
