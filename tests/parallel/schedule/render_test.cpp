// Drawings: the picture of a small plan, widths, and the trace as JSON.
#include "parallel/pipeline/schedule/render.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "parallel/pipeline/schedule/generate.h"
#include "parallel/pipeline/schedule/simulate.h"

namespace penstock {
namespace {

Timeline timeline_of(Index pp, Index micro_batches) {
  GenerateOptions options;
  options.pp = pp;
  options.micro_batches = micro_batches;
  return simulate(generate("1f1b", options), {}).timeline;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// Columns of a line: its code points, escape sequences left out.
std::size_t columns(const std::string& line) {
  std::size_t count = 0;
  for (std::size_t k = 0; k < line.size(); ++k) {
    if (line[k] == '\x1b') {
      while (line[k] != 'm') ++k;
    } else if ((static_cast<unsigned char>(line[k]) & 0xC0) != 0x80) {
      ++count;
    }
  }
  return count;
}

// 1F1B on two ranks takes 9 units: 31 columns of a 40-column line hold 27, three a unit.
TEST(Render, PictureOfASmallPlan) {
  RenderOptions options;
  options.width = 40;
  options.legend = false;
  EXPECT_EQ(render(timeline_of(2, 2), "title", options),
            "title\n"
            "rank 0 │0██1██      0▓▓▓▓▓   1▓▓▓▓▓│\n"
            "rank 1 │   0██0▓▓▓▓▓1██1▓▓▓▓▓      │\n"
            "       0                           9\n");
}

TEST(Render, RowsHaveOneWidthThatFits) {
  for (const Index width : {40, 61, 100, 200}) {
    for (const bool colour : {false, true}) {
      for (const Index ranks : {1, 3, 12}) {
        RenderOptions options;
        options.width = width;
        options.colour = colour;
        const auto lines = lines_of(render(timeline_of(ranks, 20), "", options));
        ASSERT_EQ(std::ssize(lines), ranks + 2);
        for (Index rank = 0; rank < ranks; ++rank) {
          const std::string& line = lines[static_cast<std::size_t>(rank)];
          EXPECT_EQ(columns(line), columns(lines[0]));
          EXPECT_LE(static_cast<Index>(columns(line)), width);
          EXPECT_EQ(line.find('\x1b') != std::string::npos, colour);
        }
      }
    }
  }
}

TEST(Render, KindsDifferWithoutColour) {
  const Plan plan = plan_from_rows("x", rows_from_text({"0F0 0F1 0I0 0W0 0RECOMPUTE1 0B1"}));
  RenderOptions options;
  options.width = 100;
  const auto lines = lines_of(render(simulate(plan, {}).timeline, "", options));
  for (const char* shade : {"█", "▓", "▒", "░", "▞"}) {
    EXPECT_NE(lines[0].find(shade), std::string::npos) << shade;
    EXPECT_NE(lines[2].find(shade), std::string::npos) << shade;  // the legend
  }
  EXPECT_EQ(lines[2].find("▚"), std::string::npos);  // no pair, none in the legend
}

// A measured run: another start, transfers beside compute, an optimizer step.
TEST(Render, TwoTimelinesShareOneScale) {
  Timeline measured;
  measured.unit = "s";
  measured.ranks = {{{parse_action("0F0"), 100, 102},
                     {parse_action("0RECV_B0"), 101, 106},
                     {parse_action("0B0"), 106, 108},
                     {parse_action("0STEP"), 108, 110}}};
  Timeline simulated;
  simulated.unit = "s";
  simulated.ranks = {{{parse_action("0F0"), 0, 2}, {parse_action("0B0"), 2, 4}}};
  RenderOptions options;
  options.width = 59;  // 50 columns: five a second
  options.legend = false;
  EXPECT_EQ(render({{"measured", measured}, {"simulated", simulated}}, options),
            "measured\n"
            "rank 0 │0█████████····················0▓▓▓▓▓▓▓▓▓==========│\n"
            "simulated\n"
            "rank 0 │0█████████0▓▓▓▓▓▓▓▓▓                              │\n"
            "       0                                               10 s\n");
  simulated.unit = "";
  EXPECT_THROW(render({{"measured", measured}, {"simulated", simulated}}, options), ValueError);
}

TEST(Render, EmptyAndInstantTimelines) {
  Timeline timeline;
  EXPECT_NO_THROW(render(timeline, "nothing"));
  timeline.ranks = {{{parse_action("0F0"), 5, 5}}};
  EXPECT_NO_THROW(render(timeline, "an instant"));
  EXPECT_NO_THROW(svg(timeline, "an instant"));
}

TEST(Trace, OneThreadARankEventsInMicroseconds) {
  Timeline timeline = timeline_of(2, 2);
  timeline.microseconds_per_unit = 1e6;
  const auto document = nlohmann::json::parse(chrome_trace(timeline));
  int complete = 0;
  std::vector<std::string> threads;
  for (const auto& event : document["traceEvents"]) {
    EXPECT_EQ(event["pid"], 0);
    if (event["ph"] == "M" && event["name"] == "thread_name") threads.push_back(event["args"]["name"]);
    if (event["ph"] != "X") continue;
    ++complete;
    if (event["name"] == "1B1") {
      EXPECT_EQ(event["tid"], 1);
      EXPECT_EQ(event["ts"], 5e6);
      EXPECT_EQ(event["dur"], 2e6);
      EXPECT_EQ(event["args"]["micro_batch"], 1);
    }
  }
  EXPECT_EQ(complete, 8);
  EXPECT_EQ(threads, (std::vector<std::string>{"rank 0", "rank 1"}));
}

TEST(Svg, HasABarForEveryAction) {
  const std::string picture = svg(timeline_of(2, 2), "a < b & \"c\"");
  EXPECT_NE(picture.find("a &lt; b &amp; &quot;c&quot;"), std::string::npos);
  std::size_t bars = 0;
  for (std::size_t at = picture.find("<title>"); at != std::string::npos;
       at = picture.find("<title>", at + 1))
    ++bars;
  EXPECT_EQ(bars, 8u);
  EXPECT_EQ(picture.rfind("<svg", 0), 0u);
  EXPECT_TRUE(picture.ends_with("</svg>\n"));
}

}  // namespace
}  // namespace penstock
