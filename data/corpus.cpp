// From the paths of --data to one row of tokens.
#include "data/corpus.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/machine_memory.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

bool is_token_file(const fs::path& path) { return path.extension() == ".bin"; }

TokenRow tokenise(const fs::path& path, const CorpusOptions& options, std::int64_t vocabulary) {
  require<ValueError>(options.tokenizer != nullptr, "{}: text needs a tokenizer (--tokenizer)",
                      path.string());
  const MappedFile file(path);
  // Ids of 4 bytes each while a text is tokenised: one that cannot fit must not take the machine down.
  const auto bytes = static_cast<std::int64_t>(file.text().size());
  require<IoError>(
      bytes <= machine_memory() / 4,
      "{}: {} bytes of text are more than fit into memory ({} bytes) as tokens; part it, or make a "
      "token file (.bin) of it, which is read in place",
      path.string(), bytes, machine_memory());
  const std::vector<std::int32_t> ids = options.tokenizer->encode(file.text());
  for (std::size_t i = 0; i < ids.size(); ++i)
    require<IoError>(ids[i] >= 0 && ids[i] < vocabulary, "{}: token {} is {}, not below the vocabulary of {}",
                     path.string(), i, ids[i], vocabulary);
  return TokenRow(ids);
}

// All files below a folder, sorted bytewise by relative path. Throws for whatever is no text file.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<std::pair<std::string, fs::path>> found;
  try {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
      const fs::path& path = entry.path();
      std::error_code error;
      const fs::file_status status = entry.status(error);
      require<IoError>(!error && fs::exists(status), "{}: cannot be read: {}", path.string(),
                       error ? error.message() : "a link to nothing");
      if (fs::is_directory(status)) {
        require<IoError>(!entry.is_symlink(),
                         "{}: a link to a folder is not followed: name that folder itself", path.string());
        continue;
      }
      require<IoError>(fs::is_regular_file(status), "{}: is not a regular file", path.string());
      require<IoError>(!is_token_file(path), "{}: a token file in a folder of text: name it itself",
                       path.string());
      found.emplace_back(path.lexically_relative(folder).string(), path);
    }
  } catch (const fs::filesystem_error& error) {
    throw IoError("{}: cannot read the folder: {}", folder.string(), error.code().message());
  }
  std::sort(found.begin(), found.end());
  std::vector<fs::path> files;
  for (auto& [relative, path] : found) files.push_back(std::move(path));
  return files;
}

TokenRow load_path(const fs::path& path, const CorpusOptions& options, std::int64_t vocabulary) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  require<IoError>(fs::status_known(status) && fs::exists(status), "{}: {}", path.string(),
                   fs::status_known(status) ? "no such file or folder" : error.message());
  if (!fs::is_directory(status)) {
    if (is_token_file(path)) return open_token_file(path, options.token_dtype, vocabulary).row;
    TokenRow row = tokenise(path, options, vocabulary);
    require<IoError>(row.size() > 0, "{}: is empty", path.string());
    return row;
  }
  const std::vector<fs::path> files = files_below(path);
  require<IoError>(!files.empty(), "{}: the folder holds no files", path.string());
  TokenRow row;
  for (const fs::path& file : files) row.append(tokenise(file, options, vocabulary));
  require<IoError>(row.size() > 0, "{}: all {} files of the folder are empty", path.string(), files.size());
  return row;
}

}  // namespace

TokenRow load_corpus(std::span<const fs::path> paths, const CorpusOptions& options) {
  require<ValueError>(!paths.empty(), "--data: no path is given");
  std::int64_t vocabulary = options.vocabulary;
  if (vocabulary <= 0 && options.tokenizer != nullptr) vocabulary = options.tokenizer->vocabulary();
  TokenRow row;
  for (const fs::path& path : paths) row.append(load_path(path, options, vocabulary));
  return row;
}

}  // namespace penstock
