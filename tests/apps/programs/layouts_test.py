"""Losses, gradient norms, gradients and weights are the same bits in every pipeline layout."""
import itertools
import math
import struct
import unittest

import harness
from harness import Tensors, dumped_parameters, losses, of_type

# Splits into micro-batches, each with its own bits: uneven with dropout (7 in 2, 2, 2, 1), even, one at a time with SGD.
SPLITS = {
    "uneven": ["--batch", 7, "--micro-batch", 2, "--dropout", 0.1, "--lr-schedule", "cosine", "--warmup", 1],
    "even": ["--batch", 6, "--micro-batch", 2, "--tied-embeddings", "false"],
    "single": ["--batch", 3, "--micro-batch", 1, "--optimizer", "sgd", "--momentum", 0.9, "--dropout", 0.3],
    "bf16": ["--batch", 5, "--micro-batch", 2, "--dropout", 0.1, "--dtype", "bf16"],
    "llama": ["--model", "llama-tiny", "--batch", 5, "--micro-batch", 2, "--dropout", 0.1, "--tied-embeddings", "true"],
}
COMMON = ["--steps", 3, "--lr", 0.01, "--seed", 5, "--valid-fraction", 0.2, "--eval-every", 2,
          "--dump-gradients", "gradients", "--dump-parameters", "parameters"]


class Layouts(harness.ProgramTest):
    def outcome(self, split, *arguments, mpi=None):
        """Numbers, gradients and weights of a run."""
        for name in self.files():
            if name.startswith("parameters/"):
                (self.dir / name).unlink()
        log = self.train(*SPLITS[split], *COMMON, *arguments, mpi=mpi)
        return losses(log), Tensors(self.dir / "gradients/gradients.safetensors").bytes, dumped_parameters(self.dir / "parameters")

    def same(self, split, expected, *arguments, mpi=None):
        with self.subTest(split=split, arguments=arguments, mpi=mpi):
            numbers, gradients, parameters = self.outcome(split, *arguments, mpi=mpi)
            self.assertEqual(numbers, expected[0])
            self.assertEqual(sorted(gradients), sorted(expected[1]))
            self.assertEqual([n for n in gradients if gradients[n] != expected[1][n]], [])
            self.assertEqual(sorted(parameters), sorted(expected[2]))
            self.assertEqual([n for n in parameters if parameters[n] != expected[2][n]], [])

    def test_every_layout(self):
        reference = ["--pp", 1, "--schedule", "gpipe", "--threads", 1]
        expected = self.outcome("uneven", *reference)
        for pp, schedule, threads in itertools.product((1, 2, 3, 4), ("gpipe", "1f1b"), (1, 2)):
            layout = ["--pp", pp, "--schedule", schedule, "--threads", threads]
            self.same("uneven", expected, *layout, "--ranks", pp)
            if threads == 1 or pp == 2:
                self.same("uneven", expected, *layout, mpi=pp)

    def test_partitions(self):
        expected = self.outcome("uneven", "--threads", 1)
        for partition in ("3,1", "0,4", "1,0,3", "0,2,2,0"):
            pp = partition.count(",") + 1
            self.same("uneven", expected, "--pp", pp, "--ranks", pp, "--partition", partition)
        self.same("uneven", expected, "--pp", 2, "--partition", "1,3", mpi=2)

    def test_other_splits(self):
        for split in ("even", "single", "llama", "bf16"):
            expected = self.outcome(split, "--threads", 1)
            for pp, schedule in itertools.product((2, 3, 4), ("gpipe", "1f1b")):
                self.same(split, expected, "--pp", pp, "--ranks", pp, "--schedule", schedule, "--threads", 2)
            self.same(split, expected, "--pp", 2, mpi=2)

    def test_a_plan_from_a_file(self):
        plan = self.succeed("schedule", "export", "--schedule", "1f1b", "--pp", 2, "--micro-batches", 4).out
        self.write("plan.csv", plan)
        # The backward halves apart, the weight halves last.
        self.write("split.csv", "0F0,0F1,0I0,0F2,0I1,0F3,0I2,0I3,0W0,0W1,0W2,0W3\n"
                                "1F0,1I0,1F1,1I1,1F2,1I2,1F3,1I3,1W0,1W1,1W2,1W3\n")
        # As torch writes it for sharded gradients.
        self.write("torch.csv", "0UNSHARD,0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n"
                                "1UNSHARD,1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3,1REDUCE_GRAD,1WAIT_REDUCE_GRAD\n")
        expected = self.outcome("uneven", "--threads", 1)
        for name in ("plan.csv", "split.csv", "torch.csv"):
            self.same("uneven", expected, "--pp", 2, "--ranks", 2, "--schedule", name)

    def test_settings_that_must_change_the_numbers(self):
        """The comparison above is not between constants."""
        expected = self.outcome("uneven")[0]
        for change in (["--seed", 6], ["--dropout", 0.2], ["--lr", 0.02], ["--data-order", "sequential"], ["--clip", 0.1],
                       ["--weight-decay", 0.5], ["--beta1", 0.5], ["--ignore-target", 32]):
            flag = change[0]
            arguments = [a for i, a in enumerate(SPLITS["uneven"]) if flag not in (a, SPLITS["uneven"][i - 1])]
            common = [a for i, a in enumerate(COMMON) if flag not in (a, COMMON[i - 1])]
            with self.subTest(change=change):
                self.assertNotEqual(losses(self.train(*arguments, *common, *change)), expected)

    def test_the_norm_and_the_update_are_those_of_the_dumped_gradients(self):
        """Clipped SGD on the dumped numbers, by hand."""
        split = ["--batch", 6, "--micro-batch", 2, "--optimizer", "sgd", "--lr", 0.5, "--weight-decay", 0.01, "--clip", 0.7]
        self.train(*split, "--steps", 0, "--dump-parameters", "before")
        log = self.train(*split, "--steps", 1, "--dump-gradients", "gradients", "--dump-parameters", "after", "--pp", 2,
                         "--ranks", 2)
        gradients = Tensors(self.dir / "gradients/gradients.safetensors")
        before, after = dumped_parameters(self.dir / "before"), dumped_parameters(self.dir / "after")
        norm = math.sqrt(math.fsum(g * g for name in gradients.bytes for g in gradients.floats(name)))
        self.assertAlmostEqual(of_type(log, "step")[0]["grad_norm"] / norm, 1, delta=1e-6)
        self.assertGreater(norm, 0.7)
        self.assertEqual(sorted(gradients.bytes), sorted(before))
        self.assertEqual(sorted(after), sorted(before))
        factor = min(1.0, 0.7 / (norm + 1e-6))
        largest = 0.0
        for name, (shape, data) in before.items():
            count = len(data) // 4
            decay = 0.5 * 0.01 if len(shape) >= 2 else 0.0
            old, new = struct.unpack(f"<{count}f", data), struct.unpack(f"<{count}f", after[name][1])
            for w, v, g in zip(old, new, gradients.floats(name)):
                largest = max(largest, abs(v - (w - decay * w - 0.5 * factor * g)))
        self.assertLess(largest, 1e-6)


if __name__ == "__main__":
    unittest.main(verbosity=2)
