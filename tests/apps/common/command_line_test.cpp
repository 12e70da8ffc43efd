// The command line and its file: what sets a variable, what wins, what is refused and with which words.
#include "apps/common/command_line.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"

namespace penstock {
namespace {

/// A program with a flag of every kind.
struct Example {
  Program program{"penstock-example", "An example."};
  std::string model = "gpt2-tiny";
  std::optional<std::string> log;
  std::vector<std::string> data;
  Index steps = 10;
  std::optional<Index> threads;
  double lr = 0.5;
  std::optional<double> clip;
  std::vector<double> costs = {1};
  std::vector<Index> partition;
  bool json = false;
  bool resume = false;
  std::optional<bool> tied;
  std::string schedule = "cosine";

  Example() {
    Command& root = program.root();
    root.text("model", model, "NAME", "the model");
    root.text("log", log, "FILE", "the log");
    root.texts("data", data, "PATH...", "the data");
    root.integer("steps", steps, "steps", at_least<Index>(0));
    root.integer("threads", threads, "threads", at_least<Index>(1));
    root.number("lr", lr, "rate", at_least(0.0));
    root.number("clip", clip, "clip");
    root.numbers("cost-f", costs, "costs", at_least(0.0));
    root.integers("partition", partition, "layers a stage", at_least<Index>(0));
    root.boolean("json", json, "JSON");
    root.boolean("resume", resume, "go on");
    root.truth("tied-embeddings", tied, "tied");
    root.choice("lr-schedule", schedule, {"constant", "cosine"}, "rates");
    root.not_yet("tp", "N", "tensor parallel", {"1"});
    root.not_yet("profile", "", "time by op");
    root.example("penstock-example --steps 3");
  }

  Parsed parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "penstock-example");
    return program.parse(static_cast<int>(arguments.size()), arguments.data());
  }
};

std::string refusal(const std::vector<const char*>& arguments) {
  Example example;
  try {
    example.parse(arguments);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() / fmt::format("penstock-config-{}.toml", getpid())) {
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { std::filesystem::remove(path_); }
  const char* path() const { return path_.c_str(); }

 private:
  std::filesystem::path path_;
};

TEST(CommandLine, FlagsSetTheirVariables) {
  Example e;
  const Parsed parsed = e.parse({"--model",
                                 "gpt2",
                                 "--log=a.jsonl",
                                 "--data",
                                 "a",
                                 "b",
                                 "--data",
                                 "c",
                                 "--steps",
                                 "2000",
                                 "--threads",
                                 "3",
                                 "--lr",
                                 "1e-3",
                                 "--clip",
                                 "-1",
                                 "--cost-f",
                                 "1,2.5",
                                 "--partition",
                                 "3,0",
                                 "--json",
                                 "--tied-embeddings",
                                 "false",
                                 "--lr-schedule",
                                 "constant",
                                 "--tp",
                                 "1"});
  EXPECT_EQ(parsed.command, &e.program.root());
  EXPECT_EQ(parsed.print, "");
  EXPECT_EQ(e.model, "gpt2");
  EXPECT_EQ(e.log, "a.jsonl");
  EXPECT_EQ(e.data, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(e.steps, 2000);
  EXPECT_EQ(e.threads, 3);
  EXPECT_EQ(e.lr, 1e-3);
  EXPECT_EQ(e.clip, -1.0);
  EXPECT_EQ(e.costs, (std::vector<double>{1, 2.5}));
  EXPECT_EQ(e.partition, (std::vector<Index>{3, 0}));
  EXPECT_TRUE(e.json);
  EXPECT_FALSE(e.resume);
  EXPECT_EQ(e.tied, false);
  EXPECT_EQ(e.schedule, "constant");
  EXPECT_TRUE(e.program.root().given("lr"));
  EXPECT_FALSE(e.program.root().given("resume"));
  EXPECT_THROW(e.program.root().given("no-such"), ValueError);
}

TEST(CommandLine, DefaultsStand) {
  Example e;
  e.parse({});
  EXPECT_EQ(e.model, "gpt2-tiny");
  EXPECT_EQ(e.steps, 10);
  EXPECT_FALSE(e.log || e.threads || e.clip || e.tied);
}

TEST(CommandLine, RefusalsSayWhatIsWrong) {
  EXPECT_EQ(refusal({"--stepps", "3"}), "--stepps: no such flag; the nearest is --steps");
  EXPECT_EQ(refusal({"--stepps=3"}), "--stepps: no such flag; the nearest is --steps");
  EXPECT_EQ(refusal({"--jsn"}), "--jsn: no such flag; the nearest is --json");
  EXPECT_EQ(refusal({"-x"}), "-x: no such flag; the nearest is --lr");
  EXPECT_EQ(refusal({"extra"}), "'extra': nothing is expected there; flags begin with --");
  EXPECT_EQ(refusal({"--steps", "3", "--steps", "4"}), "--steps is given 2 times; once is allowed");
  EXPECT_EQ(refusal({"--json", "--json"}), "--json is given 2 times; once is allowed");
  EXPECT_EQ(refusal({"--steps"}), "--steps needs a value");
  EXPECT_EQ(refusal({"--data"}), "--data needs a value");
  EXPECT_EQ(refusal({"--steps", "-1"}), "--steps -1: allowed is 0 or more");
  EXPECT_EQ(refusal({"--lr", "nan"}), "--lr nan: it is no finite number; allowed is 0 or more");
  EXPECT_EQ(refusal({"--lr-schedule", "cosin"}), "--lr-schedule cosin: allowed is one of constant, cosine");
  EXPECT_EQ(refusal({"--tied-embeddings", "no"}), "--tied-embeddings no: allowed are true and false");
  EXPECT_NE(refusal({"--cost-f", "1,,2"}).find("--cost-f"), std::string::npos);
  EXPECT_EQ(refusal({"--tp", "2"}), "--tp 2 is not yet built; allowed is 1");
  EXPECT_EQ(refusal({"--profile"}), "--profile is not yet built; leave it out");
  EXPECT_EQ(refusal({"--config", "/no/such.toml"}).find("accepted"), std::string::npos);
}

TEST(CommandLine, HelpHasDefaultsRangesAndTheExample) {
  Example e;
  const std::string help = e.parse({"--help"}).print;
  for (const char* part : {"--model NAME", "gpt2-tiny", "--steps N", "(0 or more)", "constant|cosine",
                           "--config", "--version", "(not yet)", "Example:\n  penstock-example --steps 3"})
    EXPECT_NE(help.find(part), std::string::npos) << part << "\n" << help;
  Example other;
  EXPECT_EQ(other.parse({"--version"}).print.rfind("penstock-example ", 0), 0u);
}

TEST(CommandLine, SettingsAreInOrderWithUnderscores) {
  Example e;
  e.parse({"--lr", "0.1", "--partition", "2,2"});
  e.threads = 4;  // what the program settles later shows
  EXPECT_EQ(
      e.program.root().settings().dump(),
      R"({"model":"gpt2-tiny","log":null,"data":[],"steps":10,"threads":4,"lr":0.1,"clip":null,"cost_f":[1.0],)"
      R"("partition":[2,2],"json":false,"resume":false,"tied_embeddings":null,"lr_schedule":"cosine","tp":1,"profile":false})");
}

TEST(Config, SetsWhatTheCommandLineDoesNot) {
  const ConfigFile file(
      "model = 'gpt2'\nsteps = 7\nlr = 3e-4\nlr_schedule = \"constant\"\nresume = true\njson = false\n"
      "data = ['a', 'b']\npartition = [1, 2, 3]\ncost-f = \"1,2\"\ntied-embeddings = true\nthreads = "
      "'2000'\ntp = 1\n");
  Example e;
  e.parse({"--config", file.path(), "--steps", "9"});
  EXPECT_EQ(e.model, "gpt2");
  EXPECT_EQ(e.steps, 9);  // the command line wins
  EXPECT_EQ(e.lr, 3e-4);
  EXPECT_EQ(e.schedule, "constant");
  EXPECT_TRUE(e.resume);
  EXPECT_FALSE(e.json);
  EXPECT_EQ(e.data, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(e.partition, (std::vector<Index>{1, 2, 3}));
  EXPECT_EQ(e.costs, (std::vector<double>{1, 2}));
  EXPECT_EQ(e.tied, true);
  EXPECT_EQ(e.threads, 2000);
}

TEST(Config, RefusalsNameFileLineAndKey) {
  const auto refused = [](const std::string& text) {
    const ConfigFile file(text);
    std::string message = refusal({"--config", file.path()});
    const std::string path = file.path();
    if (const auto at = message.find(path); at != std::string::npos) message.replace(at, path.size(), "F");
    return message;
  };
  EXPECT_EQ(refused("model = 'a'\nstepps = 3\n"), "F, line 2: stepps: no such setting; the nearest is steps");
  EXPECT_EQ(refused("steps = -3\n"), "F, line 1: --steps -3: allowed is 0 or more");
  EXPECT_EQ(refused("steps = 'many'\n").rfind("F, line 1: --steps many: it is no integer", 0), 0u);
  EXPECT_EQ(refused("lr = nan\n").rfind("F, line 1: --lr nan", 0), 0u);
  EXPECT_EQ(refused("json = 'true'\n"), "F, line 1: --json true: true or false is allowed");
  EXPECT_EQ(refused("steps = [1, 2]\n"), "F, line 1: --steps: one value is allowed, not an array");
  EXPECT_EQ(refused("lr-schedule = 'constant'\nlr_schedule = 'cosine'\n"),
            "F, line 2: lr_schedule stands there twice");
  EXPECT_EQ(refused("[model]\nlayers = 3\n").rfind("F, line 1: model is neither", 0), 0u);
  EXPECT_EQ(refused("steps = 3\nsteps = 4\n").rfind("F, line 2: ", 0), 0u);
  EXPECT_EQ(refused("steps = \n").rfind("F, line 1: ", 0), 0u);
  EXPECT_EQ(refused("config = 'other.toml'\n").rfind("F, line 1: config: no such setting", 0), 0u);
  EXPECT_EQ(refused("tp = 2\n"), "F, line 1: --tp 2 is not yet built; allowed is 1");
}

TEST(SubCommands, OneIsNeededAndFound) {
  const auto run = [](std::vector<const char*> arguments, Index& steps, std::optional<std::string>& file) {
    Program program("penstock-example", "An example.");
    program.command("list", "lists");
    Command& show = program.command("show", "shows");
    show.integer("steps", steps, "steps");
    show.positional("FILE", file, "a file");
    arguments.insert(arguments.begin(), "penstock-example");
    try {
      const Parsed parsed = program.parse(static_cast<int>(arguments.size()), arguments.data());
      return parsed.print.empty() ? parsed.command->name() : parsed.print;
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  Index steps = 1;
  std::optional<std::string> file;
  EXPECT_EQ(run({"list"}, steps, file), "list");
  EXPECT_EQ(run({"show", "a.csv", "--steps", "5"}, steps, file), "show");
  EXPECT_EQ(steps, 5);
  EXPECT_EQ(file, "a.csv");
  EXPECT_EQ(run({}, steps, file), "a command is missing: list, show");
  EXPECT_EQ(run({"shw"}, steps, file), "'shw': no such command; the nearest is show");
  EXPECT_EQ(run({"list", "--steps", "5"}, steps, file).rfind("--steps: no such flag", 0), 0u);
  EXPECT_EQ(run({"show", "a", "b"}, steps, file), "'b': nothing is expected there; flags begin with --");
  EXPECT_NE(run({"show", "--help"}, steps, file).find("--steps N"), std::string::npos);
  const ConfigFile config("steps = 8\n");
  EXPECT_EQ(run({"show", "--config", config.path()}, steps, file), "show");
  EXPECT_EQ(steps, 8);
  steps = 1;
  EXPECT_EQ(run({"--config", config.path(), "show"}, steps, file), "show");
  EXPECT_EQ(steps, 8);
}

}  // namespace
}  // namespace penstock
