// From the paths of --data to one row of tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "data/token_file.h"
#include "data/token_row.h"
#include "data/tokenizer/tokenizer.h"

namespace penstock {

struct CorpusOptions {
  const Tokenizer* tokenizer = nullptr;  ///< for text; token files need none
  std::int64_t vocabulary = 0;           ///< ids must lie below it; 0: that of the tokenizer, if any
  TokenDType token_dtype = TokenDType::automatic;
};

/// The tokens of all paths in one row, in the order given. A path is a text file, a token file (`.bin`,
/// mapped), or a folder of text: all files below it, sorted bytewise by their path relative to it; hidden
/// files count, empty ones add nothing, and nothing stands between files. Each text file is tokenised by
/// itself, into memory. Throws IoError with path and reason for a path that is missing, empty or unreadable;
/// a folder without files, or with something in it that is no text file (a token file, a pipe, a link to a
/// folder): nothing is skipped; a token file as `open_token_file` says; an id not below the vocabulary.
/// ValueError for text without a tokenizer, or no path.
TokenRow load_corpus(std::span<const std::filesystem::path> paths, const CorpusOptions& options);

}  // namespace penstock
