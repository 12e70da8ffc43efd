// Errors: one exception family with a message that names the op or file, the offending values and what to do.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace penstock {

/// Base of everything that Penstock throws. Callers add context on the way up with `add_context`.
class Error : public std::exception {
 public:
  explicit Error(std::string message) : message_(std::move(message)) {}

  template <class... Args>
  explicit Error(fmt::format_string<Args...> format, Args&&... args)
      : message_(fmt::format(format, std::forward<Args>(args)...)) {}

  const char* what() const noexcept override { return message_.c_str(); }

  /// Puts "context: " in front of the message, for `catch (Error& e) { e.add_context(...); throw; }`.
  void add_context(const std::string& context) { message_ = context + ": " + message_; }

 private:
  std::string message_;
};

/// Shapes, ranks or strides that do not fit together.
class ShapeError : public Error {
 public:
  using Error::Error;
};

/// A value outside what is allowed: flags, configuration, arguments of a function.
class ValueError : public Error {
 public:
  using Error::Error;
};

/// A file that is missing, unreadable, damaged or cannot be written.
class IoError : public Error {
 public:
  using Error::Error;
};

/// A device, its memory or its kernels.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// A peer that failed, a deadline that passed, a message that does not match.
class CommError : public Error {
 public:
  using Error::Error;
};

/// Throws E with a formatted message unless `condition` holds.
template <class E, class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    throw E(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace penstock
