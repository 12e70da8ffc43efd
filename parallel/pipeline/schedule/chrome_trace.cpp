// Chrome's trace-event format ("Trace Event Format", JSON object form).
#include <nlohmann/json.hpp>

#include "parallel/pipeline/schedule/render.h"

namespace penstock {

std::string chrome_trace(const Timeline& timeline, const std::string& process) {
  using Json = nlohmann::ordered_json;
  Json events = Json::array();
  events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", 0}, {"args", {{"name", process}}}});
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", 0},
                      {"tid", rank},
                      {"args", {{"name", "rank " + std::to_string(rank)}}}});
    events.push_back({{"name", "thread_sort_index"},
                      {"ph", "M"},
                      {"pid", 0},
                      {"tid", rank},
                      {"args", {{"sort_index", rank}}}});
  }
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    for (const TimedAction& item : timeline.ranks[rank]) {
      Json args = {{"stage", item.action.stage}};
      if (item.action.micro_batch >= 0) args["micro_batch"] = item.action.micro_batch;
      events.push_back({{"name", to_text(item.action)},
                        {"cat", std::string(name(item.action.kind))},
                        {"ph", "X"},
                        {"ts", item.start * timeline.microseconds_per_unit},
                        {"dur", (item.end - item.start) * timeline.microseconds_per_unit},
                        {"pid", 0},
                        {"tid", rank},
                        {"args", std::move(args)}});
    }
  }
  const Json document = {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  return document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace penstock
