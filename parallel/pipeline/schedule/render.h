// Drawings of a timeline: in the terminal, as SVG, as a Chrome trace. Simulated and measured runs draw alike.
#pragma once

#include <string>
#include <vector>

#include "parallel/pipeline/schedule/timeline.h"

namespace penstock {

struct RenderOptions {
  Index width = 100;    // columns of the whole line; at least 40 are used
  bool colour = false;  // ANSI colours; the kinds can be told apart without
  bool legend = true;
};

/// One row a rank, time from left to right. Each kind has its own shade, and a block begins with the number
/// of its micro-batch where that fits. Ends with a newline.
std::string render(const Timeline& timeline, const std::string& title, const RenderOptions& options = {});

struct TitledTimeline {
  std::string title;
  Timeline timeline;
};

/// Several timelines one under another on one scale, each from its own first start; one legend. Throws
/// ValueError where their units differ.
std::string render(const std::vector<TitledTimeline>& timelines, const RenderOptions& options = {});

/// A stand-alone SVG picture of the timeline.
std::string svg(const Timeline& timeline, const std::string& title);

/// A trace in Chrome's trace-event format (chrome://tracing, Perfetto): complete events, microseconds, one
/// process, a named thread a rank, events named by the action's text.
std::string chrome_trace(const Timeline& timeline, const std::string& process = "penstock");

}  // namespace penstock
