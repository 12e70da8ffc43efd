// Token files: the llm.c format (a header of 256 32-bit words, then ids) and headerless ids (as nanoGPT
// writes them).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "data/token_row.h"

namespace penstock {

/// What `--token-dtype` says.
enum class TokenDType { automatic, uint16, uint32 };

/// "auto", "uint16" or "uint32"; throws ValueError naming the flag for anything else.
TokenDType parse_token_dtype(std::string_view text);

struct TokenFile {
  TokenRow row;
  bool has_header = false;    ///< llm.c format
  int width = 2;              ///< bytes an id
  std::int64_t largest = -1;  ///< largest id
};

/// Maps a token file and looks at every id. Magic 20240520, version 1: uint16; magic 20240801, version 7:
/// uint32; no magic: as `dtype` says, or (automatic) uint32 when `vocabulary` exceeds 65,536, else uint16.
/// Throws IoError (file and reason) for a file that is missing, unreadable, empty or truncated, has bytes
/// after the tokens its header counts, a version that is not known, or a header that contradicts `dtype`; and
/// for an id that is not below `vocabulary` (0: any that fits into 31 bits).
TokenFile open_token_file(const std::filesystem::path& path, TokenDType dtype, std::int64_t vocabulary);

}  // namespace penstock
