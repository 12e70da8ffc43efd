// The frame round a program's body: exceptions become one line on stderr and the exit status of the contract.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

namespace penstock {

/// Exit statuses of all programs.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailure = 1;  // anything that is none of the others
inline constexpr int kExitUsage = 2;    // bad usage or bad input, found before work starts
inline constexpr int kExitRefused = 3;  // `verify` or `compare` said no

/// What a program's body shares with the frame. It knows nothing of MPI: a program that has ranks sets
/// `is_printing_rank` as soon as it knows its own.
class Frame {
 public:
  /// Whether this process speaks for all ranks: prints results, and errors found before work starts (which
  /// all ranks find alike).
  std::function<bool()> is_printing_rank = [] { return true; };

  /// From here on input has been accepted: an error is a failure (exit 1), told by every rank that has one.
  void start_work() { work_started_ = true; }
  bool work_started() const { return work_started_; }

  /// Exit status for the exception in flight: 2 for a ValueError, ShapeError, IoError or DeviceError before
  /// start_work, 1 for everything else.
  int status_of_failure() const;
  /// Its words, on one line.
  std::string words_of_failure() const;
  /// Tells the exception in flight in one line "NAME: message" on stderr: one found before work started by
  /// the printing rank alone. Returns status_of_failure().
  int tell_failure(const std::string& name) const;

  /// Results: to stdout, on the printing rank.
  void print(std::string_view text) const;
  /// Progress and diagnostics: to stderr, on the printing rank.
  void note(std::string_view text) const;

 private:
  std::atomic<bool> work_started_ = false;  // ranks may be threads
};

/// Runs the body and returns the program's exit status: what the body returns; for an exception that of
/// Frame::tell_failure. Results that could not be written to stdout (a full disk) make it 1.
int run_program(const std::string& name, const std::function<int(Frame&)>& body);

}  // namespace penstock
