// SVG drawing of a timeline.
#include <algorithm>

#include "core/error.h"
#include "parallel/pipeline/schedule/render.h"

namespace penstock {
namespace {

constexpr double kLeft = 70;     // of the first time, in pixels
constexpr double kTop = 34;      // of the first row
constexpr double kWidth = 1100;  // of the whole span
constexpr double kRow = 30;      // from row to row
constexpr double kBar = 26;      // height of a bar

std::string_view colour_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::F:
      return "#6ea8fe";
    case ActionKind::B:
      return "#75c79a";
    case ActionKind::I:
      return "#5fc9c9";
    case ActionKind::W:
      return "#e0b45c";
    case ActionKind::OVERLAP_F_B:
      return "#d08ad0";
    case ActionKind::RECOMPUTE:
      return "#b3a6d9";
    case ActionKind::REDUCE_GRAD:
    case ActionKind::STEP:
      return "#f0875f";
    default:
      return "#d8d8d8";
  }
}

std::string escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

}  // namespace

std::string svg(const Timeline& timeline, const std::string& title) {
  const double first = timeline.first_start();
  const double span = std::max(timeline.last_end() - first, 1e-300);
  const double height = kTop + kRow * static_cast<double>(timeline.ranks.size()) + 44;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2:.0f}\" y=\"20\" font-size=\"14\">{3}</text>\n",
      kLeft + kWidth + 20, height, kLeft, escape(title));
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const double y = kTop + kRow * static_cast<double>(rank);
    text += fmt::format("<text x=\"8\" y=\"{:.1f}\">rank {}</text>\n", y + 17, rank);
    for (const TimedAction& item : timeline.ranks[rank]) {
      const double x = kLeft + (item.start - first) / span * kWidth;
      const double width = (item.end - item.start) / span * kWidth;
      if (!(width > 0)) continue;
      const std::string name = to_text(item.action);
      text += fmt::format(
          "<rect x=\"{:.3f}\" y=\"{:.1f}\" width=\"{:.3f}\" height=\"{:.0f}\" fill=\"{}\" stroke=\"white\" "
          "stroke-width=\"0.5\"><title>{}: {} to {} {}</title></rect>\n",
          x, y, width, kBar, colour_of(item.action.kind), name, item.start, item.end, escape(timeline.unit));
      if (width > 6.5 * static_cast<double>(name.size()))
        text += fmt::format(
            "<text x=\"{:.3f}\" y=\"{:.1f}\" text-anchor=\"middle\" pointer-events=\"none\">{}</text>\n",
            x + width / 2, y + 17, name);
    }
  }
  const double y = height - 30;
  text += fmt::format(
      "<text x=\"{:.0f}\" y=\"{:.0f}\">0</text>\n<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"end\">{:.6g} "
      "{}"
      "</text>\n",
      kLeft, y, kLeft + kWidth, y, span, escape(timeline.unit));
  double x = kLeft;
  for (const auto& [kind, label] : {std::pair{ActionKind::F, "F forward"},
                                    {ActionKind::B, "B backward"},
                                    {ActionKind::I, "I backward, input"},
                                    {ActionKind::W, "W backward, weights"},
                                    {ActionKind::OVERLAP_F_B, "F with B"},
                                    {ActionKind::RECOMPUTE, "recompute"},
                                    {ActionKind::STEP, "reduce, step"},
                                    {ActionKind::SEND_F, "other"}}) {
    text += fmt::format(
        "<rect x=\"{0:.0f}\" y=\"{1:.0f}\" width=\"12\" height=\"12\" fill=\"{2}\"/>"
        "<text x=\"{3:.0f}\" y=\"{4:.0f}\">{5}</text>\n",
        x, y + 9, colour_of(kind), x + 16, y + 19, label);
    x += 130;
  }
  return text + "</svg>\n";
}

}  // namespace penstock
