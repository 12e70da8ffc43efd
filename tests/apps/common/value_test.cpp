// Values of flags: what reads as a number, what is refused and how.
#include "apps/common/value.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace penstock {
namespace {

template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const ValueError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Value, IntegersAreDecimalDigits) {
  EXPECT_EQ(parse_integer("n", "0"), 0);
  EXPECT_EQ(parse_integer("n", "-12"), -12);
  EXPECT_EQ(parse_integer("n", "9223372036854775807"), std::numeric_limits<Index>::max());
  for (const char* text : {"", " 1", "1 ", "+1", "1.5", "1e3", "1_000", "k", "1kk", "1kB", "1M", "0x10",
                           "nan", "9223372036854775808", "10000000T"})
    EXPECT_THROW(parse_integer("n", text), ValueError) << text;
}

TEST(Value, SizesAreToldInDigits) {
  const auto message = [](const char* text) { return message_of([&] { parse_integer("n", text); }); };
  EXPECT_EQ(message("64k"), "--n 64k: it is no integer; in digits it is 64000; allowed is an integer");
  EXPECT_NE(message("64Ki").find("65536"), std::string::npos);
  EXPECT_NE(message("2Gi").find("2147483648"), std::string::npos);
  EXPECT_EQ(message("10000000T"), "--n 10000000T: it is no integer; allowed is an integer");
  EXPECT_EQ(message("1 "), "--n '1 ': it is no integer; allowed is an integer");
}

TEST(Value, NumbersAreFiniteDecimals) {
  EXPECT_EQ(parse_number("x", "0.1"), 0.1);
  EXPECT_EQ(parse_number("x", "3e-4"), 3e-4);
  EXPECT_EQ(parse_number("x", "-2"), -2);
  for (const char* text : {"", "nan", "inf", "-inf", "1e999", "0x1p3", "1,5", "1.5x", " 1"})
    EXPECT_THROW(parse_number("x", text), ValueError) << text;
}

TEST(Value, RangesAndTheirMessages) {
  EXPECT_EQ(parse_integer("pp", "1", at_least<Index>(1)), 1);
  EXPECT_EQ(message_of([] { parse_integer("pp", "0", at_least<Index>(1)); }), "--pp 0: allowed is 1 or more");
  EXPECT_EQ(message_of([] { parse_integer("n", "7", between<Index>(1, 6)); }), "--n 7: allowed is 1 to 6");
  EXPECT_EQ(message_of([] { parse_number("dropout", "1", from_below(0.0, 1.0)); }),
            "--dropout 1: allowed is 0 or more and less than 1");
  EXPECT_EQ(parse_number("dropout", "0", from_below(0.0, 1.0)), 0);
  EXPECT_EQ(message_of([] { parse_number("eps", "0", more_than(0.0)); }), "--eps 0: allowed is more than 0");
  EXPECT_EQ(message_of([] { parse_number("lr", "nan"); }),
            "--lr nan: it is no finite number; allowed is a finite number");
  EXPECT_EQ(message_of([] { parse_truth("tied", "yes"); }), "--tied yes: allowed are true and false");
}

TEST(Value, CommaLists) {
  EXPECT_EQ(split_commas("1,2, 3"), (std::vector<std::string>{"1", "2", "3"}));
  EXPECT_EQ(split_commas("a"), (std::vector<std::string>{"a"}));
  EXPECT_EQ(split_commas("1,,2,"), (std::vector<std::string>{"1", "", "2", ""}));
}

}  // namespace
}  // namespace penstock
