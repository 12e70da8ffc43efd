// Exit statuses: before work starts bad input is 2 and told once, afterwards every error is 1.
#include "apps/common/frame.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "core/error.h"

namespace penstock {
namespace {

struct Outcome {
  int status;
  std::string stderr_text;
};

Outcome run(const std::function<int(Frame&)>& body) {
  testing::internal::CaptureStderr();
  const int status = run_program("penstock-x", body);
  return {status, testing::internal::GetCapturedStderr()};
}

TEST(Frame, StatusOfTheBody) {
  EXPECT_EQ(run([](Frame&) { return 0; }).status, 0);
  EXPECT_EQ(run([](Frame&) { return kExitRefused; }).status, 3);
}

TEST(Frame, BadInputIsTwoOnOneLine) {
  const Outcome outcome = run([](Frame&) -> int { throw ValueError("--pp 0: allowed is 1 or more"); });
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.stderr_text, "penstock-x: --pp 0: allowed is 1 or more\n");
  EXPECT_EQ(run([](Frame&) -> int { throw IoError("no file"); }).status, 2);
  EXPECT_EQ(run([](Frame&) -> int { throw ShapeError("shape"); }).status, 2);
  EXPECT_EQ(run([](Frame&) -> int { throw DeviceError("no GPU"); }).status, 2);
}

TEST(Frame, OtherErrorsAreOne) {
  EXPECT_EQ(run([](Frame&) -> int { throw CommError("peer"); }).status, 1);
  EXPECT_EQ(run([](Frame&) -> int { throw std::runtime_error("x"); }).status, 1);
  EXPECT_EQ(run([](Frame&) -> int { throw 5; }).status, 1);
  const Outcome outcome = run([](Frame& frame) -> int {
    frame.start_work();
    throw IoError("disk full");
  });
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.stderr_text, "penstock-x: disk full\n");
}

TEST(Frame, OnePrintingRankSpeaks) {
  testing::internal::CaptureStdout();
  const Outcome silent = run([](Frame& frame) -> int {
    frame.is_printing_rank = [] { return false; };
    frame.print("result\n");
    frame.note("progress\n");
    throw ValueError("bad");
  });
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(silent.status, 2);
  EXPECT_EQ(silent.stderr_text, "");
  // A failure in the midst of work is told by the rank that has it.
  const Outcome failed = run([](Frame& frame) -> int {
    frame.is_printing_rank = [] { return false; };
    frame.start_work();
    throw CommError("rank 3 is dead");
  });
  EXPECT_EQ(failed.stderr_text, "penstock-x: rank 3 is dead\n");
}

}  // namespace
}  // namespace penstock
