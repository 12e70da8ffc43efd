"""--recompute through the program: the same numbers, gradients and weights, less memory, and what is refused."""
import json
import unittest

import harness
from harness import Tensors, dumped_parameters, losses, of_type

# Activations outweigh the weights: 8 micro-batches of long sequences.
SHAPE = ["--layers", 4, "--hidden", 32, "--heads", 2, "--seq-len", 96, "--batch", 16, "--micro-batch", 2, "--dropout", 0.1]
COMMON = ["--steps", 2, "--lr", 0.01, "--seed", 5, "--dump-gradients", "gradients", "--dump-parameters", "parameters"]


class Recompute(harness.ProgramTest):
    def outcome(self, *arguments, mpi=None):
        for name in self.files():
            if name.startswith("parameters/"):
                (self.dir / name).unlink()
        self.succeed("train", "--data", "text.txt", "--log", "log.jsonl", *SHAPE, *COMMON, *arguments, mpi=mpi)
        log = self.log()
        summary = of_type(log, "summary")[0]
        self.assertEqual(summary["peak_bytes"], summary["peak_bytes_predicted"])
        numbers = losses(log), Tensors(self.dir / "gradients/gradients.safetensors").bytes, dumped_parameters(self.dir / "parameters")
        return numbers, summary["peak_bytes"], of_type(log, "run")[0]

    def test_the_same_bits_in_less_memory(self):
        for model in ("gpt2-tiny", "llama-tiny"):
            for layout in (["--pp", 1, "--schedule", "gpipe"], ["--pp", 2, "--ranks", 2, "--schedule", "gpipe"],
                           ["--pp", 2, "--ranks", 2], ["--pp", 3, "--ranks", 3, "--partition", "2,1,1"]):
                arguments = ["--model", model, "--threads", 1, *layout]
                kept, peaks, run = self.outcome(*arguments)
                self.assertEqual(run["recompute"], "none")
                for wish in ("selective", "1", "full"):
                    with self.subTest(model=model, layout=layout, recompute=wish):
                        again, lower, run = self.outcome(*arguments, "--recompute", wish)
                        self.assertEqual(run["recompute"], wish)
                        self.assertEqual(again, kept)
                        # A rank that holds one micro-batch at a time has nothing to gain beyond it.
                        several = [r for r in range(len(peaks)) if "gpipe" in layout or r == 0]
                        for rank in several:
                            self.assertLess(lower[rank], peaks[rank], f"rank {rank}")

    def test_under_mpirun(self):
        kept, peaks, _ = self.outcome("--threads", 1)
        again, lower, _ = self.outcome("--pp", 2, "--recompute", "full", mpi=2)
        self.assertEqual(again, kept)
        self.assertLess(max(lower), peaks[0])

    def test_full_saves_most(self):
        peaks = [self.outcome("--schedule", "gpipe", "--recompute", wish)[1][0] for wish in ("none", "1", "2", "3", "4")]
        self.assertEqual(peaks, sorted(peaks, reverse=True))
        self.assertEqual(len(set(peaks)), 5)
        self.assertEqual(self.outcome("--schedule", "gpipe", "--recompute", "full")[1][0], peaks[-1])
        self.assertEqual(self.outcome("--schedule", "gpipe", "--recompute", "0")[1][0], peaks[0])

    def test_the_dry_run_predicts(self):
        def predicted(wish):
            done = self.succeed("train", "--data", "text.txt", *SHAPE, "--pp", 2, "--ranks", 2, "--dry-run", "--json",
                                "--recompute", wish)
            return json.loads(done.out)["peak_bytes_predicted"]
        self.assertLess(predicted("full")[0], predicted("none")[0])
        self.assertEqual(predicted("full"), self.outcome("--pp", 2, "--ranks", 2, "--recompute", "full")[1])

    def test_refusals(self):
        for arguments, words in ((["--recompute=all"], ["--recompute all", "none, selective, full"]), (["--recompute=-1"], ["--recompute"]),
                                 (["--recompute=5"], ["--recompute 5", "no stage has more than 4 layers"]),
                                 (["--recompute=3", "--pp", 2, "--ranks", 2], ["--recompute 3", "no stage has more than 2 layers"])):
            with self.subTest(arguments=arguments):
                done = self.run_program("train", "--data", "text.txt", "--steps", 1, "--log", "new.jsonl", *arguments)
                self.assertEqual((done.status, done.out, len(done.err.splitlines())), (2, "", 1), done.err)
                self.assertEqual([w for w in words if w not in done.err], [], done.err)
                self.assertEqual(self.files(), ["text.txt"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
