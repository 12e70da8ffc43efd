// Gradients and weights of a run as safetensors files, for comparing runs and layouts.
#pragma once

#include <filesystem>

#include "parallel/comm/communicator.h"
#include "parallel/pipeline/runtime/training_step.h"

namespace penstock {

/// DIR/gradients.safetensors: every gradient whole, fp32, under its parameter's name, written by rank 0.
/// After the sum over uses, before clipping; frozen ones have none. Collective. Throws IoError.
void dump_gradients(const std::filesystem::path& directory, const Model& model, const WeightStore& weights,
                    Communicator& world, RankContext& context,
                    const std::function<int(int block)>& rank_of_block);

/// DIR/rank-N.safetensors: the pieces of every parameter that this rank holds, keyed NAME. `__metadata__`
/// gives for each key
/// {"offset":[...],"shape":[...]}: where the piece lies in the whole, and the whole's shape. Throws IoError.
void dump_parameters(const std::filesystem::path& directory, const Model& model, const WeightStore& weights,
                     int rank);

}  // namespace penstock
