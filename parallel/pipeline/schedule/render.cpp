// Terminal drawing: a row of block characters a rank, or coloured backgrounds.
#include "parallel/pipeline/schedule/render.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace penstock {
namespace {

struct Style {
  std::string_view label;
  std::string_view fill;  // one column wide, without colour
  int tint[2];            // 256-colour backgrounds for even and odd micro-batches
};

enum StyleIndex { kF, kB, kI, kW, kOverlap, kRecompute, kUpdate, kMemory, kTransfer, kStyles };

constexpr Style kStyle[kStyles] = {
    {"F forward", "█", {75, 111}},         {"B backward", "▓", {114, 150}},
    {"I backward, input", "▒", {80, 116}}, {"W backward, weights", "░", {179, 222}},
    {"F with B", "▚", {176, 218}},         {"recompute", "▞", {146, 189}},
    {"reduce, step", "=", {209, 209}},     {"offload, prefetch, gather", "~", {247, 247}},
    {"transfer, wait", "·", {238, 238}},
};

StyleIndex style_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::F:
      return kF;
    case ActionKind::B:
      return kB;
    case ActionKind::I:
      return kI;
    case ActionKind::W:
      return kW;
    case ActionKind::OVERLAP_F_B:
      return kOverlap;
    case ActionKind::RECOMPUTE:
      return kRecompute;
    case ActionKind::REDUCE_GRAD:
    case ActionKind::STEP:
      return kUpdate;
    case ActionKind::OFFLOAD:
    case ActionKind::PREFETCH:
    case ActionKind::UNSHARD:
    case ActionKind::RESHARD:
      return kMemory;
    default:
      return kTransfer;
  }
}

std::string number_of(const Action& action) {
  if (action.kind == ActionKind::OVERLAP_F_B)
    return fmt::format("{}+{}", action.micro_batch, action.backward_micro_batch);
  return is_compute(action.kind) ? std::to_string(action.micro_batch) : std::string();
}

std::string repeat(std::string_view text, std::size_t count) {
  std::string result;
  for (std::size_t k = 0; k < count; ++k) result += text;
  return result;
}

/// A block of `columns` columns.
std::string block(const Action& action, std::size_t columns, bool colour) {
  const Style& style = kStyle[style_of(action.kind)];
  std::string number = number_of(action);
  // Without colour at least one column of the shade has to stay.
  if (number.size() + (colour ? 0 : 1) > columns) number.clear();
  const std::size_t rest = columns - number.size();
  if (!colour) return number + repeat(style.fill, rest);
  return fmt::format("\x1b[48;5;{}m\x1b[30m{}{}\x1b[0m", style.tint[action.micro_batch & 1], number,
                     std::string(rest, ' '));
}

/// How time maps to columns, the same for all timelines of a drawing.
struct Scale {
  double span = 0;  // time of all columns
  std::size_t columns = 1;

  /// The first column whose middle is at or after `time`.
  std::size_t column(double time) const {
    const double x = time / span * static_cast<double>(columns);
    return static_cast<std::size_t>(std::clamp(std::ceil(x - 0.5 - 1e-9), 0.0, static_cast<double>(columns)));
  }
};

/// The whole width, or the largest part of it that gives the shortest action a whole number of columns, where
/// every time is a multiple of it.
Scale make_scale(const std::vector<TitledTimeline>& timelines, std::size_t width) {
  Scale scale;
  scale.columns = width;
  double shortest = 0;
  for (const auto& [title, timeline] : timelines) {
    const double first = timeline.first_start();
    scale.span = std::max(scale.span, timeline.last_end() - first);
    for (const auto& line : timeline.ranks)
      for (const TimedAction& item : line)
        if (const double length = item.end - item.start; length > 0 && (shortest == 0 || length < shortest))
          shortest = length;
  }
  if (!(scale.span > 0)) scale.span = 1;
  const double pieces = shortest > 0 ? scale.span / shortest : 0;
  if (pieces >= 1 && pieces <= static_cast<double>(width) && std::abs(pieces - std::round(pieces)) < 1e-6)
    scale.columns = width / static_cast<std::size_t>(std::llround(pieces)) *
                    static_cast<std::size_t>(std::llround(pieces));
  return scale;
}

std::string draw_row(const std::vector<TimedAction>& line, double first, const Scale& scale, bool colour) {
  std::vector<const TimedAction*> columns(scale.columns, nullptr);
  for (const bool compute : {false, true})  // compute lies over whatever runs beside it
    for (const TimedAction& item : line)
      if (is_compute(item.action.kind) == compute)
        std::fill(columns.begin() + static_cast<std::ptrdiff_t>(scale.column(item.start - first)),
                  columns.begin() + static_cast<std::ptrdiff_t>(std::max(scale.column(item.start - first),
                                                                         scale.column(item.end - first))),
                  &item);
  std::string text;
  for (std::size_t begin = 0; begin < columns.size();) {
    std::size_t end = begin;
    while (end < columns.size() && columns[end] == columns[begin]) ++end;
    text += columns[begin] == nullptr ? std::string(end - begin, ' ')
                                      : block(columns[begin]->action, end - begin, colour);
    begin = end;
  }
  return text;
}

std::string axis(const Scale& scale, const std::string& unit, std::size_t margin) {
  const std::string last = fmt::format("{:.4g}{}{}", scale.span, unit.empty() ? "" : " ", unit);
  const std::size_t gap = scale.columns + 1 > last.size() ? scale.columns + 1 - last.size() : 1;
  return std::string(margin, ' ') + "0" + std::string(gap, ' ') + last + "\n";
}

std::string legend(const std::vector<TitledTimeline>& timelines, bool colour) {
  bool used[kStyles] = {};
  for (const auto& [title, timeline] : timelines)
    for (const auto& line : timeline.ranks)
      for (const TimedAction& item : line) used[style_of(item.action.kind)] = true;
  std::string text;
  for (int k = 0; k < kStyles; ++k) {
    if (!used[k]) continue;
    const Style& style = kStyle[k];
    if (colour)
      text += fmt::format("\x1b[48;5;{}m  \x1b[0m {}   ", style.tint[0], style.label);
    else
      text += fmt::format("{}{} {}   ", style.fill, style.fill, style.label);
  }
  return text + "(blank: idle; a number is the micro-batch of the block that it begins)\n";
}

}  // namespace

std::string render(const std::vector<TitledTimeline>& timelines, const RenderOptions& options) {
  std::size_t ranks = 0;
  for (const auto& [title, timeline] : timelines) {
    ranks = std::max(ranks, timeline.ranks.size());
    require<ValueError>(timeline.unit == timelines.front().timeline.unit,
                        "timelines in '{}' and '{}' cannot share a scale", timelines.front().timeline.unit,
                        timeline.unit);
  }
  const std::size_t label = fmt::format("rank {} ", ranks > 0 ? ranks - 1 : 0).size();
  const auto width = static_cast<std::size_t>(std::max<Index>(options.width, 40)) - label - 2;
  const Scale scale = make_scale(timelines, width);
  std::string text;
  for (const auto& [title, timeline] : timelines) {
    if (!title.empty()) text += title + "\n";
    const double first = timeline.first_start();
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank)
      text += fmt::format("{:<{}}│{}│\n", fmt::format("rank {}", rank), label,
                          draw_row(timeline.ranks[rank], first, scale, options.colour));
  }
  if (timelines.empty()) return text;
  text += axis(scale, timelines.front().timeline.unit, label);
  if (options.legend) text += legend(timelines, options.colour);
  return text;
}

std::string render(const Timeline& timeline, const std::string& title, const RenderOptions& options) {
  return render({TitledTimeline{title, timeline}}, options);
}

}  // namespace penstock
