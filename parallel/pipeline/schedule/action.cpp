// The text form of actions: printing and reading.
#include "parallel/pipeline/schedule/action.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"

namespace penstock {
namespace {

constexpr std::array<std::pair<ActionKind, std::string_view>, 19> kNames = {{
    {ActionKind::F, "F"},
    {ActionKind::B, "B"},
    {ActionKind::I, "I"},
    {ActionKind::W, "W"},
    {ActionKind::OVERLAP_F_B, "OVERLAP_F_B"},
    {ActionKind::RECOMPUTE, "RECOMPUTE"},
    {ActionKind::SEND_F, "SEND_F"},
    {ActionKind::RECV_F, "RECV_F"},
    {ActionKind::SEND_B, "SEND_B"},
    {ActionKind::RECV_B, "RECV_B"},
    {ActionKind::REDUCE_GRAD, "REDUCE_GRAD"},
    {ActionKind::STEP, "STEP"},
    {ActionKind::OFFLOAD, "OFFLOAD"},
    {ActionKind::PREFETCH, "PREFETCH"},
    {ActionKind::UNSHARD, "UNSHARD"},
    {ActionKind::RESHARD, "RESHARD"},
    {ActionKind::WAIT_SEND_F, "WAIT_SEND_F"},
    {ActionKind::WAIT_SEND_B, "WAIT_SEND_B"},
    {ActionKind::WAIT_REDUCE_GRAD, "WAIT_REDUCE_GRAD"},
}};

constexpr Index kLargestNumber = 1'000'000'000;

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// The beginning of a text for a one-line message: control characters and bytes beyond ASCII become '?'.
std::string printable(std::string_view text) {
  std::string result(text.substr(0, 60));
  std::replace_if(
      result.begin(), result.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return result;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Takes a number off the front of `text`; -1 where there is none.
Index take_number(std::string_view& text) {
  if (text.empty() || !is_digit(text.front())) return -1;
  Index value = 0;
  while (!text.empty() && is_digit(text.front())) {
    value = value * 10 + (text.front() - '0');
    require<ValueError>(value <= kLargestNumber, "a number is larger than {}", kLargestNumber);
    text.remove_prefix(1);
  }
  return value;
}

Action parse_single(std::string_view text) {
  Action action;
  action.stage = take_number(text);
  require<ValueError>(action.stage >= 0, "an action begins with the number of its stage, as in 2F0");
  const auto digits =
      static_cast<std::size_t>(std::find_if(text.begin(), text.end(), is_digit) - text.begin());
  const std::string_view kind = text.substr(0, digits);
  const auto* known = std::find_if(kNames.begin(), kNames.end(), [&](const auto& entry) {
    return entry.second == kind && entry.first != ActionKind::OVERLAP_F_B;
  });
  require<ValueError>(known != kNames.end(), "'{}' is no kind of action (F, B, I, W, SEND_F, RECV_F, ...)",
                      printable(kind));
  action.kind = known->first;
  text.remove_prefix(digits);
  action.micro_batch = take_number(text);
  require<ValueError>(text.empty(), "'{}' follows the action", printable(text));
  if (has_micro_batch(action.kind)) {
    require<ValueError>(action.micro_batch >= 0, "{} needs the number of its micro-batch", kind);
  } else {
    require<ValueError>(action.micro_batch < 0, "{} carries no micro-batch", kind);
  }
  return action;
}

}  // namespace

std::string_view name(ActionKind kind) {
  const auto* known =
      std::find_if(kNames.begin(), kNames.end(), [&](const auto& e) { return e.first == kind; });
  require<ValueError>(known != kNames.end(), "{} is no kind of action", static_cast<int>(kind));
  return known->second;
}

Action overlap(Index stage, Index micro_batch, Index backward_stage, Index backward_micro_batch) {
  return {ActionKind::OVERLAP_F_B, stage, micro_batch, backward_stage, backward_micro_batch};
}

bool has_micro_batch(ActionKind kind) {
  switch (kind) {
    case ActionKind::REDUCE_GRAD:
    case ActionKind::STEP:
    case ActionKind::UNSHARD:
    case ActionKind::RESHARD:
    case ActionKind::WAIT_REDUCE_GRAD:
      return false;
    default:
      return true;
  }
}

bool is_compute(ActionKind kind) { return kind <= ActionKind::RECOMPUTE; }
bool is_communication(ActionKind kind) { return kind >= ActionKind::SEND_F && kind <= ActionKind::RECV_B; }
bool is_send(ActionKind kind) { return kind == ActionKind::SEND_F || kind == ActionKind::SEND_B; }
bool is_receive(ActionKind kind) { return kind == ActionKind::RECV_F || kind == ActionKind::RECV_B; }

ActionParts parts(const Action& action) {
  if (action.kind != ActionKind::OVERLAP_F_B) return {{action, {}}, 1};
  return {{{ActionKind::F, action.stage, action.micro_batch},
           {ActionKind::B, action.backward_stage, action.backward_micro_batch}},
          2};
}

Action peer(const Action& action) {
  Action other = action;
  switch (action.kind) {
    case ActionKind::SEND_F:
      other.kind = ActionKind::RECV_F;
      break;
    case ActionKind::RECV_F:
      other.kind = ActionKind::SEND_F;
      break;
    case ActionKind::SEND_B:
      other.kind = ActionKind::RECV_B;
      break;
    case ActionKind::RECV_B:
      other.kind = ActionKind::SEND_B;
      break;
    default:
      throw ValueError("{} is no SEND or RECV", to_text(action));
  }
  const bool up = action.kind == ActionKind::SEND_F || action.kind == ActionKind::RECV_B;
  other.stage += up ? 1 : -1;
  require<ValueError>(other.stage >= 0, "{} has no stage below it", to_text(action));
  return other;
}

std::string to_text(const Action& action) {
  if (action.kind == ActionKind::OVERLAP_F_B)
    return fmt::format("({}F{};{}B{})OVERLAP_F_B", action.stage, action.micro_batch, action.backward_stage,
                       action.backward_micro_batch);
  if (action.micro_batch < 0) return fmt::format("{}{}", action.stage, name(action.kind));
  return fmt::format("{}{}{}", action.stage, name(action.kind), action.micro_batch);
}

Action parse_action(std::string_view text) {
  text = trim(text);
  try {
    require<ValueError>(!text.empty(), "an action is empty");
    if (text.front() != '(') return parse_single(text);
    const auto semicolon = text.find(';');
    const auto close = text.find(')');
    require<ValueError>(semicolon != std::string_view::npos && close != std::string_view::npos &&
                            semicolon < close && text.substr(close + 1) == name(ActionKind::OVERLAP_F_B),
                        "an overlapped pair is written as in (0F7;7B3)OVERLAP_F_B");
    const Action forward = parse_single(trim(text.substr(1, semicolon - 1)));
    const Action backward = parse_single(trim(text.substr(semicolon + 1, close - semicolon - 1)));
    require<ValueError>(forward.kind == ActionKind::F && backward.kind == ActionKind::B,
                        "an overlapped pair is an F and a B, in this order");
    return overlap(forward.stage, forward.micro_batch, backward.stage, backward.micro_batch);
  } catch (ValueError& error) {
    error.add_context(fmt::format("'{}' is no action", printable(text)));
    throw;
  }
}

}  // namespace penstock
