"""Hugging Face directories in the programs: weights come in exactly, the shape is the directory's, and what is wrong with a
directory or contradicts it is refused with exit status 2, one line, and no file made."""
import json
import pathlib
import shutil
import struct
import unittest

import harness
from harness import Tensors, dumped_parameters, losses

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures"
GPT2 = FIXTURES / "gpt2-tiny" / "hf"          # vocabulary 256, 64 positions, no tokenizer
LLAMA = FIXTURES / "llama-tied-tiny" / "hf"   # vocabulary 96, 64 positions, three shards


def write_tensors(path, tensors):
    """`tensors`: name to (dtype, shape, bytes)."""
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


class HuggingFace(harness.ProgramTest):
    def setUp(self):
        super().setUp()
        shutil.copytree(GPT2, self.dir / "gpt2")
        shutil.copytree(LLAMA, self.dir / "llama")
        self.write("ids.bin", struct.pack("<200H", *(i * i % 96 for i in range(200))))

    def from_llama(self, *arguments, mpi=None):
        self.succeed("train", "--init-from", "llama", "--data", "ids.bin", "--token-dtype", "uint16", "--seq-len", 12, "--batch", 4,
                     "--log", "log.jsonl", *arguments, mpi=mpi)
        return self.log()

    def tensors(self, folder):
        """Name to (dtype, shape, bytes) of all weight files of a directory."""
        found = {}
        for path in sorted((self.dir / folder).glob("*.safetensors")):
            file = Tensors(path)
            found.update({name: (file.dtype[name], file.shape[name], file.bytes[name]) for name in file.bytes})
        return found

    def edit_config(self, folder, **values):
        path = self.dir / folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    def test_values_come_in_exactly_and_go_on_as_a_checkpoint(self):
        stored = {name: (shape, data) for name, (_, shape, data) in self.tensors("llama").items()}
        first = self.from_llama("--steps", 1, "--lr", 0, "--dump-parameters", "start", "--checkpoint-dir", "start-ck")
        self.assertEqual(dumped_parameters(self.dir / "start"), stored)
        line = first[0]
        self.assertEqual((line["layers"], line["hidden"], line["heads"], line["kv_heads"], line["ffn"], line["vocab"], line["seq_len"],
                          line["tied_embeddings"], line["parameters"]), (3, 32, 4, 1, 44, 96, 12, True, 23648))
        log = self.from_llama("--steps", 4)
        for layout in ([*"--ranks 2 --pp 2".split()], [*"--ranks 3 --pp 3 --schedule gpipe".split()]):
            self.assertEqual(losses(self.from_llama("--steps", 4, "--micro-batch", 2, *layout)), losses(log))
        self.assertEqual(losses(self.from_llama("--steps", 4, "--pp", 2, "--micro-batch", 2, mpi=2)), losses(log))
        # From the checkpoint that was made of it: the same again, and half now, half later.
        again = ["--init-from", "start-ck", "--data", "ids.bin", "--token-dtype", "uint16", "--seq-len", 12, "--batch", 4, "--log", "log.jsonl"]
        self.succeed("train", *again, "--steps", 4)
        self.assertEqual(losses(self.log()), losses(log))
        self.from_llama("--steps", 2, "--checkpoint-dir", "half")
        self.from_llama("--steps", 4, "--checkpoint-dir", "half", "--resume")
        self.assertEqual(losses(self.log()), losses(log))
        ids = ["--prompt-ids", "5,6,7", "--tokens", 5, "--temperature", 0, "--json"]
        by_source = [json.loads(self.succeed("generate", "--from", source, *ids).out)["ids"] for source in ("llama", "start-ck")]
        self.assertEqual(by_source[0], by_source[1])

    def test_a_shorter_sequence_leaves_the_table_whole(self):
        self.succeed("train", "--init-from", "gpt2", "--data", "text.txt", "--seq-len", 12, "--batch", 2, "--steps", 1, "--weight-decay", 0,
                     "--dump-parameters", "after", "--dump-gradients", "gradients", "--log", "log.jsonl")
        name, width = "transformer.wpe.weight", 48
        _, before = self.tensors("gpt2")[name][1:]
        shape, after = dumped_parameters(self.dir / "after")[name]
        self.assertEqual(shape, [64, width])
        self.assertEqual(after[12 * width * 4:], before[12 * width * 4:])
        self.assertNotEqual(after[:12 * width * 4], before[:12 * width * 4])
        gradient = Tensors(self.dir / "gradients/gradients.safetensors").floats(name)
        self.assertFalse(any(gradient[12 * width:]))
        self.assertEqual(self.log()[0]["seq_len"], 12)
        self.succeed("train", "--init-from", "gpt2", "--data", "text.txt", "--batch", 2, "--steps", 1, "--log", "log.jsonl")
        self.assertEqual(self.log()[0]["seq_len"], 64)

    def test_old_names_buffers_and_narrow_types(self):
        reference = self.succeed("generate", "--from", "gpt2", "--prompt-ids", "1,2,3", "--tokens", 1, "--logits", "a.safetensors", "--json")
        tensors = self.tensors("gpt2")
        old = {name.removeprefix("transformer."): value for name, value in tensors.items()}
        old["h.0.attn.bias"] = ("BOOL", [1, 1, 2, 2], b"\1\0\1\1")
        old["h.0.attn.masked_bias"] = ("F32", [], struct.pack("<f", -1e4))
        old["lm_head.weight"] = tensors["transformer.wte.weight"]
        write_tensors(self.dir / "gpt2/model.safetensors", old)
        done = self.succeed("generate", "--from", "gpt2", "--prompt-ids", "1,2,3", "--tokens", 1, "--logits", "b.safetensors", "--json")
        self.assertEqual(Tensors(self.dir / "a.safetensors").bytes, Tensors(self.dir / "b.safetensors").bytes)
        self.assertEqual(json.loads(done.out)["ids"], json.loads(reference.out)["ids"])
        # The upper halves of fp32 numbers are bf16 numbers.
        cut = {name: b"".join(b"\0\0" + data[i + 2:i + 4] for i in range(0, len(data), 4)) for name, (_, _, data) in tensors.items()}
        narrow = {name: ("BF16", tensors[name][1], b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))) for name, data in cut.items()}
        write_tensors(self.dir / "gpt2/model.safetensors", narrow)
        self.succeed("train", "--init-from", "gpt2", "--data", "text.txt", "--seq-len", 12, "--steps", 0, "--dump-parameters", "wide")
        self.assertEqual({name: data for name, (_, data) in dumped_parameters(self.dir / "wide").items()}, cut)

    def test_text_without_a_tokenizer_that_is_read(self):
        ids = ["--prompt-ids", "70,71", "--tokens", 2, "--temperature", 0]
        by_byte = json.loads(self.succeed("generate", "--from", "gpt2", *ids, "--json").out)
        self.assertEqual(by_byte["text"].encode("utf-8", "replace")[:1], bytes(by_byte["ids"][:1]) if by_byte["ids"][0] < 128 else b"\xef")
        self.write("gpt2/tokenizer.json", "{}")
        without = json.loads(self.succeed("generate", "--from", "gpt2", *ids, "--json").out)
        self.assertEqual((without["ids"], without["text"]), (by_byte["ids"], None))
        plain = self.succeed("generate", "--from", "gpt2", *ids).out
        self.assertEqual(plain.split(), ["70", "71", *map(str, by_byte["ids"])])
        self.refused("generate", ["--from", "gpt2", "--prompt", "pipe"], ["gpt2/tokenizer.json", "not yet"])
        self.refused("eval", ["--from", "gpt2", "--data", "text.txt"], ["gpt2/tokenizer.json", "not yet"])
        self.refused("train", ["--init-from", "gpt2", "--data", "text.txt"], ["gpt2/tokenizer.json", "not yet"])
        self.assertEqual(json.loads(self.succeed("generate", "--from", "gpt2", "--tokenizer", "byte", *ids, "--json").out)["ids"], by_byte["ids"])
        self.succeed("eval", "--from", "gpt2", "--data", "ids.bin", "--token-dtype", "uint16", "--ranks", 2)
        self.succeed("eval", "--from", "gpt2", "--tokenizer", "byte", "--data", "text.txt")
        # Ids that the byte tokenizer has not are shown, not a failure after all the work.
        self.write("wide.toml", "layers = 1\nhidden = 8\nheads = 1\nseq-len = 12\nvocab = 60000\n")
        self.succeed("train", "--model", "wide.toml", "--data", "ids.bin", "--token-dtype", "uint16", "--steps", 1, "--checkpoint-dir",
                     "wide")
        shown = json.loads(self.succeed("generate", "--from", "wide", *ids, "--json").out)
        self.assertEqual(len(shown["ids"]), 2)
        self.assertEqual(shown["text"], "".join(chr(i) if i < 128 else "\ufffd" for i in shown["ids"]))

    def refused(self, program, arguments, words, mpi=None):
        before = self.files()
        done = self.run_program(program, *arguments, mpi=mpi)
        with self.subTest(program=program, arguments=arguments, words=words):
            self.assertEqual(done.status, 2, done.err)
            self.assertEqual(len(done.lines_of(program)), 1, done.err)
            if not mpi:
                self.assertEqual((done.err.count("\n"), done.out), (1, ""), done.err)
            for word in words:
                self.assertIn(word, done.lines_of(program)[0])
            self.assertEqual(self.files(), before)

    def test_what_contradicts_the_directory(self):
        start = ["--init-from", "llama", "--data", "ids.bin", "--token-dtype", "uint16", "--log", "new.jsonl", "--checkpoint-dir", "new"]
        for flag, value, there in (("--layers", 2, 3), ("--hidden", 64, 32), ("--heads", 8, 4), ("--kv-heads", 2, 1), ("--ffn", 128, 44),
                                   ("--vocab", 256, 96), ("--tied-embeddings", "false", "true"), ("--seq-len", 65, 64)):
            self.refused("train", [*start, flag, value], [f"{flag} {value}", "--init-from llama", str(there)])
        self.refused("train", [*start, "--model", "gpt2-tiny"], ["--model gpt2-tiny", "--init-from llama"])
        self.refused("train", [*start, "--model", "llama-tiny"], ["--model llama-tiny", "--init-from llama"])
        # What agrees is no contradiction.
        self.write("same.toml", 'model = "llama-tiny"\nlayers = 3\nhidden = 32\nheads = 4\nkv-heads = 1\nffn = 44\nrope-theta = 500\n'
                                'norm-eps = 1e-6\ntied-embeddings = true\n')
        self.succeed("train", *start[:6], "--steps", 0, "--model", "same.toml", "--layers", 3, "--vocab", 96, "--seq-len", 64, "--batch", 1)
        self.refused("train", ["--init-from", "llama", "--data", "text.txt"], ["text.txt", "96"])
        self.refused("generate", ["--from", "llama", "--prompt-ids", "96"], ["--prompt-ids 96", "95"])

    def test_damaged_directories(self):
        start = ["--init-from", "llama", "--data", "ids.bin", "--token-dtype", "uint16", "--log", "new.jsonl", "--checkpoint-dir", "new"]
        programs = [("train", start), ("train", [*start, "--dry-run"]), ("eval", ["--from", "llama", "--data", "ids.bin", "--token-dtype", "uint16"]),
                    ("generate", ["--from", "llama", "--prompt-ids", "1", "--logits", "new.safetensors"])]

        def all_refuse(*words):
            for program, arguments in programs:
                self.refused(program, arguments, words)
            shutil.rmtree(self.dir / "llama")
            shutil.copytree(LLAMA, self.dir / "llama")

        shard = self.dir / "llama/model-00002-of-00003.safetensors"
        index = self.dir / "llama/model.safetensors.index.json"
        name = "model.layers.1.self_attn.q_proj.weight"
        shard.write_bytes(shard.read_bytes()[:-4])
        all_refuse("model-00002-of-00003.safetensors", "truncated")
        shard.unlink()
        all_refuse("model-00002-of-00003.safetensors", "missing")
        content = json.loads(index.read_text())
        del content["weight_map"][name]
        index.write_text(json.dumps(content))
        all_refuse(index.name, name)
        tensors = self.tensors("llama")
        for changed, words in (({k: v for k, v in tensors.items() if k != name}, (name, "missing")),
                               ({**tensors, "model.layers.3.mlp.up_proj.weight": tensors["model.layers.2.mlp.up_proj.weight"]},
                                ("model.layers.3.mlp.up_proj.weight", "surplus")),
                               ({**tensors, name: ("F32", [16, 64], tensors[name][2])}, (name, "(16, 64)", "(32, 32)")),
                               ({**tensors, "lm_head.weight": ("F32", [96, 32], bytes(96 * 32 * 4))},
                                ("lm_head.weight", "model.embed_tokens.weight"))):
            write_tensors(self.dir / "llama/model.safetensors", changed)
            all_refuse("llama/model.safetensors" if "missing" not in words else "llama", *words)
        for key, value in (("hidden_act", "relu"), ("rope_scaling", {"type": "yarn", "factor": 2}), ("model_type", "mamba"),
                           ("sliding_window", 8), ("num_attention_heads", 3)):
            self.edit_config("llama", **{key: value})
            all_refuse("llama/config.json", key if key != "num_attention_heads" else "num_attention_heads 3")
        self.edit_config("llama", attention_bias=True)
        all_refuse("model.layers.0.self_attn.q_proj.bias", "missing")
        self.write("llama/config.json", "{")
        all_refuse("llama/config.json", "damaged")
        (self.dir / "llama/config.json").unlink()
        all_refuse("llama", "neither", "config.json")
        # Under a launcher once, for all ranks.
        self.edit_config("llama", hidden_act="gelu")
        self.refused("train", [*start, "--pp", 2], ["--init-from", "hidden_act"], mpi=2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
