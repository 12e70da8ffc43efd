// The text form of actions: what is read prints back, what is none is refused.
#include "parallel/pipeline/schedule/action.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace penstock {
namespace {

TEST(Action, TextsOfTorchReadAndPrintBack) {
  for (const char* text :
       {"1F0", "2I1", "0W3", "0B3", "1UNSHARD", "3RESHARD", "2SEND_B2", "1RECV_F0", "3SEND_F12", "0RECV_B7",
        "2REDUCE_GRAD", "2WAIT_REDUCE_GRAD", "0WAIT_SEND_F3", "4WAIT_SEND_B0", "(0F7;7B3)OVERLAP_F_B",
        "1RECOMPUTE2", "0STEP", "1OFFLOAD4", "1PREFETCH4"})
    EXPECT_EQ(to_text(parse_action(text)), text);
}

TEST(Action, FieldsAreStageKindMicroBatch) {
  EXPECT_EQ(parse_action("3SEND_B1"), (Action{ActionKind::SEND_B, 3, 1}));
  EXPECT_EQ(parse_action("12UNSHARD"), (Action{ActionKind::UNSHARD, 12, -1}));
  EXPECT_EQ(parse_action(" \t2F0 "), (Action{ActionKind::F, 2, 0}));
  EXPECT_EQ(parse_action("(0F7;7B3)OVERLAP_F_B"), overlap(0, 7, 7, 3));
  EXPECT_EQ(parse_action("( 0F7 ; 7B3 )OVERLAP_F_B"), overlap(0, 7, 7, 3));
}

TEST(Action, WhatIsNoActionIsRefused) {
  for (const char* text : {"",
                           " ",
                           "F0",
                           "0",
                           "0F",
                           "0f0",
                           "0X1",
                           "-1F0",
                           "0F-1",
                           "0F0x",
                           "0F0 1F0",
                           "0UNSHARD1",
                           "0SEND0",
                           "0SEND_X1",
                           "99999999999999999999F0",
                           "0F99999999999",
                           "0OVERLAP_F_B1",
                           "(0F7;7B3)",
                           "(0F7,7B3)OVERLAP_F_B",
                           "(7B3;0F7)OVERLAP_F_B",
                           "(0F7;7I3)OVERLAP_F_B",
                           "(0F7)OVERLAP_F_B",
                           "(0F7;7B3)OVERLAP",
                           "(",
                           ")(;",
                           "0F0;",
                           "\xff\xfe"}) {
    EXPECT_THROW(parse_action(text), ValueError) << text;
  }
}

TEST(Action, MessagesStayOnOneLine) {
  try {
    parse_action("0F\n\r\x1b[31m");
    FAIL();
  } catch (const ValueError& error) {
    for (const char* c = error.what(); *c != 0; ++c) EXPECT_TRUE(*c >= ' ' && *c <= '~') << error.what();
  }
}

TEST(Action, PeerIsTheOtherEnd) {
  EXPECT_EQ(to_text(peer(parse_action("2SEND_F1"))), "3RECV_F1");
  EXPECT_EQ(to_text(peer(parse_action("3RECV_F1"))), "2SEND_F1");
  EXPECT_EQ(to_text(peer(parse_action("3SEND_B1"))), "2RECV_B1");
  EXPECT_EQ(to_text(peer(parse_action("2RECV_B1"))), "3SEND_B1");
  EXPECT_THROW(peer(parse_action("2F1")), ValueError);
  EXPECT_THROW(peer(parse_action("0SEND_B1")), ValueError);
  EXPECT_THROW(peer(parse_action("0RECV_F1")), ValueError);
}

TEST(Action, PartsOfAPair) {
  const ActionParts pair = parts(overlap(0, 7, 5, 3));
  ASSERT_EQ(pair.count, 2);
  EXPECT_EQ(to_text(pair.items[0]), "0F7");
  EXPECT_EQ(to_text(pair.items[1]), "5B3");
  EXPECT_EQ(parts(parse_action("1B2")).count, 1);
}

}  // namespace
}  // namespace penstock
