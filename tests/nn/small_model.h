// A model of three small blocks whose middle parameter is tied, for the tests of stores and optimizers.
#pragma once

#include <memory>
#include <vector>

#include "autograd/ops/arithmetic.h"
#include "nn/layers.h"
#include "nn/model.h"

namespace penstock::testing {

/// Declares what it is told to and adds up nothing.
class DeclaringBlock final : public Block {
 public:
  struct Declaration {
    std::string name;
    Shape shape;
    Initializer initializer;
  };

  DeclaringBlock(const std::string& name, const std::vector<Declaration>& declarations, int layers)
      : Block(name), layers_(layers) {
    for (const Declaration& d : declarations) scope("").declare(d.name, d.shape, d.initializer);
  }
  int layers() const override { return layers_; }
  Variables forward(const Variables& inputs, const BlockContext&) const override { return inputs; }

 private:
  int layers_;
};

/// first: table (5, 3), scale (3). middle: w (3, 4), b (4), v (2, 2, 2). last: gain (3), table (5, 3), tied
/// to the first.
inline Model small_model() {
  std::vector<std::unique_ptr<Block>> blocks;
  blocks.push_back(std::make_unique<DeclaringBlock>(
      "first",
      std::vector<DeclaringBlock::Declaration>{{"scale", Shape{3}, Initializer::ones()},
                                               {"table", Shape{5, 3}, Initializer::normal(0.5f)}},
      0));
  blocks.push_back(std::make_unique<DeclaringBlock>(
      "middle",
      std::vector<DeclaringBlock::Declaration>{{"w", Shape{3, 4}, Initializer::normal(2.0f)},
                                               {"b", Shape{4}, Initializer::zeros()},
                                               {"v", Shape{2, 2, 2}, Initializer::normal(1.0f)}},
      1));
  blocks.push_back(std::make_unique<DeclaringBlock>(
      "last",
      std::vector<DeclaringBlock::Declaration>{{"gain", Shape{3}, Initializer::ones()},
                                               {"table", Shape{5, 3}, Initializer::normal(0.5f)}},
      0));
  return Model("small", std::move(blocks), {});
}

}  // namespace penstock::testing
