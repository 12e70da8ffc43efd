// Exceptions to messages and exit statuses.
#include "apps/common/frame.h"

#include <algorithm>
#include <cstdio>
#include <exception>

#include "core/error.h"

namespace penstock {
namespace {

void write_to(std::FILE* file, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

}  // namespace

void Frame::print(std::string_view text) const {
  if (is_printing_rank()) write_to(stdout, text);
}

void Frame::note(std::string_view text) const {
  if (is_printing_rank()) write_to(stderr, text);
}

int Frame::status_of_failure() const {
  if (work_started_) return kExitFailure;
  try {
    throw;
  } catch (const ValueError&) {
    return kExitUsage;
  } catch (const ShapeError&) {
    return kExitUsage;
  } catch (const IoError&) {
    return kExitUsage;
  } catch (const DeviceError&) {
    return kExitUsage;
  } catch (...) {
    return kExitFailure;
  }
}

std::string Frame::words_of_failure() const {
  std::string text = "an unknown error";
  try {
    throw;
  } catch (const std::exception& error) {
    text = error.what();
  } catch (...) {
  }
  std::replace(text.begin(), text.end(), '\n', ' ');  // a file's name may hold one
  return text;
}

int Frame::tell_failure(const std::string& name) const {
  const int status = status_of_failure();
  if (status != kExitUsage || is_printing_rank())
    write_to(stderr, fmt::format("{}: {}\n", name, words_of_failure()));
  return status;
}

int run_program(const std::string& name, const std::function<int(Frame&)>& body) {
  Frame frame;
  int status = kExitFailure;
  try {
    status = body(frame);
  } catch (...) {
    status = frame.tell_failure(name);
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    write_to(stderr, fmt::format("{}: the results could not be written to stdout\n", name));
    if (status == kExitDone) status = kExitFailure;
  }
  return status;
}

}  // namespace penstock
