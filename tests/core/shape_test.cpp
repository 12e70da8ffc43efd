// Shape and the checked conversions.
#include "core/shape.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/temp_folder.h"

namespace penstock {
namespace {

using testing::message_of;

constexpr Index most = std::numeric_limits<Index>::max();

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Shape, SizesAndTheirProduct) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.numel(), 24);
  EXPECT_EQ(shape[1], 3);
  EXPECT_EQ(shape.dim(-1), 4);
  EXPECT_EQ(shape.dim(-3), 2);
  EXPECT_EQ(shape.str(), "(2, 3, 4)");
  EXPECT_EQ(shape.without_last(), (Shape{2, 3}));
  EXPECT_EQ(shape.with(-1, 7), (Shape{2, 3, 7}));
  EXPECT_EQ(shape.with(0, 0).numel(), 0);
  EXPECT_EQ(Shape().numel(), 1) << "a scalar";
  EXPECT_EQ(Shape().str(), "()");
  EXPECT_EQ(Shape{}.rank(), 0);
}

TEST(Shape, EqualMeansRankAndSizes) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 1}));
  EXPECT_NE((Shape{0}), (Shape{0, 0})) << "places that are not used do not count as sizes";
}

TEST(Shape, EmptyWhateverTheOrderOfItsSizes) {
  EXPECT_EQ((Shape{0, most, most}).numel(), 0);
  EXPECT_EQ((Shape{most, most, 0}).numel(), 0);
}

TEST(Shape, RefusesWhatIsNone) {
  const auto refused = [](auto&& call) { return message_of<ShapeError>(call); };
  EXPECT_TRUE(contains(refused([] { Shape({2, -1}); }), "dimension 1 has the negative size -1"));
  EXPECT_TRUE(contains(refused([] { Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}); }), "at most 8 dimensions, not 9"));
  EXPECT_TRUE(contains(refused([] { Shape({Index{1} << 32, Index{1} << 31}); }), "overflow 64 bits"));
  EXPECT_EQ((Shape{Index{1} << 32, Index{1} << 30}).numel(), Index{1} << 62);
  const Shape shape{2, 3};
  EXPECT_TRUE(contains(refused([&] { shape.dim(2); }), "dimension 2 of a tensor of shape (2, 3)"));
  EXPECT_TRUE(contains(refused([&] { shape.dim(-3); }), "dimension -3"));
  EXPECT_TRUE(contains(refused([&] { shape.with(2, 1); }), "dimension 2"));
  EXPECT_TRUE(contains(refused([] { Shape().without_last(); }), "without dimensions"));
}

TEST(Checked, NarrowLosesNothing) {
  EXPECT_EQ(narrow<std::int32_t>(std::int64_t{-5}), -5);
  EXPECT_EQ(narrow<std::uint8_t>(255), 255);
  EXPECT_EQ(narrow<std::uint64_t>(most), static_cast<std::uint64_t>(most));
  EXPECT_TRUE(contains(message_of<ValueError>([] { narrow<std::int32_t>(Index{1} << 31); }),
                       "2147483648 does not fit into 32 bits"));
  EXPECT_TRUE(contains(message_of<ValueError>([] { narrow<std::uint64_t>(-1); }), "-1 does not fit"));
  EXPECT_TRUE(contains(message_of<ValueError>([] { narrow<std::int64_t>(~std::uint64_t{0}); }),
                       "does not fit into 64 bits"));
}

TEST(Checked, DivisionsAndProducts) {
  EXPECT_EQ(div_exact(12, 4, "heads"), 3);
  EXPECT_EQ(div_exact(0, 4, "heads"), 0);
  EXPECT_TRUE(contains(message_of<ValueError>([] { div_exact(13, 4, "heads"); }),
                       "heads: 13 is not a multiple of 4"));
  EXPECT_TRUE(
      contains(message_of<ValueError>([] { div_exact(13, 0, "heads"); }), "13 is not a multiple of 0"));
  EXPECT_EQ(div_up(0, 5), 0);
  EXPECT_EQ(div_up(10, 5), 2);
  EXPECT_EQ(div_up(11, 5), 3);
  EXPECT_EQ(checked_product(Index{1} << 31, Index{1} << 31), Index{1} << 62);
  EXPECT_TRUE(contains(message_of<ValueError>([] { checked_product(most, 2); }), "overflows 64 bits"));
}

}  // namespace
}  // namespace penstock
