"""The reference models through the programs: what PyTorch computes from their Hugging Face directories, within the limits that
the reference states, in one rank and through pipelines.

The fixtures have two models and a training curve; where PENSTOCK_REFERENCE_DIR has the whole set, the same checks run on all
of it too. The worst errors are printed as a table.
"""
import json
import os
import pathlib
import struct
import unittest

import harness
from harness import Tensors, dumped_parameters, of_type

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures"
REFERENCE = pathlib.Path(os.environ.get("PENSTOCK_REFERENCE_DIR") or "nowhere") / "models"
RECIPE = ["--token-dtype", "uint16", "--data-order", "sequential", "--optimizer", "adamw", "--lr", 1e-3, "--beta1", 0.9,
          "--beta2", 0.95, "--eps", 1e-8, "--weight-decay", 0.1, "--clip", 1]
RATE = 1e-3
LAYOUTS = [[], ["--ranks", 2, "--pp", 2], ["--ranks", 3, "--pp", 3, "--schedule", "gpipe"]]
COPIED = {"llama-tied-tiny", "curve-20"}  # fixtures that are the whole of it


def folders(name):
    """Where the model is: the fixtures, and the whole set where that has more."""
    places = [FIXTURES, REFERENCE] if name not in COPIED else [FIXTURES]
    return [folder / name for folder in places if (folder / name / "expected.json").is_file()]


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


class ReferenceModels(harness.ProgramTest):
    worst = {}  # (model, quantity): (error, limit)

    @classmethod
    def tearDownClass(cls):
        print(f"\n{'model':32} {'quantity':34} {'worst error':>12} {'limit':>10}")
        for (model, quantity), (error, limit) in cls.worst.items():
            print(f"{model:32} {quantity:34} {error:12.2e} {limit:10.2e}")

    def note(self, quantity, error, limit):
        """An error that must be within its limit; the one closest to it is kept for the table."""
        self.assertTrue(error <= limit, f"{self.label}, {quantity}: {error} exceeds {limit}")
        key = (self.label, quantity)
        known = self.worst.get(key, (0.0, limit))
        self.worst[key] = max(known, (error, limit), key=lambda pair: pair[0] / pair[1])

    def use(self, folder):
        self.folder = folder
        self.label = f"{folder.name} ({'fixture' if folder.parent == FIXTURES else 'whole'})"
        self.hf = folder / "hf"
        self.numbers = json.loads((folder / "expected.json").read_text())
        self.expected = Tensors(folder / "expected.safetensors")
        self.stride = self.numbers.get("stride", 1)
        flat = self.expected.bytes["input_ids"]
        self.ids = list(struct.unpack(f"<{len(flat) // 8}q", flat))
        self.sequences, self.length = self.expected.shape["input_ids"]
        # The batch as a stream of tokens; every step sees it.
        stream = [*self.ids, self.ids[0]]
        self.write("batch.bin", struct.pack(f"<{len(stream)}H", *stream))

    def check_directories(self, check):
        for name in ("gpt2-tiny", "llama-tied-tiny", "llama-tiny"):
            for folder in folders(name):
                self.use(folder)
                with self.subTest(model=self.label):
                    check()
        self.assertIn(("gpt2-tiny", "fixtures"), [(f.name, f.parent.name) for f in folders("gpt2-tiny")])
        self.assertIn(("llama-tied-tiny", "fixtures"), [(f.name, f.parent.name) for f in folders("llama-tied-tiny")])

    def start(self, *arguments):
        self.succeed("train", "--init-from", self.hf, "--data", "batch.bin", "--seq-len", self.length, "--batch", self.sequences,
                     "--micro-batch", 1, "--log", "log.jsonl", *RECIPE, *arguments)
        return of_type(self.log(), "step")

    def limit_of_logits(self):
        return 10 * (self.numbers["fp32_error"]["logits"] + self.numbers["second_fp32_program"]["logits"])

    def check_logits(self, file, sequence):
        actual, wanted = Tensors(self.dir / file), floats(self.expected.bytes["logits"])
        vocabulary = self.expected.shape["logits"][2]
        self.assertEqual(actual.shape["logits"], [self.length, vocabulary])
        begin = sequence * self.length * vocabulary
        rows = actual.floats("logits")
        for a, b in zip(rows, wanted[begin:begin + len(rows)], strict=True):
            self.note("logits", abs(a - b), self.limit_of_logits())
        return actual.bytes["logits"]

    def logits_and_losses(self):
        for sequence in range(self.sequences):
            ids = self.ids[sequence * self.length:(sequence + 1) * self.length]
            seen = set()
            for layout in ([], ["--ranks", 2], ["--ranks", 3]):
                self.succeed("generate", "--from", self.hf, "--prompt-ids", ",".join(map(str, ids)), "--tokens", 1, "--temperature", 0,
                             "--json", "--logits", "g.safetensors", *layout)
                seen.add(self.check_logits("g.safetensors", sequence))
            self.assertEqual(len(seen), 1, "the layout does not change the bits")
        evaluate = ["eval", "--from", self.hf, "--data", "batch.bin", "--token-dtype", "uint16", "--seq-len", self.length, "--json"]
        result = json.loads(self.succeed(*evaluate, "--logits", "e.safetensors", "--ranks", 2).out)
        self.check_logits("e.safetensors", 0)
        self.assertEqual(result["tokens"], len(self.ids))
        self.note("loss (eval)", abs(result["loss"] - self.numbers["targets"]["loss_float64"]), 1e-5)
        ignored = self.numbers["ignore_target"]
        result = json.loads(self.succeed(*evaluate, "--ignore-target", ignored["id"]).out)
        self.assertEqual(result["tokens"], ignored["valid"])
        self.note("loss, a target ignored", abs(result["loss"] - ignored["loss_float64"]), 1e-5)
        (step,) = self.start("--steps", 1, "--ignore-target", ignored["id"])
        self.note("loss, a target ignored", abs(step["loss"] - ignored["loss_float64"]), 1e-5)
        self.note("norm, a target ignored", abs(step["grad_norm"] / ignored["grad_norm_float64"] - 1), 3e-5)

    def test_logits_and_losses(self):
        self.check_directories(self.logits_and_losses)

    def greedy_tokens(self):
        greedy = self.numbers["greedy"]
        for layout in ([], ["--ranks", 2]):
            done = self.succeed("generate", "--from", self.hf, "--prompt-ids", ",".join(map(str, greedy["prompt_ids"])), "--tokens",
                                len(greedy["ids"]), "--temperature", 0, "--json", *layout)
            result = json.loads(done.out)
            self.assertEqual((result["prompt_ids"], result["ids"]), (greedy["prompt_ids"], greedy["ids"]), self.label)

    def test_greedy_tokens(self):
        self.check_directories(self.greedy_tokens)

    def check_gradients(self, gradients):
        self.assertEqual(sorted(gradients.shape), sorted(self.numbers["parameters"]))
        for name, facts in self.numbers["parameters"].items():
            self.assertEqual(gradients.shape[name], facts["shape"], name)
            actual, wanted = gradients.floats(name)[::self.stride], floats(self.expected.bytes["grad." + name])
            worst = max(abs(a - b) for a, b in zip(actual, wanted, strict=True))
            self.note("gradients, of the tensor's largest", worst / facts["grad_max_abs"], 3e-5)

    def check_weights(self, weights, steps):
        self.assertEqual(sorted(weights), sorted(self.numbers["parameters"]))
        scale = min(1.0, 1 / (self.numbers["targets"]["grad_norm_float64"] + 1e-6))
        firm = 0
        for name, facts in self.numbers["parameters"].items():
            shape, data = weights[name]
            self.assertEqual(shape, facts["shape"], name)
            actual = floats(data)[::self.stride]
            wanted, gradient = floats(self.expected.bytes[f"after_{steps}.{name}"]), floats(self.expected.bytes["grad." + name])
            for i, (a, b, g) in enumerate(zip(actual, wanted, gradient, strict=True)):
                third = shape[0] // 3
                if name.endswith("attn.c_attn.bias") and third <= i * self.stride < 2 * third:
                    continue  # its exact gradient is zero
                is_firm = abs(g) * scale >= 1e-5
                firm += is_firm
                self.note(f"weights after {steps}{'' if is_firm else ', tiny gradients'}", abs(a - b),
                          5e-6 if is_firm else 2 * RATE * steps)
        self.assertGreater(firm, 0.7 * sum(len(floats(d)) for _, d in weights.values()) / self.stride)

    def five_steps(self):
        seen = set()
        for layout in LAYOUTS:
            (step,) = self.start("--steps", 1, "--dump-gradients", "gradients", "--dump-parameters", "after-1", *layout)
            gradients = Tensors(self.dir / "gradients/gradients.safetensors")
            self.check_gradients(gradients)
            self.check_weights(dumped_parameters(self.dir / "after-1"), 1)
            steps = self.start("--steps", 5, "--dump-parameters", "after-5", *layout)
            for step, wanted in zip(steps, self.numbers["steps"], strict=True):
                self.note("loss of 5 steps", abs(step["loss"] - wanted["loss_float64"]), 1e-5)
                self.note("norm of 5 steps", abs(step["grad_norm"] / wanted["grad_norm_float64"] - 1), 3e-5)
            weights = dumped_parameters(self.dir / "after-5")
            self.check_weights(weights, 5)
            seen.add((str(sorted(weights.items())), str(sorted(gradients.bytes.items()))))
            for old in ("gradients", "after-1", "after-5"):
                for path in (self.dir / old).iterdir():
                    path.unlink()
        self.assertEqual(len(seen), 1, "the layout does not change the bits")

    def test_five_steps_of_adamw(self):
        self.check_directories(self.five_steps)

    def test_curve_of_twenty_steps(self):
        self.assertIn(FIXTURES / "curve-20", folders("curve-20"))
        for folder in folders("curve-20"):
            self.label = f"curve-20 ({'fixture' if folder.parent == FIXTURES else 'whole'})"
            numbers = json.loads((folder / "expected.json").read_text())
            for layout in (["--micro-batch", 5], ["--micro-batch", 5, "--ranks", 2, "--pp", 2]):
                self.succeed("train", "--init-from", folder / "hf", "--data", folder / "tokens.bin", "--batch", 12, "--seq-len", 64,
                             "--steps", 20, "--log", "log.jsonl", *RECIPE, *layout)
                steps = of_type(self.log(), "step")
                for step, loss, norm in zip(steps, numbers["loss_float64"], numbers["grad_norm_float64"], strict=True):
                    self.note("loss of 20 steps", abs(step["loss"] - loss), 1e-5)
                    self.note("norm of 20 steps", abs(step["grad_norm"] / norm - 1), 3e-5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
