// Plans as files: what is read is written again cell for cell; what is no schedule is refused with row and
// cell.
#include "parallel/pipeline/schedule/csv.h"

#include <gtest/gtest.h>

#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "parallel/pipeline/schedule/generate.h"
#include "parallel/pipeline/schedule/lower.h"
#include "parallel/pipeline/schedule/verify.h"
#include "parallel/schedule/reference_plans.h"

namespace penstock {
namespace {

std::string again(std::string_view text) { return to_csv(parse_csv(text, "a.csv")); }

TEST(Csv, CellsComeBackBubblesIncluded) {
  for (const char* text :
       {"0F0,0F1,,,0B0,,0B1\n,1F0,1B0,1F1,1B1\n", "0F0,0B0\n", ",,0F0,0B0,,\n,1F0,1B0\n",
        "(0F1;3B0)OVERLAP_F_B,0UNSHARD,0RESHARD,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0WAIT_SEND_F1,0WAIT_SEND_B0\n",
        "0F0,0SEND_F0,0RECV_B0,0I0,0W0\n1RECV_F0,1F0,1I0,1SEND_B0,1W0\n", "0F0,0B0\n\n1F0,1B0\n"})
    EXPECT_EQ(again(text), text);
}

TEST(Csv, LineEndsMarksBlanksAndEmptyLinesPass) {
  EXPECT_EQ(again("0F0,,0B0\r\n,1F0,1B0\r\n"), "0F0,,0B0\n,1F0,1B0\n");
  EXPECT_EQ(again("\xEF\xBB\xBF"
                  "0F0,0B0\r\n"),
            "0F0,0B0\n");
  EXPECT_EQ(again(" 0F0 ,\t0B0\t\n , 1F0 ,1B0 "), "0F0,0B0\n,1F0,1B0\n");
  EXPECT_EQ(again("0F0,0B0\n\n \r\n\n"), "0F0,0B0\n");
  EXPECT_EQ(again("0F0,0B0,,\r\n"), "0F0,0B0,,\n");
}

TEST(Csv, GeneratedAndPublishedPlansComeBack) {
  for (const auto& reference : testing::reference_plans()) {
    const Plan plan = plan_from_rows(reference.name, rows_from_text(reference.rows));
    for (const Plan& each : {plan, lower(plan)}) {
      const Plan back = parse_csv(to_csv(each), each.schedule);
      EXPECT_EQ(back.rows, each.rows) << reference.name;
      EXPECT_EQ(back.placement, reference.placement) << reference.name;
      EXPECT_EQ(back.replica, each.replica) << reference.name;
      EXPECT_EQ(back.stages, each.stages) << reference.name;
      EXPECT_EQ(back.lowered, each.lowered) << reference.name;
      EXPECT_FALSE(verify(back).has_value()) << verify(back)->message();
    }
  }
}

std::string refusal(std::string_view text) {
  try {
    parse_csv(text, "mine.csv");
  } catch (const ValueError& error) {
    return error.what();
  }
  return "";
}

TEST(Csv, WhatIsNoScheduleIsRefusedWithRowAndCell) {
  EXPECT_EQ(refusal("0F0,0B0\n1F0,,1X0\n").rfind("mine.csv, row 2, cell 3: '1X0' is no action", 0), 0u);
  EXPECT_EQ(refusal("rank 0,0F0\n").rfind("mine.csv, row 1, cell 1:", 0), 0u);
  EXPECT_EQ(refusal("0F0;0B0\n").rfind("mine.csv, row 1, cell 1:", 0), 0u);
  EXPECT_EQ(refusal("0F0,0B\n").rfind("mine.csv, row 1, cell 2:", 0), 0u);
  EXPECT_NE(refusal(""), "");
  EXPECT_NE(refusal("\n\n"), "");
  EXPECT_NE(refusal(",,\n,\n"), "");
  EXPECT_NE(refusal(std::string("0F0\0,0B0", 8)), "");
}

TEST(Csv, FilesAreReadAndMissingOnesNamed) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("penstock-csv-{}", getpid());
  std::filesystem::create_directories(folder);
  const std::string path = folder / "plan.csv";
  std::ofstream(path) << "0F0,0B0\r\n";
  const Plan plan = read_csv(path);
  EXPECT_EQ(plan.schedule, path);
  EXPECT_EQ(plan.pp, 1);
  EXPECT_THROW(read_csv(folder / "none.csv"), IoError);
  EXPECT_THROW(read_csv(folder), IoError);
  std::filesystem::remove_all(folder);
}

TEST(Json, HasTheFieldsOfTheContract) {
  GenerateOptions options;
  options.pp = 2;
  options.micro_batches = 3;
  const auto document = nlohmann::json::parse(to_json(generate("1f1b", options)));
  EXPECT_EQ(document, nlohmann::json::parse(R"({"schedule":"1f1b","pp":2,"micro_batches":3,"stages":2,
      "placement":[[0,1]],"replica":[0,0,0],
      "actions":[["0F0","0F1","0B0","0F2","0B1","0B2"],["1F0","1B0","1F1","1B1","1F2","1B2"]]})"));
}

TEST(Json, TwoReplicasBubblesAndVersions) {
  Plan plan = parse_csv("0F0,,1F1,1B1,0B0\n,1F0,1B0,,0F1,0B1\n", "x");
  // Micro-batch 1 goes the other way: stage 0 on rank 1.
  plan.versions = WeightVersions{{{0, 0}, {0, 1}}, {{0, 0}, {0, 1}}};
  const auto document = nlohmann::json::parse(to_json(plan));
  EXPECT_EQ(document["placement"], nlohmann::json::parse("[[0,1],[1,0]]"));
  EXPECT_EQ(document["replica"], nlohmann::json::parse("[0,1]"));
  EXPECT_EQ(document["actions"][0], nlohmann::json::parse(R"(["0F0","","1F1","1B1","0B0"])"));
  EXPECT_EQ(document["versions"]["forward"], nlohmann::json::parse("[[0,0],[0,1]]"));
  EXPECT_THROW(to_json(parse_csv("0F0,0F0\n", "x")), ValueError);
}

TEST(Csv, NumbersOutOfAllProportionAreRefused) {
  for (const char* text : {"999999999F0,999999999B0\n", "0F999999999,0B999999999\n"})
    EXPECT_THROW(parse_csv(text, "tower.csv"), ValueError) << text;
  EXPECT_EQ(parse_csv("9F9,9B9\n", "small.csv").stages, 10);  // what it lacks is for the verifier to say
}

}  // namespace
}  // namespace penstock
