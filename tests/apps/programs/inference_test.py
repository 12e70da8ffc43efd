"""penstock-eval and penstock-generate against a forward pass in plain Python, and against each other."""
import json
import math
import struct
import unittest

import harness
from harness import Tensors, dumped_parameters, of_type
from reference_gpt2 import Model

CONTEXT = 12  # positions of harness.TINY


class Inference(harness.ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("held.txt", harness.text(5 * CONTEXT + 1, seed=9))
        self.log_lines = self.train("--steps", 30, "--lr", 0.01, "--batch", 4, "--checkpoint-dir", "ck", "--valid-data", "held.txt",
                                    "--eval-every", 30, "--dump-parameters", "parameters")
        parameters = dumped_parameters(self.dir / "parameters")
        self.model = Model({name: (shape, struct.unpack(f"<{len(data) // 4}f", data)) for name, (shape, data) in parameters.items()},
                           heads=2)

    def eval(self, *arguments, data="held.txt", mpi=None):
        return json.loads(self.succeed("eval", "--from", "ck", "--data", data, "--json", *arguments, mpi=mpi).out)

    def generate(self, *arguments, mpi=None):
        return json.loads(self.succeed("generate", "--from", "ck", "--json", *arguments, mpi=mpi).out)

    def test_loss_is_that_of_the_model(self):
        ids = list((self.dir / "held.txt").read_bytes())[:20]
        self.write("part.txt", bytes(ids))
        scored = self.model.losses(ids[:CONTEXT + 1]) + self.model.losses(ids[CONTEXT:])
        result = self.eval(data="part.txt")
        self.assertEqual(sorted(result), ["loss", "perplexity", "tokens"])
        self.assertEqual(result["tokens"], 19)
        self.assertAlmostEqual(result["loss"], math.fsum(scored) / 19, delta=1e-5)
        self.assertAlmostEqual(result["perplexity"], math.exp(result["loss"]), delta=1e-9)
        # Windows start at 0, 4, 8; of the second and third only what no earlier one held is scored.
        scored = self.model.losses(ids[:13]) + self.model.losses(ids[4:17])[-4:] + self.model.losses(ids[8:])[-3:]
        result = self.eval("--stride", 4, data="part.txt")
        self.assertEqual(result["tokens"], 19)
        self.assertAlmostEqual(result["loss"], math.fsum(scored) / 19, delta=1e-5)
        # A target that is to be ignored counts neither in the sum nor in the divisor.
        space = ord(" ")
        kept = [nats for nats, target in zip(self.model.losses(ids[:13]) + self.model.losses(ids[12:]), ids[1:]) if target != space]
        result = self.eval("--ignore-target", space, data="part.txt")
        self.assertEqual(result["tokens"], len(kept))
        self.assertAlmostEqual(result["loss"], math.fsum(kept) / len(kept), delta=1e-5)

    def test_every_token_but_the_first_is_scored_once(self):
        for length in (2, 11, 12, 13, 14, 24, 25, 26, 37):
            self.write("part.txt", harness.text(length, seed=4))
            for stride in (1, 5, 11, 12):
                self.assertEqual(self.eval("--stride", stride, data="part.txt")["tokens"], length - 1, (length, stride))
            self.assertEqual(self.eval("--seq-len", 3, data="part.txt")["tokens"], length - 1)

    def test_the_loss_is_that_of_the_training_log(self):
        logged = of_type(self.log_lines, "eval")[-1]
        result = self.eval()
        self.assertEqual((result["tokens"], logged["step"]), (logged["tokens"], 30))
        self.assertAlmostEqual(result["loss"], logged["loss"], delta=1e-12)
        self.assertLess(result["loss"], 4)  # from ln 256 = 5.5
        self.assertEqual(self.eval("--ranks", 2), result)
        self.assertEqual(self.eval("--ranks", 3, "--pp", 3, "--threads", 2, "--micro-batch", 4), result)
        self.assertEqual(self.eval("--pp", 2, mpi=2), result)
        self.assertEqual(json.loads(self.succeed("eval", "--from", "ck/step-00000030", "--data", "held.txt", "--json").out), result)
        self.assertIn(f"{result['loss']:.6f}", self.succeed("eval", "--from", "ck", "--data", "held.txt").out)

    def logits_of(self, name, ids):
        tensors = Tensors(self.dir / name)
        self.assertEqual(tensors.shape, {"logits": [len(ids), 256]})
        flat = tensors.floats("logits")
        rows = self.model.logits(ids)
        self.assertLess(max(abs(a - b) for a, b in zip(flat, (v for row in rows for v in row))), 1e-4)
        return tensors.bytes["logits"]

    def test_logits(self):
        ids = list((self.dir / "held.txt").read_bytes())
        self.eval("--logits", "e.safetensors")
        one = self.logits_of("e.safetensors", ids[:CONTEXT])
        self.eval("--logits", "e.safetensors", "--ranks", 2)
        self.assertEqual(self.logits_of("e.safetensors", ids[:CONTEXT]), one)
        self.write("short.txt", bytes(ids[:6]))
        self.eval("--logits", "e.safetensors", data="short.txt")
        self.logits_of("e.safetensors", ids[:5])
        for tokens in (0, 1, 4):
            result = self.generate("--prompt", "pipe s", "--tokens", tokens, "--logits", "g.safetensors", "--temperature", 0)
            self.assertEqual(len(result["ids"]), tokens)
            self.logits_of("g.safetensors", (result["prompt_ids"] + result["ids"])[:-1])

    def test_generate(self):
        greedy = ["--prompt", "pipe", "--tokens", 6, "--temperature", 0]
        first = self.generate(*greedy)
        self.assertEqual(sorted(first), ["ids", "prompt_ids", "text", "tokens_per_second"])
        self.assertEqual(first["prompt_ids"], list(b"pipe"))
        ids = list(b"pipe")
        for _ in range(6):
            row = self.model.logits(ids)[-1]
            ids.append(row.index(max(row)))
        self.assertEqual(first["ids"], ids[4:])
        self.assertEqual(first["text"].encode(), bytes(ids[4:]))
        drawn = ["--prompt-ids", "112,105", "--tokens", 8, "--seed", 3, "--temperature", 0.9, "--top-k", 40, "--top-p", 0.95]
        second = self.generate(*drawn)
        for arguments, expected in ((greedy, first), (drawn, second)):
            for layout in ([], ["--ranks", 2], ["--ranks", 3, "--pp", 3]):
                self.assertEqual(self.generate(*arguments, *layout)["ids"], expected["ids"])
            self.assertEqual(self.generate(*arguments, "--pp", 2, mpi=2)["ids"], expected["ids"])
        by_seed = [self.generate(*drawn[:4], "--seed", seed)["ids"] for seed in (4, 5, 5)]
        self.assertNotEqual(by_seed[0], by_seed[1])
        self.assertEqual(by_seed[1], by_seed[2])
        self.assertEqual(self.generate(*greedy[:4], "--top-k", 1, "--temperature", 5)["ids"], first["ids"])
        self.assertEqual(self.generate(*greedy[:4], "--top-p", 1e-9, "--temperature", 5)["ids"], first["ids"])

    def test_what_ends_it(self):
        self.assertEqual(self.generate("--prompt", "pipe", "--tokens", 0)["ids"], [])
        full = self.generate("--prompt", "pipe", "--tokens", 100)
        self.assertIn(len(full["prompt_ids"] + full["ids"]), (CONTEXT, CONTEXT + 1))
        plain = self.succeed("generate", "--from", "ck", "--prompt", "pipe", "--tokens", 5, "--temperature", 0)
        self.assertTrue(plain.out.startswith("pipe") and len(plain.out) == 10, plain.out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
