// The command line of a program: typed flags, sub-commands, --help, --version, --config, and the settings in
// force.
//
// A thin layer over CLI11, which splits the command line and prints the help. What is ours: one way to define
// a flag so that it can also stand in a TOML file, one form of messages (flag, value, what is allowed; the
// nearest flag for an unknown one), a flag given twice is refused, and what is in force can be listed for the
// echo and the log.
//
//   Program program("penstock-eval", "Loss and perplexity on a file.");
//   Command& root = program.root();
//   root.example("penstock-eval --from runs/a --data book.txt");
//   std::string from;
//   root.text("from", from, "DIR", "checkpoint or Hugging Face directory");
//   root.integer("seq-len", seq_len, "tokens of a window", at_least<Index>(1));
//   const Parsed parsed = program.parse(argc, argv);
//   if (!parsed.print.empty()) return frame.print(parsed.print), 0;
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common/config.h"
#include "apps/common/value.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace penstock {

/// The flags of a program, or of one of its sub-commands. Flags are named without their leading dashes, in
/// kebab case. The variables that they fill hold the defaults, live as long as the command, and are set by
/// Program::parse. A std::optional stays empty where the flag is not given.
class Command {
 public:
  explicit Command(CLI::App& app);
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  ~Command();

  const std::string& name() const;
  /// The worked example at the end of --help.
  void example(const std::string& line);
  /// The heading under which the flags that follow stand in --help.
  void group(const std::string& heading) { group_ = heading; }

  void text(const std::string& flag, std::string& value, const std::string& type, const std::string& help);
  void text(const std::string& flag, std::optional<std::string>& value, const std::string& type,
            const std::string& help);
  /// Any number of values after one flag, and the flag may be repeated.
  /// A text in which commas part items: in a TOML file an array of them too.
  void text_or_list(const std::string& flag, std::string& value, const std::string& type,
                    const std::string& help);
  void texts(const std::string& flag, std::vector<std::string>& values, const std::string& type,
             const std::string& help);
  void integer(const std::string& flag, Index& value, const std::string& help,
               const IntegerRange& range = {});
  void integer(const std::string& flag, std::optional<Index>& value, const std::string& help,
               const IntegerRange& range = {});
  void number(const std::string& flag, double& value, const std::string& help, const NumberRange& range = {});
  void number(const std::string& flag, std::optional<double>& value, const std::string& help,
              const NumberRange& range = {});
  /// One number or several between commas.
  void numbers(const std::string& flag, std::vector<double>& values, const std::string& help,
               const NumberRange& range = {});
  void integers(const std::string& flag, std::vector<Index>& values, const std::string& help,
                const IntegerRange& range = {});
  /// A flag without a value: `--json`; true or false in a file.
  void boolean(const std::string& flag, bool& value, const std::string& help);
  /// A flag with the value true or false.
  void truth(const std::string& flag, bool& value, const std::string& help);
  void truth(const std::string& flag, std::optional<bool>& value, const std::string& help);
  /// One of the words.
  void choice(const std::string& flag, std::string& value, const std::vector<std::string>& words,
              const std::string& help);
  void choice(const std::string& flag, std::optional<std::string>& value,
              const std::vector<std::string>& words, const std::string& help);
  /// A flag of the contract whose feature is not built: refused with 'not yet' unless its value is one of
  /// `accepted` (which ask for nothing new, as `--tp 1` does; the first is what is in force). An empty `type`
  /// is a flag without a value.
  void not_yet(const std::string& flag, const std::string& type, const std::string& help,
               const std::vector<std::string>& accepted = {});
  /// An argument without a flag; it cannot stand in a file.
  void positional(const std::string& name, std::optional<std::string>& value, const std::string& help);

  /// Whether the flag was given, on the command line or in the file.
  bool given(std::string_view flag) const;

  /// The settings in force, in the order of definition: name (with underscores) to the value that its
  /// variable has now (null for an empty std::optional). Without --config, and without what is not yet built
  /// and has no value that is accepted.
  nlohmann::ordered_json settings() const;
  /// The file that --config names.
  const std::optional<std::string>& config_file() const { return config_; }

 private:
  friend class Program;
  struct Flag;

  Flag& add(const std::string& flag, const std::string& type, const std::string& help);
  template <class T, class Parse>
  void add_single(const std::string& flag, T& value, const std::string& type, const std::string& help,
                  const std::string& default_text, Parse parse);
  Flag* find(std::string_view flag) const;
  std::string nearest(std::string_view flag) const;
  void collect();  // what the command line gave, into the variables
  void read_file_of_flags(const std::optional<std::string>& path);  // then the file
  void apply(const ConfigEntry& entry);

  CLI::App& app_;
  std::string group_ = "Options";
  std::vector<std::unique_ptr<Flag>> flags_;
  std::vector<std::unique_ptr<Flag>> positionals_;
  std::optional<std::string> config_;
};

/// What parsing came to.
struct Parsed {
  const Command* command = nullptr;  // the sub-command, or the root
  std::string print;                 // not empty: --help or --version; print this and exit 0
};

class Program {
 public:
  Program(const std::string& name, const std::string& about);
  ~Program();

  /// The flags of a program without sub-commands.
  Command& root() { return *root_; }
  /// Adds a sub-command; a program that has any needs one on its command line.
  Command& command(const std::string& name, const std::string& about);

  /// Reads the command line and the --config file and sets the variables. Throws ValueError or IoError with a
  /// one-line message for everything that is wrong with them.
  Parsed parse(int argc, const char* const* argv);

 private:
  void refuse_flags_as_values(std::span<const std::string> arguments) const;

  std::unique_ptr<CLI::App> app_;
  std::unique_ptr<Command> root_;
  std::vector<std::unique_ptr<Command>> commands_;
};

}  // namespace penstock
