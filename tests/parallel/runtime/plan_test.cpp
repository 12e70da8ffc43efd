// Partition, profile and mesh.
#include <cmath>

#include "parallel/mesh/mesh.h"
#include "parallel/pipeline/plan/partition.h"
#include "parallel/pipeline/plan/profile.h"
#include "parallel/runtime/toy_model.h"
#include "support/temp_folder.h"

namespace penstock::testing {
namespace {

Model gpt_with(Index layers) {
  Gpt2Config config = small_gpt2();
  config.layers = layers;
  return make_gpt2("small", config);
}

TEST(PartitionByLayers, EmbeddingGoesFirstAndHeadLast) {
  const Model model = gpt_with(4);  // blocks: embedding, 4 layers, head
  EXPECT_EQ(partition_by_layers(model, {4}, 1), (Partition{{0, 6}}));
  EXPECT_EQ(partition_by_layers(model, {1, 3}, 2), (Partition{{0, 2}, {2, 6}}));
  EXPECT_EQ(partition_by_layers(model, {0, 4}, 2), (Partition{{0, 1}, {1, 6}}));
  EXPECT_EQ(partition_by_layers(model, {4, 0}, 2), (Partition{{0, 5}, {5, 6}}));
  EXPECT_EQ(partition_by_layers(model, {2, 0, 2}, 3), (Partition{{0, 3}, {3, 3}, {3, 6}}));
  EXPECT_EQ(layers_per_stage(model, partition_by_layers(model, {1, 0, 3}, 3)), (std::vector<Index>{1, 0, 3}));
}

TEST(PartitionByLayers, SaysWhatIsWrong) {
  const Model model = gpt_with(4);
  const auto words = [&](const std::vector<Index>& layers, Index stages) {
    return message_of<ValueError>([&] { partition_by_layers(model, layers, stages); });
  };
  EXPECT_EQ(words({2, 2}, 3), "--partition 2,2: 2 numbers for 3 stages");
  EXPECT_EQ(words({2, 3}, 2), "--partition 2,3: the numbers sum to 5, the model has 4 layers");
  EXPECT_EQ(words({1, 1}, 2), "--partition 1,1: the numbers sum to 2, the model has 4 layers");
  EXPECT_NE(words({5, -1}, 2).find("--partition 5,-1"), std::string::npos);
  EXPECT_NE(words({}, 1), "");
}

/// The slowest stage's time.
double worst(const Partition& partition, const std::vector<double>& costs,
             const std::vector<double>& speeds) {
  double result = 0;
  for (std::size_t s = 0; s < partition.size(); ++s) {
    double cost = 0;
    for (int b = partition[s].begin; b < partition[s].end; ++b) cost += costs[static_cast<std::size_t>(b)];
    result = std::max(result, cost / speeds[s]);
  }
  return result;
}

/// Calls `visit` with every way to write `sum` as `parts` numbers of at least `least`.
void compositions(Index sum, Index parts, Index least, std::vector<Index>& so_far,
                  const std::function<void(const std::vector<Index>&)>& visit) {
  if (parts == 1) {
    so_far.push_back(sum);
    visit(so_far);
    so_far.pop_back();
    return;
  }
  for (Index n = least; n <= sum; ++n) {
    so_far.push_back(n);
    compositions(sum - n, parts - 1, least, so_far, visit);
    so_far.pop_back();
  }
}

TEST(PartitionByCost, IsTheBestOfAllCuts) {
  int checked = 0;
  for (Index layers = 1; layers <= 6; ++layers) {
    const Model model = gpt_with(layers);
    for (Index stages = 1; stages <= 5; ++stages) {
      for (std::uint32_t seed = 1; seed <= 6; ++seed) {
        const auto numbers = random_ids(static_cast<std::size_t>(layers + 2 + stages), 9, seed);
        std::vector<double> costs, speeds;
        for (Index b = 0; b < layers + 2; ++b) costs.push_back(1 + numbers[static_cast<std::size_t>(b)]);
        for (Index s = 0; s < stages; ++s)
          speeds.push_back(seed % 2 ? 1.0 : 1.0 + numbers[static_cast<std::size_t>(layers + 2 + s)]);
        double best = INFINITY;
        std::vector<Index> so_far;
        compositions(layers, stages, 0, so_far, [&](const std::vector<Index>& cut) {
          best = std::min(best, worst(partition_by_layers(model, cut, stages), costs, speeds));
        });
        const Partition found = partition_by_cost(model, costs, speeds);
        EXPECT_DOUBLE_EQ(worst(found, costs, speeds), best)
            << layers << " layers, " << stages << " stages, seed " << seed;
        ++checked;
      }
    }
  }
  EXPECT_EQ(checked, 6 * 5 * 6);
}

TEST(PartitionByCost, WeighsEmbeddingAndHead) {
  const Model model = gpt_with(4);
  // A head as dear as three layers leaves the last stage one of them.
  EXPECT_EQ(layers_per_stage(model, partition_by_cost(model, {0, 1, 1, 1, 1, 3}, {1, 1})),
            (std::vector<Index>{3, 1}));
  EXPECT_EQ(layers_per_stage(model, partition_by_cost(model, {3, 1, 1, 1, 1, 0}, {1, 1})),
            (std::vector<Index>{1, 3}));
  EXPECT_EQ(layers_per_stage(model, partition_by_cost(model, {0, 1, 1, 1, 1, 0}, {1, 3})),
            (std::vector<Index>{1, 3}));
}

TEST(PartitionByCost, IsEvenWhereTheSlowestStageLeavesRoom) {
  // The head alone costs as much as five layers: no cut makes the slowest stage faster, and the layers spread
  // over the others.
  const Model model = gpt_with(12);
  std::vector<double> costs(14, 1.0);
  costs.front() = 0;
  costs.back() = 5;
  EXPECT_EQ(layers_per_stage(model, partition_by_cost(model, costs, {1, 1, 1, 1, 1})),
            (std::vector<Index>{3, 3, 3, 3, 0}));
}

TEST(PartitionByCost, RefusesCostsAndSpeedsThatAreNone) {
  const Model model = gpt_with(2);
  EXPECT_THROW(partition_by_cost(model, {1, 1, 1}, {1, 1}), ValueError);
  EXPECT_THROW(partition_by_cost(model, {1, 1, 1, 1}, {}), ValueError);
  EXPECT_THROW(partition_by_cost(model, {1, 1, 1, 1}, {1, 0}), ValueError);
  EXPECT_THROW(partition_by_cost(model, {1, 1, 1, std::nan("")}, {1, 1}), ValueError);
}

TEST(Profile, FlopsAreThoseOfTheMatrixProducts) {
  const Model model = gpt_with(2);
  const auto source = token_source(3)();
  const std::vector<BlockProfile> profiles = profile_blocks(model, *source, 1, {0, 3});
  ASSERT_EQ(profiles.size(), 4u);
  constexpr double rows = 3 * 6, C = 16, V = 13;
  EXPECT_EQ(profiles[0].forward_flops + profiles[0].input_flops + profiles[0].weight_flops, 0);
  // A layer: 3C + C + 4C + 4C outputs for each C inputs, and attention, which is counted too or not at all.
  const double products = 2 * rows * C * 12 * C;
  EXPECT_GE(profiles[1].forward_flops, products);
  EXPECT_LE(profiles[1].forward_flops, products + 4 * rows * 6 * C);
  EXPECT_GE(profiles[1].input_flops, products);
  EXPECT_EQ(profiles[1].weight_flops, products);
  EXPECT_EQ(profiles[1].forward_flops, profiles[2].forward_flops);
  EXPECT_EQ(profiles[3].forward_flops, 2 * rows * C * V);
  EXPECT_EQ(profiles[3].weight_flops, 2 * rows * C * V);
  for (int b = 0; b < 3; ++b) {
    ASSERT_EQ(profiles[static_cast<std::size_t>(b)].outputs.size(), 1u);
    EXPECT_EQ(profiles[static_cast<std::size_t>(b)].outputs[0].shape, (Shape{3, 6, 16}));
  }
}

TEST(Profile, ShapesAndTypesOfAUsersBoundaries) {
  const Model model = make_toy();
  ToySource source(4);
  const std::vector<BlockProfile> profiles = profile_blocks(model, source, 1, {0, 3});
  const auto text = [&](std::size_t b) {
    std::string result;
    for (const TensorSpec& s : profiles[b].outputs)
      result += fmt::format("{} {}; ", s.shape.str(), name_of(s.dtype));
    return result;
  };
  ASSERT_EQ(profiles[1].outputs.size(), 3u);
  EXPECT_EQ(profiles[1].outputs[0].shape, (Shape{5, 3})) << text(1);
  EXPECT_EQ(profiles[1].outputs[2].dtype, DType::i32) << text(1);
  EXPECT_FALSE(profiles[1].outputs[2].has_gradient());
  EXPECT_EQ(profiles[2].outputs[1].shape, (Shape{3, 5})) << text(2);
}

TEST(Mesh, RanksAndCoordinatesAreInverse) {
  const MeshShape shape{.pp = 3, .tp = 2, .dp = 4, .cp = 2, .ep = 2, .replicas = 2};
  const Mesh mesh(shape, 96);
  for (int rank = 0; rank < 96; ++rank) EXPECT_EQ(mesh.rank(mesh.coordinates(rank)), rank);
  // Fastest first: tensor, context, data, replicas, pipeline.
  const auto at = [&](int rank) {
    const MeshCoordinates c = mesh.coordinates(rank);
    return std::vector<int>{c.tp, c.cp, c.dp, c.replica, c.pp};
  };
  EXPECT_EQ(at(1), (std::vector<int>{1, 0, 0, 0, 0}));
  EXPECT_EQ(at(2), (std::vector<int>{0, 1, 0, 0, 0}));
  EXPECT_EQ(at(4), (std::vector<int>{0, 0, 1, 0, 0}));
  EXPECT_EQ(at(16), (std::vector<int>{0, 0, 0, 1, 0}));
  EXPECT_EQ(at(32), (std::vector<int>{0, 0, 0, 0, 1}));
  EXPECT_EQ(at(95), (std::vector<int>{1, 1, 3, 1, 2}));
}

TEST(Mesh, RefusesWhatDoesNotMultiplyOut) {
  const auto words = [](const MeshShape& shape, int ranks) {
    return message_of<ValueError>([&] { Mesh mesh(shape, ranks); });
  };
  EXPECT_EQ(words({.pp = 2, .dp = 3}, 4),
            "--pp 2 x --dp 3 x --cp 1 x --tp 1 makes 6 ranks, but 4 are running");
  EXPECT_EQ(words({.pp = 0}, 1), "--pp 0: at least 1 wanted");
  EXPECT_NE(words({.tp = -1}, 1).find("--tp -1"), std::string::npos);
  EXPECT_EQ(words({.dp = 3, .ep = 2}, 3), "--ep 2 does not divide --dp 3");
  EXPECT_THROW(Mesh({.pp = 2}, 2).coordinates(2), ValueError);
  EXPECT_THROW(Mesh({.pp = 2}, 2).coordinates(-1), ValueError);
  EXPECT_THROW(Mesh({.pp = 2}, 2).rank({.pp = 2}), ValueError);
  EXPECT_THROW(Mesh({.pp = 2}, 2).rank({.pp = 0, .dp = 1}), ValueError);
  EXPECT_THROW(Mesh({.pp = 1 << 16, .tp = 1 << 16, .dp = 1 << 16}, 1), ValueError);
}

}  // namespace
}  // namespace penstock::testing
