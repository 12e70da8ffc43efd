"""Malformed flags, TOML, data, plans and model directories: each is refused on one rank, and once for all under mpirun."""
import unittest

from refusals import RefusalTest

BASE = ["--data", "text.txt", "--steps", "1", "--log", "new.jsonl", "--trace", "new.json", "--checkpoint-dir", "new"]
HUGE, LONG = "9223372036854775808", "a" * 300

FLAGS = [
    # integers
    (["--batch", "1M"], ["--batch 1M", "1000000"]), (["--batch", "2Ki"], ["--batch 2Ki", "2048"]),
    (["--batch", "1_000"], ["--batch 1_000"]), (["--batch", "0x10"], ["--batch 0x10"]), (["--batch", "1e3"], ["--batch 1e3"]),
    (["--batch", "+5"], ["--batch +5"]), (["--batch", "５"], ["--batch ５"]), (["--batch", "5 "], ["--batch '5 '"]),
    (["--batch", " 5"], ["--batch ' 5'"]), (["--batch", "5x"], ["--batch 5x"]), (["--batch="], ["--batch", "value"]),
    (["--batch", "-0x1"], ["--batch -0x1"]), (["--batch", HUGE], [f"--batch {HUGE}", "64 bits"]),
    (["--batch", "nan"], ["--batch nan"]), (["--batch", "-1"], ["--batch -1"]), (["--steps", HUGE], [f"--steps {HUGE}"]),
    (["--layers", "-1"], ["--layers -1"]), (["--vocab", "0"], ["--vocab 0"]), (["--seq-len", "0"], ["--seq-len 0"]),
    (["--micro-batch", "0"], ["--micro-batch 0"]), (["--keep", "-1"], ["--keep -1"]), (["--pp", "0"], ["--pp 0"]),
    (["--threads", "99999999"], ["--threads 99999999"]), (["--save-every", "-1"], ["--save-every -1"]),
    (["--warmup", "-1"], ["--warmup -1"]), (["--eval-batches", "0"], ["--eval-batches 0"]),
    # numbers
    (["--lr", "nan"], ["--lr nan"]), (["--lr", "-inf"], ["--lr -inf"]), (["--lr", "1e-3x"], ["--lr 1e-3x"]),
    (["--lr", "1,5"], ["--lr 1,5"]), (["--lr", "0x1p3"], ["--lr 0x1p3"]), (["--clip", "-1"], ["--clip -1"]),
    (["--dropout", "-0.1"], ["--dropout -0.1"]), (["--beta2", "1"], ["--beta2 1"]), (["--weight-decay", "nan"], ["--weight-decay nan"]),
    (["--deadline", "-1"], ["--deadline -1"]), (["--deadline", "inf"], ["--deadline inf"]), (["--min-lr", "nan"], ["--min-lr nan"]),
    # the command line itself
    (["-batch", "4"], ["-batch"]), (["--Batch", "4"], ["--Batch", "--batch"]), (["--bat", "4"], ["--bat", "--batch"]),
    (["junk"], ["'junk'"]), (["--batch", "4", "--batch=4"], ["--batch", "2 times"]), (["--log", "--trace", "t.json"], ["--log", "--trace"]),
    (["--resume", "--resume"], ["--resume"]), (["--model", ""], ["--model"]), (["--model", "GPT2-tiny"], ["--model GPT2-tiny", "gpt2-tiny"]),
    (["--schedule", "1F1B"], ["1F1B", "1f1b"]), (["--schedule", ""], ["--schedule"]), (["--partition", "1,,3"], ["--partition"]),
    (["--partition", "1M,3"], ["--partition 1M"]), (["--data", b"\xff\xfe.txt"], ["\\xff\\xfe.txt"]), (["--data", "a\nb"], ["a b"]),
    # sizes
    (["--seq-len", "1000000"], ["text.txt", "1500"]), (["--hidden", "1048576", "--layers", "10000"], ["memory"]),
    (["--heads", "3"], ["--heads 3"]), (["--hidden", "18", "--heads", "4"], ["--heads 4"]), (["--pp", "3"], ["--pp 3"]),
]

TOML = [(["--config", name], words) for name, *words in (
    ("bad.toml", "bad.toml", "line 2"), ("unknown.toml", "unknown.toml", "lerning"), ("zero.toml", "zero.toml", "--batch 0"),
    ("negative.toml", "--batch -1"), ("nan.toml", "--lr nan"), ("inf.toml", "--lr inf"), ("far.toml", "far.toml"),
    ("huge.toml", "huge.toml"), ("broken.toml", "broken.toml", "--batch 2.5"), ("size.toml", "size.toml", "1M"),
    ("empty.toml", "empty.toml", "--model"), ("date.toml", "date.toml", "seed"), ("twice.toml", "twice.toml", "batch"),
    ("dashes.toml", "dashes.toml", "micro_batch"), ("list.toml", "list.toml", "batch"), ("nested.toml", "nested.toml", "data"),
    ("deep.toml", "deep.toml"), ("inner.toml", "inner.toml", "config"), ("case.toml", "case.toml", "Batch"),
    ("number.toml", "number.toml", "resume"), ("later.toml", "later.toml", "not yet"), ("nul.toml", "nul.toml"),
    ("escaped.toml", "escaped.toml", "model"), ("bytes.toml", "bytes.toml"), ("mark.toml", "mark.toml", "--batch 0"),
    ("crlf.toml", "crlf.toml", "--batch 0"), ("wide.toml", "wide.toml"), ("prose.toml", "prose.toml"),
    ("folder.toml", "folder.toml"), ("missing.toml", "missing.toml"), ("loop", "loop"), ("pipe", "pipe"),
    ("socket", "socket"), (LONG, LONG))]

MODELS = [(["--model", name], words) for name, *words in (
    ("flat.toml", "flat.toml", "layers"), ("vast.toml", "vast.toml", "hidden"), ("tall.toml", "tall.toml", "layers"),
    ("uneven.toml", "18", "4"), ("flag.toml", "flag.toml", "batch"), ("prose.toml", "prose.toml"), ("nul.toml", "nul.toml"),
    ("folder.toml", "folder.toml"), ("missing.toml", "missing.toml"))]

DATA = [(["--data", name], words) for name, *words in (
    ("empty.txt", "empty.txt", "empty"), ("odd.bin", "odd.bin"), ("ids.bin", "ids.bin"), ("empty.bin", "empty.bin"),
    ("version.bin", "version.bin"), ("cut.bin", "cut.bin"), ("more.bin", "more.bin"), ("minus.bin", "minus.bin"),
    ("none.bin", "none.bin"), ("halves.bin", "halves.bin"), ("text.bin", "text.bin"), ("hollow", "hollow"), ("mixed", "mixed"),
    ("pipe", "pipe"), ("socket", "socket"), ("nowhere", "nowhere"), ("loop", "loop"), ("/dev/null", "/dev/null"),
    ("[x]", "[x]"), ("missing.txt", "missing.txt"), ("text.txt/", "text.txt"), (LONG, LONG), ("sparse.txt", "sparse.txt"))]

PLANS = [(["--schedule", name], words) for name, *words in (
    ("bad.csv", "bad.csv"), ("json.csv", "json.csv"), ("empty.csv", "empty.csv"), ("blank.csv", "blank.csv"), ("nul.csv", "nul.csv"),
    ("bytes.csv", "bytes.csv"), ("huge.csv", "huge.csv"), ("tower.csv", "tower.csv"), ("folder.csv", "folder.csv"),
    ("pipe.csv", "pipe.csv"), ("missing.csv", "missing.csv"))]

SOURCES = [(["--init-from", name], words) for name, *words in (
    ("prose", "prose"), ("array", "array"), ("cutjson", "cutjson"), ("nothing", "nothing"), ("weightless", "weightless"),
    ("foreign", "foreign", "bert"), ("minus", "minus"), ("manifest", "manifest"), ("other", "other"), ("listed", "listed"),
    ("hollow", "hollow"), ("text.txt", "text.txt"), ("missing", "missing"), ("weights-prose", "weights-prose"),
    ("weights-cut", "weights-cut"), ("weights-far", "weights-far"), ("weights-hollow", "weights-hollow"))]

OUTPUTS = [
    (["--log", "folder"], ["--log folder"]), (["--log", "missing/x"], ["--log missing/x"]), (["--log", "text.txt/x"], ["--log text.txt/x"]),
    (["--log", "loop"], ["--log loop"]), (["--log", LONG], ["--log"]), (["--log", "text.txt"], ["--log text.txt", "--data"]),
    (["--trace", "folder"], ["--trace folder"]), (["--checkpoint-dir", "pipe"], ["--checkpoint-dir pipe"]),
    (["--dump-gradients", "loop"], ["--dump-gradients loop"]),
]

SCHEDULES = [(["verify", "--schedule", name], words) for name, *words in (
    ("json.csv", "json.csv"), ("tower.csv", "tower.csv"), ("nul.csv", "nul.csv"), ("bytes.csv", "bytes.csv"), ("missing.csv", "missing.csv"), ("pipe.csv", "pipe.csv"))
] + [
    (["show", "--schedule", "1f1b", "--pp", "1M", "--micro-batches", "4"], ["--pp 1M"]),
    (["show", "--schedule", "1f1b", "--pp", "2", "--micro-batches", "0"], ["--micro-batches 0"]),
    (["show", "--schedule", "gpip", "--pp", "2", "--micro-batches", "2"], ["gpip", "gpipe"]),
    (["simulate", "--schedule", "1f1b", "--pp", "2", "--micro-batches", "2", "--cost-f", "nan"], ["--cost-f nan"]),
]

class Malformed(RefusalTest):
    def test_flags(self):
        self.refuse("train", FLAGS, BASE, ["--pp", "2"])

    def test_toml(self):
        self.refuse("train", TOML, BASE, ["--pp", "2"])

    def test_models(self):
        self.refuse("train", MODELS, BASE, ["--pp", "2"])

    def test_data(self):
        self.refuse("train", DATA, BASE, ["--pp", "2"])

    def test_plans(self):
        self.refuse("train", PLANS, BASE, ["--pp", "2"])

    def test_sources(self):
        self.refuse("train", SOURCES, BASE, ["--pp", "2"])

    def test_outputs(self):
        self.refuse("train", OUTPUTS, BASE, ["--pp", "2"])

    def test_schedules(self):
        self.refuse("schedule", SCHEDULES)


if __name__ == "__main__":
    unittest.main(verbosity=2)
