// Verifier, rules 5 and 6: SENDs and RECVs in bijection with the values that cross ranks, and no lock on a
// transport.
#include <algorithm>
#include <deque>
#include <map>

#include "core/error.h"
#include "parallel/pipeline/schedule/verify_parts.h"

namespace penstock {
namespace {

constexpr const char* kPairs = "SEND and RECV pair up";
constexpr const char* kAdjacent = "SEND after its producer, RECV before its consumer";

struct Place {
  Index rank = -1;
  Index position = -1;
};

using Key = std::tuple<ActionKind, Index, Index>;  // kind, stage, micro-batch

Key key_of(const Action& action) { return {action.kind, action.stage, action.micro_batch}; }
Action action_of(const Key& key) { return {std::get<0>(key), std::get<1>(key), std::get<2>(key)}; }

/// B and I make the same value.
ActionKind maker_kind(ActionKind kind) { return kind == ActionKind::I ? ActionKind::B : kind; }

}  // namespace

Violation circle(const std::vector<Blocked>& blocked, std::string rule) {
  // Follow who waits for whom from the first rank: either a rank comes up twice, or the chain ends at nobody.
  const auto find = [&](Index rank) {
    return std::find_if(blocked.begin(), blocked.end(), [&](const Blocked& b) { return b.rank == rank; });
  };
  std::vector<const Blocked*> chain;
  const Blocked* at = &blocked.front();
  while (at != nullptr && std::find(chain.begin(), chain.end(), at) == chain.end()) {
    chain.push_back(at);
    const auto next = find(at->on);
    at = next == blocked.end() ? nullptr : &*next;
  }
  const auto first = at == nullptr ? chain.end() - 1 : std::find(chain.begin(), chain.end(), at);
  std::string text;
  for (auto item = first; item != chain.end(); ++item) {
    if (!text.empty()) text += "; ";
    const Blocked& b = **item;
    text +=
        fmt::format("rank {} at position {} ({}) waits for {}", b.rank, b.position, b.action, b.waits_for);
    text += b.on < 0 ? ", which nobody brings" : fmt::format(" on rank {}", b.on);
  }
  const Blocked& named = **first;
  return {named.rank, named.position, named.action, std::move(rule), "deadlock: " + text};
}

std::optional<Violation> check_messages(const Plan& plan) {
  std::map<Key, Place> messages;  // every SEND and RECV
  std::map<Key, Place> makers;    // every F and B (an I under B)
  for (std::size_t rank = 0; rank < plan.rows.size(); ++rank) {
    for (std::size_t position = 0; position < plan.rows[rank].size(); ++position) {
      const Cell& cell = plan.rows[rank][position];
      if (!cell) continue;
      const Place here{static_cast<Index>(rank), static_cast<Index>(position)};
      if (is_communication(cell->kind)) {
        const auto [known, added] = messages.try_emplace(key_of(*cell), here);
        if (!added)
          return Violation{here.rank, here.position, to_text(*cell), kPairs,
                           fmt::format("it is already at rank {}, position {}", known->second.rank,
                                       known->second.position)};
      }
      if (is_compute(cell->kind))
        for (const Action& part : parts(*cell))
          if (part.kind == ActionKind::F || part.kind == ActionKind::B || part.kind == ActionKind::I)
            makers[{maker_kind(part.kind), part.stage, part.micro_batch}] = here;
    }
  }

  // What has to be there: a SEND and a RECV for every value whose maker and user are on different ranks.
  std::size_t expected = 0;
  for (const auto& entry : makers) {
    const Action made = action_of(entry.first);
    const Place& maker = entry.second;
    const bool forward = made.kind == ActionKind::F;
    const auto user = makers.find({made.kind, made.stage + (forward ? 1 : -1), made.micro_batch});
    if (user == makers.end() || user->second.rank == maker.rank) continue;
    expected += 2;
    const Action send{forward ? ActionKind::SEND_F : ActionKind::SEND_B, made.stage, made.micro_batch};
    const Action receive = peer(send);
    const auto check = [&](const Action& action, const Place& neighbour,
                           bool after) -> std::optional<Violation> {
      const auto message = messages.find(key_of(action));
      if (message == messages.end())
        return Violation{neighbour.rank, -1, to_text(action), kPairs,
                         fmt::format("a value goes from rank {} to rank {} and this does not carry it",
                                     maker.rank, user->second.rank)};
      const Place& place = message->second;
      const auto at = [&](const char* rule, std::string why) {
        return Violation{place.rank, place.position, to_text(action), rule, std::move(why)};
      };
      if (place.rank != neighbour.rank)
        return at(kPairs, fmt::format("it belongs on rank {}", neighbour.rank));
      if (after ? place.position < neighbour.position : place.position > neighbour.position)
        return at(kAdjacent,
                  fmt::format("it must come {} position {}, where its value is {}",
                              after ? "after" : "before", neighbour.position, after ? "made" : "used"));
      return std::nullopt;
    };
    if (auto violation = check(send, maker, true)) return violation;
    if (auto violation = check(receive, user->second, false)) return violation;
  }
  if (messages.size() == expected) return std::nullopt;
  for (const auto& [key, place] : messages) {
    const Action action = action_of(key);
    const bool forward = action.kind == ActionKind::SEND_F || action.kind == ActionKind::RECV_F;
    const Index other =
        action.stage + (action.kind == ActionKind::SEND_F || action.kind == ActionKind::RECV_B ? 1 : -1);
    const ActionKind kind = forward ? ActionKind::F : ActionKind::B;
    const auto here = makers.find({kind, action.stage, action.micro_batch});
    const auto there = makers.find({kind, other, action.micro_batch});
    if (here == makers.end() || there == makers.end() || here->second.rank == there->second.rank)
      return Violation{place.rank, place.position, to_text(action), kPairs, "no value crosses ranks here"};
  }
  return std::nullopt;
}

std::optional<Violation> check_transport(const std::vector<std::vector<Cell>>& rows, Transport transport) {
  std::map<Key, Index> ranks;  // of every SEND and RECV
  for (std::size_t rank = 0; rank < rows.size(); ++rank)
    for (const Cell& cell : rows[rank])
      if (cell && is_communication(cell->kind)) ranks[key_of(*cell)] = static_cast<Index>(rank);
  const auto rank_of_peer = [&](const Action& action) -> Index {
    if (action.stage == 0 && (action.kind == ActionKind::SEND_B || action.kind == ActionKind::RECV_F))
      return -1;
    const auto known = ranks.find(key_of(peer(action)));
    return known == ranks.end() ? -1 : known->second;
  };
  const std::string rule = fmt::format("no deadlock, {} transport", name(transport));

  std::vector<std::size_t> position(rows.size(), 0);
  std::map<Key, bool> sent;                                        // SENDs done (buffered)
  std::map<std::pair<Index, Index>, std::deque<Action>> channels;  // (from, to) -> SENDs under way (fifo)
  const auto next = [&](std::size_t rank) -> const Action* {
    for (std::size_t& at = position[rank]; at < rows[rank].size(); ++at)
      if (const Cell& cell = rows[rank][at]; cell && is_communication(cell->kind)) return &*cell;
    return nullptr;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      while (const Action* action = next(rank)) {
        const Index other = rank_of_peer(*action);
        const auto here = static_cast<Index>(rank);
        bool done = false;
        if (transport == Transport::rendezvous) {
          // Complete together, when the peer's next action is the other end.
          if (other >= 0 && other != here) {
            const Action* theirs = next(static_cast<std::size_t>(other));
            if (theirs != nullptr && *theirs == peer(*action)) {
              ++position[static_cast<std::size_t>(other)];
              done = true;
            }
          }
        } else if (is_send(action->kind)) {
          sent[key_of(*action)] = true;
          channels[{here, other}].push_back(*action);
          done = true;
        } else if (transport == Transport::fifo) {
          auto& channel = channels[{other, here}];
          if (!channel.empty()) {
            if (channel.front() != peer(*action))
              return Violation{here, static_cast<Index>(position[rank]), to_text(*action), rule,
                               fmt::format("the first message from rank {} is that of {}", other,
                                           to_text(channel.front()))};
            channel.pop_front();
            done = true;
          }
        } else {
          done = other >= 0 && sent.contains(key_of(peer(*action)));
        }
        if (!done) break;
        ++position[rank];
        moved = true;
      }
    }
  }

  std::vector<Blocked> blocked;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    const Action* action = next(rank);
    if (action == nullptr) continue;
    const Index other = rank_of_peer(*action);
    const std::string wanted = other < 0 ? std::string("its other end") : to_text(peer(*action));
    blocked.push_back(
        {static_cast<Index>(rank), static_cast<Index>(position[rank]), to_text(*action), wanted, other});
  }
  if (blocked.empty()) return std::nullopt;
  return circle(blocked, rule);
}

}  // namespace penstock
