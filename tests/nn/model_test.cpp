// Parameters: names, the model's table with tied ones, and what is refused.
#include "nn/model.h"

#include <gtest/gtest.h>

#include "nn/small_model.h"
#include "support/temp_folder.h"

namespace penstock::testing {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ParameterScope, NamesAreATree) {
  std::deque<Parameter> parameters;
  const ParameterScope root(parameters, "");
  root.declare("free", Shape{1}, Initializer::zeros());
  const Parameter& first = (root / "block" / "0").declare("weight", Shape{2, 3}, Initializer::normal(0.1f));
  ParameterScope(parameters, "other").declare("weight", Shape{4}, Initializer::ones());
  for (int i = 0; i < 1000; ++i) (root / "many").declare(std::to_string(i), Shape{1}, Initializer::zeros());
  EXPECT_EQ(first.name, "block.0.weight") << "the reference stays valid";
  EXPECT_EQ(first.index, 1);
  EXPECT_TRUE(first.decays());
  EXPECT_EQ(parameters[0].name, "free");
  EXPECT_EQ(parameters[2].name, "other.weight");
  EXPECT_FALSE(parameters[2].decays());
  EXPECT_EQ((root / "a" / "b").prefix(), "a.b");
}

TEST(ParameterScope, RefusesANameTwice) {
  std::deque<Parameter> parameters;
  const ParameterScope scope(parameters, "a");
  scope.declare("b.c", Shape{1}, Initializer::zeros());
  const std::string message =
      message_of<ValueError>([&] { (scope / "b").declare("c", Shape{1}, Initializer::zeros()); });
  EXPECT_TRUE(contains(message, "parameter a.b.c is declared twice")) << message;
  EXPECT_EQ(parameters.size(), 1u);
}

TEST(Model, ListsEveryParameterOnceInModelOrder) {
  const Model model = small_model();
  std::vector<std::string> names;
  for (const ParameterRecord& p : model.parameters()) names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"scale", "table", "w", "b", "v", "gain"}));
  EXPECT_EQ(model.parameter_count(), 3 + 15 + 12 + 4 + 8 + 3);
  EXPECT_EQ(model.layers(), 1);
  EXPECT_EQ(model.size(), 3);
  const ParameterRecord& table = model.parameters()[1];
  ASSERT_EQ(table.uses.size(), 2u);
  EXPECT_EQ(table.uses[0].block, 0);
  EXPECT_EQ(table.uses[0].parameter, 1);
  EXPECT_EQ(table.uses[1].block, 2);
  EXPECT_EQ(table.uses[1].parameter, 1);
  EXPECT_EQ(table.shape, (Shape{5, 3}));
  for (const ParameterRecord& p : model.parameters()) EXPECT_EQ(p.decays, p.shape.rank() >= 2) << p.name;
}

TEST(Model, RefusesTiedParametersOfTwoShapes) {
  std::vector<std::unique_ptr<Block>> blocks;
  for (const Index rows : {3, 4})
    blocks.push_back(std::make_unique<DeclaringBlock>(
        "b", std::vector<DeclaringBlock::Declaration>{{"table", Shape{rows, 2}, Initializer::zeros()}}, 1));
  const std::string message = message_of<ShapeError>([&] { Model("broken", std::move(blocks), {}); });
  EXPECT_TRUE(contains(message, "tied parameter table has shape (3, 2) in one block and (4, 2) in another"))
      << message;
}

}  // namespace
}  // namespace penstock::testing
