// The layer over CLI11.
#include "apps/common/command_line.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/common/version.h"
#include "core/error.h"
#include "parallel/pipeline/schedule/nearest.h"

namespace penstock {

struct Command::Flag {
  std::string name;  // kebab case, without dashes
  bool takes_value = true;
  bool repeatable = false;   // several values, and several times
  bool joins_array = false;  // an array of a file is one value with commas
  bool in_settings = true;
  bool given = false;
  CLI::Option* option = nullptr;
  std::function<void(const std::vector<std::string>&)> assign;  // texts into the variable
  std::function<nlohmann::ordered_json()> current;              // its value now
};

namespace {

template <class T>
nlohmann::ordered_json json_of(const T& value) {
  return value;
}
template <class T>
nlohmann::ordered_json json_of(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

template <class T>
std::string default_of(const T& value) {
  return fmt::format("{}", value);
}
template <class T>
std::string default_of(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : std::string();
}
template <class T>
std::string default_of(const std::vector<T>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}

template <class T>
std::string with_range(const std::string& help, const Range<T>& range) {
  const Range<T> all;
  if (range.low == all.low && range.high == all.high) return help;
  return fmt::format("{} ({})", help, to_text(range));
}

/// CLI11 takes the brackets off `[x]`, as in its own files. Here that is a name like any other: this mark in
/// front, which is taken off again, keeps it whole.
constexpr char kVerbatim = '\x01';

std::string marked(std::string argument) {
  const std::size_t equals = argument.starts_with("--") ? argument.find('=') : std::string::npos;
  const std::size_t value = equals == std::string::npos ? 0 : equals + 1;
  if (value < argument.size() && (argument[value] == '[' || argument[value] == kVerbatim))
    argument.insert(value, 1, kVerbatim);
  return argument;
}

std::string unmarked(const std::string& text) { return text.starts_with(kVerbatim) ? text.substr(1) : text; }

/// What CLI11 says, on one line.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

Command::Command(CLI::App& app) : app_(app) {
  app_.allow_extras();
  app_.set_help_flag("-h,--help", "this text");
  app_.set_version_flag("--version", fmt::format("{} {}", app.get_name(), kVersion), "name and version");
  text("config", config_, "FILE.toml", "read flags from a TOML file; the command line wins");
  flags_.back()->in_settings = false;
}

Command::~Command() = default;

const std::string& Command::name() const { return app_.get_name(); }

void Command::example(const std::string& line) { app_.footer("\nExample:\n  " + line); }

Command::Flag& Command::add(const std::string& flag, const std::string& type, const std::string& help) {
  auto entry = std::make_unique<Flag>();
  entry->name = flag;
  entry->takes_value = !type.empty();
  if (entry->takes_value) {
    entry->option = app_.add_option("--" + flag)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    entry->option->type_name(type);
  } else {
    entry->option = app_.add_flag("--" + flag);
  }
  entry->option->description(help)->group(group_);
  flags_.push_back(std::move(entry));
  return *flags_.back();
}

template <class T, class Parse>
void Command::add_single(const std::string& flag, T& value, const std::string& type, const std::string& help,
                         const std::string& default_text, Parse parse) {
  Flag& entry = add(flag, type, help);
  if (entry.takes_value && !default_text.empty()) entry.option->default_str(default_text);
  entry.assign = [&value, parse, flag](const std::vector<std::string>& texts) {
    value = parse(flag, texts.front());
  };
  entry.current = [&value] { return json_of(value); };
}

namespace {

std::string parse_text(const std::string& flag, const std::string& text) {
  require<ValueError>(!text.empty(), "--{} '': is empty; a value is wanted", flag);
  return text;
}

}  // namespace

void Command::text(const std::string& flag, std::string& value, const std::string& type,
                   const std::string& help) {
  add_single(flag, value, type, help, default_of(value), parse_text);
}

void Command::text(const std::string& flag, std::optional<std::string>& value, const std::string& type,
                   const std::string& help) {
  add_single(flag, value, type, help, default_of(value), parse_text);
}

void Command::texts(const std::string& flag, std::vector<std::string>& values, const std::string& type,
                    const std::string& help) {
  Flag& entry = add(flag, type, help);
  entry.repeatable = true;
  entry.option->expected(1, -1)->allow_extra_args();
  entry.assign = [&values, flag](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) parse_text(flag, text);
    values = texts;
  };
  entry.current = [&values] { return json_of(values); };
}

void Command::integer(const std::string& flag, Index& value, const std::string& help,
                      const IntegerRange& range) {
  add_single(
      flag, value, "N", with_range(help, range), default_of(value),
      [range](const std::string& name, const std::string& text) { return parse_integer(name, text, range); });
}

void Command::integer(const std::string& flag, std::optional<Index>& value, const std::string& help,
                      const IntegerRange& range) {
  add_single(
      flag, value, "N", with_range(help, range), default_of(value),
      [range](const std::string& name, const std::string& text) { return parse_integer(name, text, range); });
}

void Command::number(const std::string& flag, double& value, const std::string& help,
                     const NumberRange& range) {
  add_single(
      flag, value, "X", with_range(help, range), default_of(value),
      [range](const std::string& name, const std::string& text) { return parse_number(name, text, range); });
}

void Command::number(const std::string& flag, std::optional<double>& value, const std::string& help,
                     const NumberRange& range) {
  add_single(
      flag, value, "X", with_range(help, range), default_of(value),
      [range](const std::string& name, const std::string& text) { return parse_number(name, text, range); });
}

void Command::text_or_list(const std::string& flag, std::string& value, const std::string& type,
                           const std::string& help) {
  text(flag, value, type, help);
  flags_.back()->joins_array = true;
}

void Command::numbers(const std::string& flag, std::vector<double>& values, const std::string& help,
                      const NumberRange& range) {
  add_single(flag, values, "X[,X...]", with_range(help, range), default_of(values),
             [range](const std::string& name, const std::string& text) {
               std::vector<double> result;
               for (const std::string& item : split_commas(text))
                 result.push_back(parse_number(name, item, range));
               return result;
             });
  flags_.back()->joins_array = true;
}

void Command::integers(const std::string& flag, std::vector<Index>& values, const std::string& help,
                       const IntegerRange& range) {
  add_single(flag, values, "N[,N...]", with_range(help, range), default_of(values),
             [range](const std::string& name, const std::string& text) {
               std::vector<Index> result;
               for (const std::string& item : split_commas(text))
                 result.push_back(parse_integer(name, item, range));
               return result;
             });
  flags_.back()->joins_array = true;
}

void Command::boolean(const std::string& flag, bool& value, const std::string& help) {
  add_single(flag, value, "", help, "",
             [](const std::string& name, const std::string& text) { return parse_truth(name, text); });
}

void Command::truth(const std::string& flag, bool& value, const std::string& help) {
  add_single(flag, value, "true|false", help, default_of(value),
             [](const std::string& name, const std::string& text) { return parse_truth(name, text); });
}

void Command::truth(const std::string& flag, std::optional<bool>& value, const std::string& help) {
  add_single(flag, value, "true|false", help, default_of(value),
             [](const std::string& name, const std::string& text) { return parse_truth(name, text); });
}

namespace {

auto parse_choice(const std::vector<std::string>& words) {
  return [words](const std::string& name, const std::string& text) {
    require<ValueError>(std::find(words.begin(), words.end(), text) != words.end(),
                        "--{} {}: allowed is one of {}", name, shown_value(text), fmt::join(words, ", "));
    return text;
  };
}

}  // namespace

void Command::choice(const std::string& flag, std::string& value, const std::vector<std::string>& words,
                     const std::string& help) {
  add_single(flag, value, fmt::format("{}", fmt::join(words, "|")), help, default_of(value),
             parse_choice(words));
}

void Command::choice(const std::string& flag, std::optional<std::string>& value,
                     const std::vector<std::string>& words, const std::string& help) {
  add_single(flag, value, fmt::format("{}", fmt::join(words, "|")), help, default_of(value),
             parse_choice(words));
}

void Command::not_yet(const std::string& flag, const std::string& type, const std::string& help,
                      const std::vector<std::string>& accepted) {
  Flag& entry = add(flag, type, help + " (not yet)");
  entry.in_settings = type.empty() || !accepted.empty();
  entry.joins_array = true;
  if (!accepted.empty()) entry.option->default_str(accepted.front());
  if (entry.in_settings) {
    entry.current = [in_force = accepted.empty() ? "false" : accepted.front()] {
      const auto value = nlohmann::ordered_json::parse(in_force, nullptr, false);  // a word is no JSON
      return value.is_discarded() ? nlohmann::ordered_json(in_force) : value;
    };
  }
  entry.assign = [accepted, flag, type](const std::vector<std::string>& texts) {
    const std::string& text = texts.front();
    if (std::find(accepted.begin(), accepted.end(), text) != accepted.end()) return;
    if (type.empty() && text == "false") return;
    const std::string shown = type.empty() ? "" : " " + text;
    if (accepted.empty()) throw ValueError("--{}{} is not yet built; leave it out", flag, shown);
    throw ValueError("--{}{} is not yet built; allowed is {}", flag, shown, fmt::join(accepted, ", "));
  };
}

void Command::positional(const std::string& name, std::optional<std::string>& value,
                         const std::string& help) {
  auto entry = std::make_unique<Flag>();
  entry->name = name;
  entry->option = app_.add_option(name)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  entry->option->description(help);
  entry->assign = [&value](const std::vector<std::string>& texts) { value = texts.front(); };
  positionals_.push_back(std::move(entry));
}

Command::Flag* Command::find(std::string_view flag) const {
  for (const auto& entry : flags_)
    if (entry->name == flag) return entry.get();
  return nullptr;
}

bool Command::given(std::string_view flag) const {
  const Flag* entry = find(flag);
  require<ValueError>(entry != nullptr, "--{} is no flag of {}", flag, name());
  return entry->given;
}

std::string Command::nearest(std::string_view flag) const {
  std::vector<std::string_view> names = {"help", "version"};
  for (const auto& entry : flags_) names.push_back(entry->name);
  return std::string(nearest_name(flag, names));
}

nlohmann::ordered_json Command::settings() const {
  auto settings = nlohmann::ordered_json::object();
  for (const auto& entry : flags_) {
    if (!entry->in_settings) continue;
    std::string key = entry->name;
    std::replace(key.begin(), key.end(), '-', '_');
    settings[key] = entry->current();
  }
  return settings;
}

void Command::collect() {
  for (const std::string& remaining : app_.remaining()) {
    const std::string extra = unmarked(remaining);
    if (extra == "--") continue;
    if (extra.size() > 1 && extra.front() == '-') {
      const std::string flag = extra.substr(std::min(extra.find_first_not_of('-'), extra.size()));
      const std::string known = nearest(flag.substr(0, flag.find('=')));
      throw ValueError("{}: no such flag; the nearest is --{}", extra.substr(0, extra.find('=')), known);
    }
    throw ValueError("'{}': nothing is expected there; flags begin with --", extra);
  }
  for (auto* list : {&positionals_, &flags_}) {
    for (const auto& entry : *list) {
      std::vector<std::string> texts = entry->option->results();
      if (texts.empty()) continue;
      std::transform(texts.begin(), texts.end(), texts.begin(), unmarked);
      require<ValueError>(texts.size() == 1 || entry->repeatable, "--{} is given {} times; once is allowed",
                          entry->name, texts.size());
      entry->given = true;
      entry->assign(texts);
    }
  }
}

void Command::read_file_of_flags(const std::optional<std::string>& path) {
  if (!path) return;
  for (const ConfigEntry& entry : read_config(*path)) {
    try {
      apply(entry);
    } catch (ValueError& error) {
      error.add_context(entry.where);
      throw;
    }
  }
}

void Command::apply(const ConfigEntry& entry) {
  Flag* found = find(entry.flag);
  require<ValueError>(found != nullptr && found->name != "config", "{}: no such setting; the nearest is {}",
                      entry.flag, nearest(entry.flag));
  Flag& flag = *found;
  if (flag.given) return;  // the command line wins
  std::vector<std::string> values = entry.values;
  if (!flag.takes_value)
    require<ValueError>(entry.is_truth, "--{} {}: true or false is allowed", flag.name,
                        fmt::join(values, ","));
  if (entry.is_array && flag.joins_array) values = {fmt::format("{}", fmt::join(values, ","))};
  require<ValueError>(!entry.is_array || flag.joins_array || flag.repeatable,
                      "--{}: one value is allowed, not an array", flag.name);
  if (values.empty()) return;
  flag.given = true;
  flag.assign(values);
}

Program::Program(const std::string& name, const std::string& about)
    : app_(std::make_unique<CLI::App>(about, name)), root_(std::make_unique<Command>(*app_)) {
  app_->get_formatter()->column_width(34);
}

Program::~Program() = default;

Command& Program::command(const std::string& name, const std::string& about) {
  CLI::App* app = app_->add_subcommand(name, about);
  app_->require_subcommand(0, 1);
  commands_.push_back(std::make_unique<Command>(*app));
  return *commands_.back();
}

/// A flag that wants a value is not given the next flag for one: `--log --trace t.json` would write a file
/// named --trace.
void Program::refuse_flags_as_values(std::span<const std::string> arguments) const {
  const auto find = [&](const std::string& argument) -> const Command::Flag* {
    if (!argument.starts_with("--")) return nullptr;
    const std::string flag = argument.substr(2, argument.find('=') - 2);
    for (const auto& command : commands_)
      if (const Command::Flag* entry = command->find(flag)) return entry;
    return root_->find(flag);
  };
  for (std::size_t i = 0; i + 1 < arguments.size(); ++i) {
    const Command::Flag* entry = find(arguments[i]);
    if (entry && entry->takes_value && arguments[i].find('=') == std::string::npos && find(arguments[i + 1]))
      throw ValueError("--{} needs a value, and {} is a flag (--{}=TEXT takes any text)", entry->name,
                       arguments[i + 1], entry->name);
  }
}

Parsed Program::parse(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  refuse_flags_as_values(arguments);
  std::transform(arguments.begin(), arguments.end(), arguments.begin(), marked);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  try {
    app_->parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    return {nullptr, app_->help()};
  } catch (const CLI::CallForVersion&) {
    return {nullptr, fmt::format("{} {}\n", app_->get_name(), kVersion)};
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string what = error.what();  // "--pp: 1 required N missing"
    throw ValueError("{} needs a value", what.substr(0, what.find(':')));
  } catch (const CLI::ParseError& error) {
    throw ValueError("{}", one_line(error.what()));
  }
  if (commands_.empty()) {
    root_->collect();
    root_->read_file_of_flags(root_->config_);
    return {root_.get(), ""};
  }
  std::vector<std::string_view> names;
  for (const auto& command : commands_) {
    if (app_->got_subcommand(command->name())) {
      root_->collect();
      command->collect();
      command->read_file_of_flags(command->config_ ? command->config_ : root_->config_);
      return {command.get(), ""};
    }
    names.push_back(command->name());
  }
  const std::vector<std::string> rest = app_->remaining();
  require<ValueError>(!rest.empty(), "a command is missing: {}", fmt::join(names, ", "));
  throw ValueError("'{}': no such command; the nearest is {}", rest.front(),
                   nearest_name(rest.front(), names));
}

}  // namespace penstock
