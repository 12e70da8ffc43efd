// The byte tokenizer and the factory behind --tokenizer.
#include "data/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace penstock {
namespace {

using testing::message_of;

TEST(ByteTokenizer, EveryByteIsItsOwnId) {
  const auto tokenizer = load_tokenizer("byte");
  EXPECT_EQ(tokenizer->vocabulary(), 256);
  EXPECT_EQ(tokenizer->encode("Az\n"), (std::vector<std::int32_t>{65, 122, 10}));
  EXPECT_EQ(tokenizer->encode("\xe2\x82\xac"),
            (std::vector<std::int32_t>{0xe2, 0x82, 0xac}));  // the euro sign
  EXPECT_TRUE(tokenizer->encode("").empty());
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const std::vector<std::int32_t> ids = tokenizer->encode(all);
  ASSERT_EQ(ids.size(), 256u);
  for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(ids[i], static_cast<std::int32_t>(i));
  EXPECT_EQ(tokenizer->decode(ids), all);
}

TEST(ByteTokenizer, DecodeRefusesOtherIds) {
  const auto tokenizer = load_tokenizer("byte");
  for (const std::int32_t id : {256, -1, 1 << 30}) {
    const std::vector<std::int32_t> ids{65, id};
    const std::string message = message_of<ValueError>([&] { tokenizer->decode(ids); });
    EXPECT_NE(message.find(std::to_string(id)), std::string::npos) << message;
  }
}

TEST(LoadTokenizer, RefusesWhatIsNotBuiltYet) {
  for (const char* spec : {"tokenizer.json", "", "bytes"}) {
    const std::string message = message_of<ValueError>([&] { load_tokenizer(spec); });
    EXPECT_NE(message.find("not yet"), std::string::npos) << message;
    EXPECT_NE(message.find(std::string("--tokenizer ") + spec), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace penstock
