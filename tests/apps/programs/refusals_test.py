"""What must be refused: exit status 2, one line on stderr that names flag or file and value, no file made or changed."""
import unittest

import harness

BASE = ["--data", "text.txt", "--steps", 1]

# Arguments of penstock-train beside BASE, and words that the line must hold.
TRAIN = [
    # numbers and words
    (["--layers", 0], ["--layers 0", "1 to 10000"]),
    (["--layers", 1000000000], ["--layers 1000000000", "1 to 10000"]),
    (["--batch", 100000000000], ["--batch 100000000000"]),
    (["--hidden", 1000000000], ["--hidden 1000000000"]),
    (["--seq-len", 9223372036854775807], ["--seq-len 9223372036854775807"]),
    (["--schedule", "replicas.csv", "--batch", 4, "--micro-batch", 2, "--pp", 2, "--ranks", 2], ["--schedule replicas.csv", "2 copies", "not yet"]),
    (["--schedule", "again.csv", "--batch", 1], ["--schedule again.csv", "0RECOMPUTE0", "not yet"]),
    (["--layers", "x"], ["--layers x", "integer"]),
    (["--batch", 0], ["--batch 0"]),
    (["--batch", 2.5], ["--batch 2.5"]),
    (["--batch", ""], ["--batch"]),
    (["--micro-batch", 9], ["--micro-batch 9", "--batch 8"]),
    (["--dropout", 1], ["--dropout 1"]),
    (["--dropout", "nan"], ["--dropout nan"]),
    (["--lr", -1], ["--lr -1"]),
    (["--lr", "inf"], ["--lr inf"]),
    (["--lr", "1e999"], ["--lr 1e999"]),
    (["--eps", 0], ["--eps 0"]),
    (["--beta1", 1], ["--beta1 1"]),
    (["--steps", -1], ["--steps -1"]),
    (["--seed", -1], ["--seed -1"]),
    (["--threads", 0], ["--threads 0"]),
    (["--deadline", 0], ["--deadline 0"]),
    (["--tied-embeddings", "yes"], ["--tied-embeddings yes", "true and false"]),
    (["--lr-schedule", "cosin"], ["--lr-schedule cosin", "cosine"]),
    (["--optimizer", "adam"], ["--optimizer adam", "adamw"]),
    (["--data-order", "random"], ["--data-order random", "shuffled"]),
    (["--token-dtype", "uint8"], ["--token-dtype uint8"]),
    (["--ignore-target", 99999999999], ["--ignore-target 99999999999"]),
    (["--valid-fraction", 1], ["--valid-fraction 1"]),
    # the command line itself
    (["--bach", 4], ["--bach", "--batch"]),
    (["--weight_decay", 0], ["--weight_decay", "--weight-decay"]),
    (["--layers", 2, "--layers", 3], ["--layers", "2 times"]),
    (["--layers"], ["--layers", "value"]),
    (["--config", "none.toml"], ["none.toml"]),
    (["--config", "bad.toml"], ["bad.toml", "line 2"]),
    (["--config", "unknown.toml"], ["unknown.toml", "lerning-rate"]),
    (["--config", "value.toml"], ["value.toml", "--batch 0"]),
    # flags that contradict each other
    (["--momentum", 0.9], ["--momentum 0.9", "sgd"]),
    (["--eval-every", 1], ["--eval-every 1", "--valid-data"]),
    (["--valid-data", "text.txt", "--valid-fraction", 0.1], ["--valid-data", "--valid-fraction"]),
    (["--resume"], ["--resume", "--checkpoint-dir"]),
    (["--keep", 3], ["--keep", "--checkpoint-dir"]),
    (["--save-every", 3], ["--save-every", "--checkpoint-dir"]),
    (["--resume", "--checkpoint-dir", "nothing"], ["nothing"]),
    (["--resume", "--checkpoint-dir", "folder"], ["folder", "no complete checkpoint"]),
    (["--checkpoint-dir", "text.txt"], ["--checkpoint-dir text.txt"]),
    (["--checkpoint-dir", "text.txt/below"], ["--checkpoint-dir text.txt/below"]),
    # model and layout
    (["--model", "gpt3"], ["--model gpt3", "gpt2-tiny"]),
    (["--heads", 3], ["--hidden", "--heads 3"]),
    (["--kv-heads", 2], ["--kv-heads 2", "4"]),
    (["--vocab", 100], ["100"]),
    (["--pp", 2], ["--pp 2", "1"]),
    (["--pp", 3, "--ranks", 2], ["--pp 3", "2"]),
    (["--pp", 2, "--ranks", 2, "--partition", "1,1"], ["--partition 1,1", "4 layers"]),
    (["--pp", 2, "--ranks", 2, "--partition", "4"], ["--partition 4", "2"]),
    (["--pp", 2, "--ranks", 2, "--partition", "5,-1"], ["--partition", "-1"]),
    (["--schedule", "1f1c"], ["1f1c", "1f1b"]),
    (["--schedule", "none.csv"], ["none.csv"]),
    (["--schedule", "bad.csv"], ["bad.csv", "row 1"]),
    (["--schedule", "short.csv", "--micro-batch", 1], ["--schedule short.csv", "2", "8"]),
    (["--schedule", "locks.csv", "--pp", 2, "--ranks", 2, "--batch", 2], ["--schedule locks.csv"]),
    (["--init-from", "nothing"], ["--init-from", "nothing"]),
    # data and outputs
    (["--seq-len", 5000], ["text.txt", "1500"]),
    (["--valid-data", "nothing.txt", "--eval-every", 1], ["nothing.txt"]),
    (["--valid-fraction", 0.001, "--eval-every", 1], ["--valid-fraction 0.001"]),
    (["--log", "nothing/log.jsonl"], ["--log nothing/log.jsonl"]),
    (["--log", "folder"], ["--log folder", "directory"]),
    (["--log", "text.txt"], ["--log text.txt", "--data"]),
    (["--trace", "nothing/t.json"], ["--trace nothing/t.json"]),
    (["--log", "same", "--trace", "./same"], ["--trace ./same", "--log"]),
    (["--dump-gradients", "text.txt"], ["--dump-gradients text.txt"]),
    (["--dump-parameters", "text.txt/x"], ["--dump-parameters text.txt/x"]),
]

# What is promised and not yet built.
NOT_YET = [
    ["--tp", 2], ["--dp", 2], ["--cp", 2], ["--ep", 2], ["--zero", 1], ["--sequence-parallel"], ["--experts", 4],
    ["--experts-per-token", 2], ["--balance-loss", 0.1], ["--document-separator", 0], ["--memory-limit", 1000000],
    ["--repartition", "auto"], ["--virtual-stages", 2], ["--post-validation"], ["--vertical-sync"],
    ["--async-warmup", 1], ["--lr-rescale", 1], ["--discrepancy-correction", 0.1], ["--device", "cuda"],
    ["--device", "cuda-host"], ["--profile"], ["--tokenizer", "tokenizer.json"], ["--model", "moe-tiny"],
    ["--model", "experts.toml"], ["--schedule", "zb-h1"], ["--schedule", "pipedream"], ["--pp", 1, "--ranks", 2], ["--pp", 2, "--ranks", 4],
]


class Refusals(harness.ProgramTest):
    def setUp(self):
        super().setUp()
        (self.dir / "folder").mkdir()
        self.write("bad.toml", "batch = 4\nlr = = 3\n")
        self.write("unknown.toml", "lerning_rate = 1\n")
        self.write("value.toml", "batch = 0\n")
        self.write("bad.csv", "0X0\n")
        self.write("short.csv", "0F0,0F1,0B0,0B1\n")
        self.write("replicas.csv", "0F0,1F0,1B0,0B0\n0F1,1F1,1B1,0B1\n")
        self.write("again.csv", "0F0,0RECOMPUTE0,0B0\n")
        self.write("locks.csv", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")
        self.write("experts.toml", "experts = 4\n")

    def state(self):
        return {name: (self.dir / name).read_bytes() if (self.dir / name).is_file() else None for name in self.files()}

    def refused(self, program, arguments, words, mpi=None):
        before = self.state()
        done = self.run_program(program, *arguments, mpi=mpi)
        with self.subTest(program=program, arguments=arguments, mpi=mpi):
            self.assertEqual(done.status, 2, done.err)
            self.assertEqual(len(done.lines_of(program)), 1, done.err)
            if not mpi:
                self.assertEqual(done.err.count("\n"), 1, done.err)
            self.assertEqual(done.out, "")
            for word in words:
                self.assertIn(word, done.lines_of(program)[0])
            self.assertEqual(self.state(), before)

    def test_train(self):
        for arguments, words in TRAIN:
            given = [a for i, a in enumerate(BASE) if not {a, BASE[i - 1]} & {"--steps"} or "--steps" not in arguments]
            # Outputs that a refused command must not make, whatever it is refused for.
            extra = [] if {"--log", "--trace"} & set(arguments) else ["--log", "new.jsonl", "--trace", "new.json"]
            if "--checkpoint-dir" not in arguments and not {"--resume", "--keep", "--save-every"} & set(arguments):
                extra += ["--checkpoint-dir", "new"]
            self.refused("train", [*given, *extra, *arguments], words)

    def test_not_yet(self):
        for arguments in NOT_YET:
            self.refused("train", [*BASE, "--log", "new.jsonl", *arguments], ["not yet", str(arguments[0])])
        self.write("later.toml", "zero = 2\n")
        self.refused("train", [*BASE, "--config", "later.toml"], ["later.toml", "--zero 2", "not yet"])

    def test_what_asks_for_nothing_new_is_accepted(self):
        self.train("--steps", 1, *"--tp 1 --dp 1 --cp 1 --ep 1 --zero 0 --memory-limit 0 --virtual-stages 1 --recompute none".split(),
                   *"--dtype fp32 --device cpu --async-warmup 0 --lr-rescale 0 --discrepancy-correction 0 --tokenizer byte".split())

    def test_data(self):
        for path, words in (("nothing.txt", ["nothing.txt"]), ("empty.txt", ["empty.txt", "empty"]), ("odd.bin", ["odd.bin"]),
                            ("hollow", ["hollow"])):
            self.write("empty.txt", "")
            self.write("odd.bin", b"abc")
            (self.dir / "hollow").mkdir(exist_ok=True)
            self.refused("train", ["--data", path, "--steps", 1, "--log", "new.jsonl"], words)
        self.refused("train", ["--steps", 1], ["--data is missing"])
        self.refused("train", ["text.txt"], ["'text.txt'"])

    def test_under_mpirun_once_for_all_ranks(self):
        for arguments, words in ((["--bach", 4], ["--bach", "--batch"]), (["--ranks", 2], ["--ranks 2", "mpirun"]),
                                 (["--ranks", 2, "--dry-run"], ["--ranks 2", "mpirun"]),
                                 (["--pp", 3], ["--pp 3", "2"]), (["--data", "nothing.txt"], ["nothing.txt"]),
                                 (["--log", "nothing/x"], ["--log nothing/x"])):
            base = ["--log", "new.jsonl"] if "--log" not in arguments else []
            base += ["--data", "text.txt"] if "--data" not in arguments else []
            base += ["--pp", 2] if "--pp" not in arguments else []
            self.refused("train", [*base, *arguments], words, mpi=2)

    def test_checkpoints(self):
        self.train("--steps", 2, "--checkpoint-dir", "ck")
        tiny = [*map(str, harness.TINY), "--checkpoint-dir", "ck", "--steps", 4]
        self.refused("train", [*tiny, "--data", "text.txt"], ["--checkpoint-dir ck", "--resume"])
        resume = [*tiny, "--resume", "--log", "new.jsonl"]
        self.write("other.txt", harness.text(1500, seed=2))
        self.refused("train", [*resume, "--data", "other.txt"], ["another data"])
        self.refused("train", [*resume, "--data", "text.txt", "--tied-embeddings", "false"], ["another model"])
        self.refused("train", [*resume, "--data", "text.txt", "--optimizer", "sgd"], ["another optimizer"])
        start = ["--data", "text.txt", "--init-from", "ck", "--log", "new.jsonl"]
        for flag, value in (("--layers", 3), ("--hidden", 32), ("--vocab", 300), ("--seq-len", 13), ("--model", "gpt2")):
            self.refused("train", [*start, flag, value], [f"{flag} {value}", "--init-from"])
        weights = self.dir / "ck/step-00000002/weights-00000.safetensors"
        whole = weights.read_bytes()
        for damaged in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
            weights.write_bytes(damaged)
            self.refused("train", [*resume, "--data", "text.txt"], ["weights-00000.safetensors"])
            self.refused("eval", ["--from", "ck", "--data", "text.txt"], ["weights-00000.safetensors"])
        weights.unlink()
        self.refused("train", [*resume, "--data", "text.txt"], ["weights-00000.safetensors", "missing"])

    def test_eval_and_generate(self):
        self.train("--steps", 1, "--checkpoint-dir", "ck")
        start = ["--from", "ck", "--data", "text.txt"]
        for arguments, words in (
                (["--data", "text.txt"], ["--from is missing"]), (["--from", "ck"], ["--data is missing"]),
                (["--from", "nothing", "--data", "text.txt"], ["--from", "nothing"]),
                ([*start, "--seq-len", 13], ["--seq-len 13", "12"]), ([*start, "--stride", 13], ["--stride 13", "12"]),
                ([*start, "--seq-len", 5, "--stride", 6], ["--stride 6", "5"]), ([*start, "--stride", 0], ["--stride 0"]),
                ([*start, "--pp", 2], ["--pp 2", "1"]), ([*start, "--tp", 2], ["--tp 2", "not yet"]),
                ([*start, "--dtype", "fp16"], ["--dtype", "fp16", "bf16"]), ([*start, "--tokenizer", "t.json"], ["t.json", "not yet"]),
                ([*start, "--logits", "nothing/x"], ["--logits nothing/x"]), ([*start, "--logits", "text.txt"], ["--logits text.txt"]),
                ([*start, "--jsom"], ["--jsom", "--json"])):
            self.refused("eval", arguments, words)
        start = ["--from", "ck", "--prompt", "pipe"]
        for arguments, words in (
                (["--prompt", "x"], ["--from is missing"]), (["--from", "ck"], ["--prompt", "--prompt-ids"]),
                ([*start, "--prompt-ids", "1"], ["--prompt", "--prompt-ids"]), (["--from", "ck", "--prompt", ""], ["--prompt", "empty"]),
                (["--from", "ck", "--prompt", "thirteen byte"], ["--prompt", "13", "12"]),
                (["--from", "ck", "--prompt-ids", "1,256"], ["--prompt-ids 256", "255"]),
                (["--from", "ck", "--prompt-ids", "1,,2"], ["--prompt-ids"]),
                (["--from", "ck", "--prompt-ids", "99999999999"], ["--prompt-ids 99999999999"]),
                ([*start, "--tokens", -1], ["--tokens -1"]), ([*start, "--temperature", -1], ["--temperature -1"]),
                ([*start, "--top-k", -1], ["--top-k -1"]), ([*start, "--top-p", 0], ["--top-p 0"]),
                ([*start, "--top-p", 1.1], ["--top-p 1.1"]), ([*start, "--serve"], ["--serve"])):
            self.refused("generate", arguments, words)
        self.refused("generate", [*start, "--ranks", 2], ["--ranks 2", "mpirun"], mpi=2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
