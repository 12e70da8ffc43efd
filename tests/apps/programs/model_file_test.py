"""--model FILE.toml: the model that a file describes is the one that the flags describe, and what is wrong with a file is
refused with its name, line and key."""
import unittest

import harness
from harness import losses, of_type

LLAMA = """
model = "llama-tiny"
layers = 2
hidden = 16
heads = 2
kv-heads = 1
head_size = 6          # underscores will do
ffn = 20
seq-len = 12
window = 4
qkv-bias = true
output-bias = true
ffn-bias = true
qk-norm = true
norm-eps = 1e-6
rope-theta = 500
rope-scaling = "llama3"
rope-factor = 4.0
rope-low-frequency = 1
rope-high-frequency = 2.5
rope-original-positions = 8
"""

# Content of the file, words of the refusal beside its name.
REFUSED = [
    ("layers = = 2", ["line 1"]),
    ("hidden = 16\nlayes = 2", ["line 2", "layes", "nearest is layers"]),
    ("model = 'gpt2-tiny'\nmodels = 'gpt2'", ["models", "nearest is model"]),
    ("kv-heads = 1\nkv_heads = 2", ["kv-heads", "twice"]),
    ("layers = '2'", ["layers '2'", "an integer is wanted"]),
    ("layers = 2.0", ["layers 2", "an integer is wanted"]),
    ("layers = true", ["layers true", "an integer is wanted"]),
    ("layers = [2]", ["layers", "an integer is wanted"]),
    ("layers = 0", ["layers 0", "1 to"]),
    ("[layers]\nn = 2", ["layers", "an integer is wanted"]),
    ("dropout = 'no'", ["dropout", "a number is wanted"]),
    ("dropout = 1", ["dropout 1", "less than 1"]),
    ("dropout = nan", ["dropout nan", "allowed is"]),
    ("tied-embeddings = 1", ["tied-embeddings 1", "true or false"]),
    ("tied-embeddings = 'true'", ["tied-embeddings", "true or false"]),
    ("model = 'gpt3'", ["model", "gpt3", "gpt2-tiny"]),
    ("model = 3", ["model 3", "as a text"]),
    ("model = 'other.toml'", ["model", "other.toml"]),
    ("rope-scaling = 'yarn'\nmodel = 'llama-tiny'", ["rope-scaling", "yarn", "llama3"]),
    ("experts = 4", ["experts 4", "not yet"]),
    # keys that are each right
    ("heads = 3", ["--hidden 128", "--heads 3"]),
    ("kv-heads = 2", ["--kv-heads 2", "4"]),
    ("window = 4", ["GPT-2", "window"]),
    ("qk-norm = false", ["GPT-2", "qk-norm"]),
    ("model = 'llama-tiny'\nkv-heads = 3", ["--kv-heads 3", "--heads 4"]),
    ("model = 'llama-tiny'\nhead-size = 5", ["head size of 5"]),
    ("model = 'llama-tiny'\nrope-factor = 2", ["rope-factor 2", "rope-scaling"]),
    ("model = 'llama-tiny'\nrope-scaling = 'linear'\nrope-high-frequency = 2", ["rope-high-frequency", "llama3"]),
    ("vocab = 100", ["100"]),
]


class ModelFiles(harness.ProgramTest):
    def run_of(self, *arguments):
        self.succeed("train", "--data", "text.txt", "--log", "log.jsonl", "--steps", 3, "--batch", 2, *arguments)
        return self.log()

    def test_a_file_is_the_flags_in_another_place(self):
        self.write("small.toml", "layers = 4\nhidden = 16\nheads = 2\nseq_len = 12\ndropout = 0.1\ntied-embeddings = false\nffn = 24\n")
        flags = [*harness.TINY, "--dropout", 0.1, "--tied-embeddings", "false", "--ffn", 24]
        by_file, by_flags = self.run_of("--model", "small.toml"), self.run_of(*flags)
        self.assertEqual(losses(by_file), losses(by_flags))
        for key in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq_len", "dropout", "tied_embeddings", "parameters"):
            self.assertEqual(by_file[0][key], by_flags[0][key], key)
        self.assertEqual(by_file[0]["model"], "small")
        self.assertEqual((by_file[0]["dropout"], by_file[0]["vocab"], by_file[0]["ffn"]), (0.1, 256, 24))
        # The command line wins, wherever it stands.
        changed = self.run_of("--model", "small.toml", "--layers", 2, "--dropout", 0, "--vocab", 300)
        self.assertEqual((changed[0]["layers"], changed[0]["dropout"], changed[0]["vocab"]), (2, 0, 300))
        self.write("run.toml", "model = 'small.toml'\nlayers = 3\n")
        self.assertEqual(self.run_of("--config", "run.toml")[0]["layers"], 3)
        # A vocabulary in the file is kept, and an empty file is the default model.
        self.write("wide.toml", "layers = 1\nhidden = 8\nheads = 1\nseq-len = 12\nvocab = 1000\n")
        self.assertEqual(self.run_of("--model", "wide.toml")[0]["vocab"], 1000)
        self.write("empty.toml", "")
        self.succeed("train", "--data", "text.txt", "--dry-run", "--model", "empty.toml", "--seq-len", 12)

    def test_a_llama_with_every_option_trains_in_any_layout_and_is_saved(self):
        self.write("llama.toml", LLAMA)
        # q, k, v and o with biases, both head norms, a feed-forward layer with biases, two norms; final norm; two tables.
        layer = 16 * 12 + 12 + 2 * (16 * 6 + 6) + 12 * 16 + 16 + 2 * 6 + 2 * (16 * 20 + 20) + 20 * 16 + 16 + 2 * 16
        log = self.run_of("--model", "llama.toml", "--checkpoint-dir", "ck")
        self.assertEqual(log[0]["parameters"], 2 * layer + 16 + 2 * 256 * 16)
        self.assertEqual((log[0]["kv_heads"], log[0]["ffn"], log[0]["seq_len"]), (1, 20, 12))
        self.assertEqual(losses(self.run_of("--model", "llama.toml", "--ranks", 2, "--pp", 2, "--micro-batch", 1)), losses(log))
        self.succeed("generate", "--from", "ck", "--prompt", "pipe", "--tokens", 3, "--json")
        self.succeed("train", "--model", "llama.toml", "--data", "text.txt", "--steps", 4, "--batch", 2, "--checkpoint-dir", "ck",
                     "--resume")
        # One option after another changes the model's result: none is read and forgotten.
        first = of_type(log, "step")
        for line, other in (("window = 4", "window = 3"), ("rope-theta = 500", "rope-theta = 50"), ("norm-eps = 1e-6", "norm-eps = 1e-2"),
                            ("rope-factor = 4.0", "rope-factor = 2.0"), ("rope-low-frequency = 1", "rope-low-frequency = 0.1"),
                            ("rope-high-frequency = 2.5", "rope-high-frequency = 1.5"), ("rope-original-positions = 8", "rope-original-positions = 20"),
                            ('"llama3"', '"linear"')):
            self.assertIn(line, LLAMA)
            text = LLAMA.replace(line, other)
            if "linear" in other:
                text = "\n".join(part for part in text.splitlines() if not part.startswith(("rope-low", "rope-high", "rope-orig")))
            self.write("other.toml", text)
            self.assertNotEqual(of_type(self.run_of("--model", "other.toml"), "step")[0]["grad_norm"], first[0]["grad_norm"], other)
        for key in ("qkv-bias", "output-bias", "ffn-bias", "qk-norm"):
            self.write("other.toml", LLAMA.replace(f"{key} = true", f"{key} = false"))
            self.assertLess(self.run_of("--model", "other.toml")[0]["parameters"], log[0]["parameters"], key)

    def test_refusals(self):
        for content, words in REFUSED:
            self.write("model.toml", content + "\n")
            before = self.files()
            done = self.run_program("train", "--data", "text.txt", "--steps", 1, "--log", "new.jsonl", "--model", "model.toml")
            with self.subTest(content=content):
                self.assertEqual(done.status, 2, done.err)
                self.assertEqual((done.err.count("\n"), done.out), (1, ""), done.err)
                for word in words if content.startswith("vocab") else ["model.toml", *words]:
                    self.assertIn(word, done.err)
                self.assertEqual(self.files(), before)
        done = self.run_program("train", "--data", "text.txt", "--model", "nothing.toml")
        self.assertEqual(done.status, 2, done.err)
        self.assertIn("--model: nothing.toml", done.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
