// The judges: multisets and Kahn's algorithm.
#include "parallel/schedule/oracle.h"

#include <algorithm>
#include <map>
#include <set>

namespace penstock::testing {
namespace {

using Edge = std::pair<std::size_t, std::size_t>;

bool acyclic(std::size_t nodes, const std::vector<Edge>& edges) {
  std::vector<std::vector<std::size_t>> out(nodes);
  std::vector<std::size_t> incoming(nodes, 0);
  for (const auto& [from, to] : edges) {
    out[from].push_back(to);
    ++incoming[to];
  }
  std::vector<std::size_t> free;
  for (std::size_t node = 0; node < nodes; ++node)
    if (incoming[node] == 0) free.push_back(node);
  std::size_t removed = 0;
  while (!free.empty()) {
    const std::size_t node = free.back();
    free.pop_back();
    ++removed;
    for (const std::size_t next : out[node])
      if (--incoming[next] == 0) free.push_back(next);
  }
  return removed == nodes;
}

struct Item {
  std::size_t rank;
  std::size_t node;
};

/// Every action by its text, numbered through, and the edges of row order among those that `keep` keeps.
template <class Keep>
std::multimap<std::string, Item> number(const std::vector<std::vector<Cell>>& rows, std::vector<Edge>& edges,
                                        std::size_t& nodes, Keep keep) {
  std::multimap<std::string, Item> items;
  nodes = 0;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    bool first = true;
    for (const Cell& cell : rows[rank]) {
      if (!cell || !keep(*cell)) continue;
      if (!first) edges.push_back({nodes - 1, nodes});
      first = false;
      items.emplace(to_text(*cell), Item{rank, nodes++});
    }
  }
  return items;
}

std::string text(Index stage, const char* kind, Index i) {
  return std::to_string(stage) + kind + std::to_string(i);
}

}  // namespace

bool compute_is_sound(const std::vector<std::vector<Cell>>& rows, const std::vector<Index>& placement,
                      Index micro_batches) {
  std::vector<Edge> edges;
  std::size_t nodes = 0;
  const auto items = number(rows, edges, nodes, [](const Action& action) { return is_compute(action.kind); });
  std::size_t wanted = 0;
  std::map<std::string, std::size_t> made;  // "0F0" or, of a gradient, "0B0" -> node
  const auto stages = static_cast<Index>(placement.size());
  // One pass for presence and rank, in the order in which values come to be, so that edges find their
  // sources.
  const auto take = [&](const std::string& name, Index stage) -> const Item* {
    if (items.count(name) != 1) return nullptr;
    const Item& item = items.find(name)->second;
    if (item.rank != static_cast<std::size_t>(placement[static_cast<std::size_t>(stage)])) return nullptr;
    ++wanted;
    return &item;
  };
  for (Index i = 0; i < micro_batches; ++i) {
    for (Index s = 0; s < stages; ++s) {
      const Item* forward = take(text(s, "F", i), s);
      if (forward == nullptr) return false;
      made[text(s, "F", i)] = forward->node;
      if (s > 0) edges.push_back({made.at(text(s - 1, "F", i)), forward->node});
    }
    for (Index s = stages - 1; s >= 0; --s) {
      const bool whole = items.count(text(s, "B", i)) > 0;
      const Item* backward = take(text(s, whole ? "B" : "I", i), s);
      if (backward == nullptr) return false;
      made[text(s, "B", i)] = backward->node;
      edges.push_back({made.at(text(s, "F", i)), backward->node});
      if (s + 1 < stages) edges.push_back({made.at(text(s + 1, "B", i)), backward->node});
      if (whole) continue;
      const Item* weights = take(text(s, "W", i), s);
      if (weights == nullptr) return false;
      edges.push_back({backward->node, weights->node});
    }
  }
  return wanted == items.size() && acyclic(nodes, edges);
}

bool messages_are_sound(const std::vector<std::vector<Cell>>& rows, const std::vector<Index>& placement,
                        Index micro_batches) {
  // Position of every action by rank and text.
  std::map<std::pair<std::size_t, std::string>, std::size_t> at;
  std::multiset<std::pair<std::size_t, std::string>> there;
  for (std::size_t rank = 0; rank < rows.size(); ++rank)
    for (std::size_t position = 0; position < rows[rank].size(); ++position)
      if (const Cell& cell = rows[rank][position]) {
        at[{rank, to_text(*cell)}] = position;
        if (is_communication(cell->kind)) there.insert({rank, to_text(*cell)});
      }
  const auto before = [&](std::size_t rank, const std::string& first, std::vector<std::string> seconds) {
    const auto a = at.find({rank, first});
    for (const std::string& second : seconds) {
      const auto b = at.find({rank, second});
      if (a != at.end() && b != at.end()) return a->second < b->second;
    }
    return false;
  };
  std::multiset<std::pair<std::size_t, std::string>> wanted;
  for (Index i = 0; i < micro_batches; ++i) {
    for (Index s = 0; s + 1 < static_cast<Index>(placement.size()); ++s) {
      const auto lower = static_cast<std::size_t>(placement[static_cast<std::size_t>(s)]);
      const auto upper = static_cast<std::size_t>(placement[static_cast<std::size_t>(s) + 1]);
      if (lower == upper) continue;
      wanted.insert({lower, text(s, "SEND_F", i)});
      wanted.insert({upper, text(s + 1, "RECV_F", i)});
      wanted.insert({upper, text(s + 1, "SEND_B", i)});
      wanted.insert({lower, text(s, "RECV_B", i)});
      const bool good = before(lower, text(s, "F", i), {text(s, "SEND_F", i)}) &&
                        before(upper, text(s + 1, "RECV_F", i), {text(s + 1, "F", i)}) &&
                        (before(upper, text(s + 1, "B", i), {text(s + 1, "SEND_B", i)}) ||
                         before(upper, text(s + 1, "I", i), {text(s + 1, "SEND_B", i)})) &&
                        before(lower, text(s, "RECV_B", i), {text(s, "B", i), text(s, "I", i)});
      if (!good) return false;
    }
  }
  return wanted == there;
}

bool transport_is_sound(const std::vector<std::vector<Cell>>& rows, Transport transport) {
  std::vector<Edge> edges;
  std::size_t nodes = 0;
  const auto items =
      number(rows, edges, nodes, [](const Action& action) { return is_communication(action.kind); });
  struct Message {
    std::size_t send, receive;
  };
  std::map<std::pair<std::size_t, std::size_t>, std::vector<Message>> channels;
  std::vector<std::size_t> merged(nodes);
  for (std::size_t node = 0; node < nodes; ++node) merged[node] = node;
  for (const auto& [name, item] : items) {
    const Action action = parse_action(name);
    if (!is_send(action.kind)) continue;
    const Item& other = items.find(to_text(peer(action)))->second;
    channels[{item.rank, other.rank}].push_back({item.node, other.node});
    if (transport == Transport::rendezvous) merged[other.node] = item.node;
    edges.push_back({item.node, other.node});
  }
  if (transport == Transport::fifo) {
    for (auto& [ranks, messages] : channels) {
      std::sort(messages.begin(), messages.end(),
                [](const Message& a, const Message& b) { return a.send < b.send; });
      for (std::size_t k = 1; k < messages.size(); ++k)
        if (messages[k].receive < messages[k - 1].receive) return false;
    }
  }
  std::vector<Edge> kept;
  for (const auto& [from, to] : edges)
    if (transport != Transport::rendezvous || merged[from] != merged[to])
      kept.push_back({merged[from], merged[to]});
  return acyclic(nodes, kept);
}

}  // namespace penstock::testing
