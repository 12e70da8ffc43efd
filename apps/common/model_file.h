// A model that a TOML file describes: a preset to begin with and the keys that differ from it.
#pragma once

#include <string>

#include "models/config.h"

namespace penstock {

/// The largest sizes that flags and files may give a model: far beyond any, and small enough that no size of
/// one overflows.
namespace model_limits {
inline constexpr Index layers = 10'000, width = Index{1} << 20, ffn = Index{1} << 24;
inline constexpr Index ids = (Index{1} << 31) - 1;
}  // namespace model_limits

/// What a model's file says.
struct ModelFile {
  std::string base = "gpt2-tiny";  ///< key `model`: the preset
  ModelOverrides overrides = {};
};

/// Keys are the names of the flags (with dashes or underscores) and those of ModelOverrides. Throws IoError
/// where the file cannot be read; ValueError, with file, line and key, for what is no TOML, a key that is
/// unknown (with the nearest known one), that stands twice or that is not yet built, and a value of the wrong
/// type or out of range.
ModelFile read_model_file(const std::string& path);

/// The preset of that name, or the model of a FILE.toml, with `overrides` on top. A file's model is named as
/// the file. Throws IoError and ValueError, as read_model_file and configure_model do; `follows_vocabulary`,
/// where it is not 0, is the vocabulary of a model that neither the file nor the overrides give one.
ModelConfig choose_named_model(const std::string& model, const ModelOverrides& overrides,
                               Index follows_vocabulary);

}  // namespace penstock
