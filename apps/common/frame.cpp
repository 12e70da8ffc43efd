// Exceptions to messages and exit statuses.
#include "apps/common/frame.h"

#include <cstdio>
#include <exception>

#include "core/error.h"

namespace penstock {
namespace {

void write_to(std::FILE* file, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

/// Bad usage or input, as against something that went wrong.
bool is_input_error(const std::exception& error) {
  return dynamic_cast<const ValueError*>(&error) != nullptr ||
         dynamic_cast<const ShapeError*>(&error) != nullptr ||
         dynamic_cast<const IoError*>(&error) != nullptr ||
         dynamic_cast<const DeviceError*>(&error) != nullptr;
}

}  // namespace

void Frame::print(std::string_view text) const {
  if (is_printing_rank()) write_to(stdout, text);
}

void Frame::note(std::string_view text) const {
  if (is_printing_rank()) write_to(stderr, text);
}

int run_program(const std::string& name, const std::function<int(Frame&)>& body) {
  Frame frame;
  int status = kExitFailure;
  try {
    status = body(frame);
  } catch (const std::exception& error) {
    const bool input = is_input_error(error) && !frame.work_started();
    status = input ? kExitUsage : kExitFailure;
    if (!input || frame.is_printing_rank()) write_to(stderr, fmt::format("{}: {}\n", name, error.what()));
  } catch (...) {
    write_to(stderr, fmt::format("{}: an unknown error\n", name));
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    write_to(stderr, fmt::format("{}: the results could not be written to stdout\n", name));
    if (status == kExitDone) status = kExitFailure;
  }
  return status;
}

}  // namespace penstock
