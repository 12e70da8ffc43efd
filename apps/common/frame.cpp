// Exceptions to messages and exit statuses.
#include "apps/common/frame.h"

#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>

#include "core/error.h"

namespace penstock {
namespace {

/// Text of others (names of files, values of flags) as one line that a terminal and a log can take: a line
/// end becomes a blank, any other control character and bytes that are no UTF-8 become \xNN.
std::string one_line(std::string_view text) {
  std::string line;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t k) {
      return static_cast<unsigned char>(i + k < text.size() ? text[i + k] : 0);
    };
    const unsigned char first = byte(0);
    const std::size_t length = first < 0x80 ? 1 : first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    std::uint32_t code = length == 1 ? first : first & (0x7Fu >> length);
    bool good = first < 0x80 || (first >= 0xC2 && first <= 0xF4);
    for (std::size_t k = 1; k < length; ++k) {
      good = good && (byte(k) & 0xC0) == 0x80;
      code = code << 6 | (byte(k) & 0x3Fu);
    }
    constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    good = good && code >= least[length] && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    if (first == '\n') {
      line += ' ';
    } else if (!good || code < 0x20 || (code >= 0x7F && code < 0xA0)) {
      for (std::size_t k = 0; k < (good ? length : 1); ++k) line += fmt::format("\\x{:02x}", byte(k));
    } else {
      line += text.substr(i, length);
    }
    i += good ? length : 1;
  }
  return line;
}

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
  } catch (const std::bad_alloc&) {
    text = "out of memory: a smaller model, --seq-len or --micro-batch needs less";
  } catch (const std::exception& error) {
    text = error.what();
  } catch (...) {
  }
  return one_line(text);
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
