// Model: the parameter table.
#include "nn/model.h"

#include <map>

namespace penstock {

Model::Model(std::string name, std::vector<std::unique_ptr<Block>> blocks, LossFunction loss)
    : name_(std::move(name)), blocks_(std::move(blocks)), loss_(std::move(loss)) {
  std::map<std::string, std::size_t> known;
  for (int b = 0; b < size(); ++b) {
    for (const Parameter& p : block(b).parameters()) {
      const auto [place, added] = known.try_emplace(p.name, parameters_.size());
      if (added) parameters_.push_back({p.name, p.shape, p.decays(), {}});
      ParameterRecord& record = parameters_[place->second];
      require<ShapeError>(record.shape == p.shape,
                          "tied parameter {} has shape {} in one block and {} in another", p.name,
                          record.shape.str(), p.shape.str());
      record.uses.push_back({b, p.index});
    }
  }
}

Index Model::parameter_count() const {
  Index count = 0;
  for (const ParameterRecord& p : parameters_) count += p.shape.numel();
  return count;
}

int Model::layers() const {
  int count = 0;
  for (const auto& b : blocks_) count += b->layers();
  return count;
}

}  // namespace penstock
