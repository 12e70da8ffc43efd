// Model: the parameter table.
#include "nn/model.h"

#include <map>

#include "autograd/ops/shape_ops.h"

namespace penstock {
namespace {

/// Whether a name matches a pattern with *.
bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] != '*')
    return !name.empty() && name[0] == pattern[0] && matches(pattern.substr(1), name.substr(1));
  for (std::size_t skip = 0; skip <= name.size(); ++skip)
    if (matches(pattern.substr(1), name.substr(skip))) return true;
  return false;
}

}  // namespace

Model::Model(std::string name, std::vector<std::unique_ptr<Block>> blocks, LossFunction loss)
    : name_(std::move(name)), blocks_(std::move(blocks)), loss_(std::move(loss)) {
  std::map<std::string, std::size_t> known;
  for (int b = 0; b < size(); ++b) {
    record_.emplace_back();
    for (const Parameter& p : block(b).parameters()) {
      const auto [place, added] = known.try_emplace(p.name, parameters_.size());
      if (added) parameters_.push_back({p.name, p.shape, p.initializer, p.decays(), p.frozen, {}});
      ParameterRecord& record = parameters_[place->second];
      require<ShapeError>(record.shape == p.shape,
                          "tied parameter {} has shape {} in one block and {} in another", p.name,
                          record.shape.str(), p.shape.str());
      record.uses.push_back({b, p.index});
      record_.back().push_back(place->second);
    }
  }
}

Index Model::parameter_count() const {
  Index count = 0;
  for (const ParameterRecord& p : parameters_) count += p.shape.numel();
  return count;
}

int Model::freeze(const std::string& pattern) {
  int count = 0;
  for (ParameterRecord& record : parameters_) {
    if (!matches(pattern, record.name)) continue;
    ++count;
    record.frozen = true;
    for (const ParameterRecord::Use& use : record.uses)
      blocks_[static_cast<std::size_t>(use.block)]
          ->parameters_[static_cast<std::size_t>(use.parameter)]
          .frozen = true;
  }
  require<ValueError>(count > 0, "freeze '{}': the model {} has no parameter of such a name", pattern, name_);
  return count;
}

Variable Model::loss(const Variables& outputs, const Tensors& targets) const {
  require<ValueError>(static_cast<bool>(loss_), "the model {} has no loss", name_);
  const Variable loss = loss_(outputs, targets);
  require<ValueError>(loss.defined() && is_floating_point(loss.tensor().dtype()),
                      "the loss of the model {} gives no number", name_);
  require<ShapeError>(loss.shape().numel() == 1, "the loss of the model {} is one number, not of shape {}",
                      name_, loss.shape().str());
  return loss.shape() == Shape{1} ? loss : ops::reshape(loss, {1});
}

int Model::layers() const {
  int count = 0;
  for (const auto& b : blocks_) count += b->layers();
  return count;
}

}  // namespace penstock
