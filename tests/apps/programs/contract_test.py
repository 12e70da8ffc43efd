"""What penstock-train writes, prints and computes, against the contract: log lines, rates, data order, dry run, settings files."""
import json
import math
import re
import unittest

import harness
from harness import of_type

STEP = ["type", "step", "loss", "grad_norm", "lr", "tokens", "seconds", "tokens_per_second"]
SUMMARY = ["type", "steps", "tokens", "seconds", "tokens_per_second", "bubble_measured", "bubble_simulated", "peak_bytes",
           "peak_bytes_predicted", "stage_seconds", "rollbacks"]


class Log(harness.ProgramTest):
    def test_lines_and_fields(self):
        log = self.train("--steps", 4, "--batch", 5, "--pp", 2, "--valid-fraction", 0.2, "--eval-every", 2, "--eval-batches", 3,
                         "--checkpoint-dir", "ck", "--save-every", 2, mpi=2)
        kinds = [line["type"] for line in log]
        self.assertEqual(kinds, ["run", "step", "step", "eval", "checkpoint", "step", "step", "eval", "checkpoint", "summary"])
        steps, summary = of_type(log, "step"), log[-1]
        self.assertEqual([s["step"] for s in steps], [1, 2, 3, 4])
        for line in steps:
            self.assertEqual(list(line), STEP)
            self.assertEqual(line["tokens"], 5 * 12)
            self.assertAlmostEqual(line["tokens_per_second"] * line["seconds"], line["tokens"], delta=1e-6)
        for line in of_type(log, "eval"):
            self.assertEqual(list(line), ["type", "step", "loss", "perplexity", "tokens"])
            self.assertAlmostEqual(line["perplexity"], math.exp(line["loss"]), delta=1e-9)
            self.assertEqual(line["tokens"], 3 * 5 * 12)
        for line in of_type(log, "checkpoint"):
            self.assertEqual(list(line), ["type", "step", "path", "seconds"])
            self.assertEqual(line["path"], f"ck/step-{line['step']:08}")
            self.assertTrue((self.dir / line["path"]).is_dir())
        self.assertEqual(list(summary), SUMMARY)
        self.assertEqual(summary["steps"], 4)
        self.assertEqual(summary["tokens"], sum(s["tokens"] for s in steps))
        self.assertAlmostEqual(summary["seconds"], sum(s["seconds"] for s in steps), delta=1e-9)
        self.assertAlmostEqual(summary["tokens_per_second"], summary["tokens"] / summary["seconds"], delta=1e-6)
        for name in ("peak_bytes", "peak_bytes_predicted", "stage_seconds"):
            self.assertEqual(len(summary[name]), 2)
            self.assertGreater(min(summary[name]), 0)
        self.assertLessEqual(max(summary["stage_seconds"]), summary["seconds"])
        for name in ("bubble_measured", "bubble_simulated"):
            self.assertTrue(0 <= summary[name] < 1)

    def test_the_run_line_has_every_setting_in_force(self):
        run = self.train("--steps", 1, "--pp", 2, "--ranks", 2, "--partition", "3,1", "--dropout", 0.1)[0]
        self.assertEqual(run["type"], "run")
        self.assertEqual(run["layout"], {"pp": 2, "tp": 1, "dp": 1, "cp": 1, "ep": 1})
        self.assertEqual((run["partition"], run["devices"]), ([3, 1], ["cpu", "cpu"]))
        self.assertEqual(len(run["hosts"]), 2)
        self.assertRegex(run["version"], r"^\d+\.\d+\.\d+$")
        # wte 256 x 16 once, wpe 12 x 16, two norms, attention and feed-forward of 4 layers, the last norm
        layer = 2 * 2 * 16 + 16 * 48 + 48 + 16 * 16 + 16 + 2 * 16 * 64 + 64 + 16
        self.assertEqual(run["parameters"], 256 * 16 + 12 * 16 + 4 * layer + 2 * 16)
        expected = {
            "model": "gpt2-tiny", "layers": 4, "hidden": 16, "heads": 2, "kv_heads": 2, "ffn": 64, "vocab": 256, "seq_len": 12,
            "dropout": 0.1, "tied_embeddings": True, "data": ["text.txt"], "tokenizer": "byte", "data_order": "shuffled",
            "token_dtype": "auto", "batch": 8, "micro_batch": 2, "pp": 2, "tp": 1, "dp": 1, "cp": 1, "ep": 1,
            "sequence_parallel": False, "zero": 0, "memory_limit": 0, "schedule": "1f1b", "virtual_stages": 1, "recompute": "none",
            "post_validation": False, "optimizer": "adamw", "momentum": 0, "lr": 0.001, "min_lr": 0, "warmup": 0,
            "lr_schedule": "constant", "weight_decay": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "clip": 1, "steps": 1,
            "seed": 0, "dtype": "fp32", "device": "cpu", "deadline": 300, "eval_every": 0, "save_every": 0, "keep": 2,
            "resume": False}
        self.assertEqual({k: run.get(k, "missing") for k in expected}, expected)
        self.assertGreaterEqual(run["threads"], 1)
        known = set(re.findall(r"--([a-z][a-z0-9-]+)", self.succeed("train", "--help").out))
        known -= {"help", "version", "config", "experts", "experts-per-token", "balance-loss", "document-separator", "repartition"}
        self.assertEqual([flag for flag in known if flag.replace("-", "_") not in run], [])

    def test_numbers_read_back_exactly(self):
        for line in of_type(self.train("--steps", 3), "step"):
            for name in ("loss", "grad_norm", "lr", "seconds"):
                text = (self.dir / "log.jsonl").read_text()
                self.assertIn(f'"{name}":{line[name]!r}', text)

    def test_what_is_not_finite_is_skipped_and_ten_in_a_row_end_the_run(self):
        done = self.run_program("train", *harness.TINY, "--data", "text.txt", "--log", "log.jsonl", "--lr", 1e30, "--clip", 0,
                                "--steps", 50)
        self.assertEqual(done.status, 1, done.err)
        self.assertIn("10 steps in a row", done.err)
        self.assertIn("is skipped", done.err)
        steps = of_type(self.log(), "step")
        self.assertTrue(all(s["skipped"] is True and s["loss"] is None for s in steps[-10:]))
        self.assertNotIn("skipped", steps[0])

    def test_json_and_progress_keep_apart(self):
        done = self.succeed("train", *harness.TINY, "--data", "text.txt", "--steps", 2, "--json")
        self.assertEqual(json.loads(done.out)["steps"], 2)
        self.assertIn("step 2/2", done.err)

    def test_an_older_log_is_replaced(self):
        self.write("log.jsonl", "old\n")
        self.assertEqual(self.train("--steps", 1)[0]["type"], "run")

    def test_the_trace_is_json(self):
        self.train("--steps", 2, "--pp", 2, "--ranks", 2, "--trace", "t.json")
        events = json.loads((self.dir / "t.json").read_text())
        events = events["traceEvents"] if isinstance(events, dict) else events
        self.assertEqual({e["ph"] for e in events} - {"X", "M"}, set())
        self.assertGreater(len([e for e in events if e["ph"] == "X"]), 8)


class Numbers(harness.ProgramTest):
    def rates(self, *arguments):
        return [s["lr"] for s in of_type(self.train("--batch", 1, *arguments), "step")]

    def test_rates(self):
        lr, low, warm, last = 0.01, 0.001, 3, 13
        shapes = {"constant": lambda x: lr, "linear": lambda x: lr + (low - lr) * x,
                  "cosine": lambda x: low + (lr - low) * (1 + math.cos(math.pi * x)) / 2,
                  "wsd": lambda x: lr if x <= 0.8 else lr + (low - lr) * (x - 0.8) / 0.2}
        for name, shape in shapes.items():
            found = self.rates("--lr", lr, "--min-lr", low, "--warmup", warm, "--steps", last, "--lr-schedule", name)
            expected = [lr * s / warm if s <= warm else shape((s - warm) / (last - warm)) for s in range(1, last + 1)]
            for a, b in zip(found, expected, strict=True):
                self.assertAlmostEqual(a, b, delta=1e-15)
        self.assertEqual(self.rates("--lr", 0.01, "--warmup", 10, "--steps", 2), [0.001, 0.002])

    def test_order_of_the_windows(self):
        """With a rate of 0 a step's loss is that of its windows under the first weights, which penstock-eval tells."""
        data = (self.dir / "text.txt").read_bytes()[:12 * 5 + 4]  # 5 windows and a rest
        self.write("few.txt", data)
        common = ["--lr", 0, "--weight-decay", 0, "--batch", 2, "--micro-batch", 1, "--steps", 5]
        log = self.train(*common, "--data-order", "sequential", "--checkpoint-dir", "ck", data="few.txt")
        window = []
        for i in range(5):
            self.write("window.txt", data[12 * i:12 * i + 13])
            window.append(json.loads(self.succeed("eval", "--from", "ck", "--data", "window.txt", "--json").out)["loss"])
        self.assertEqual(len(set(window)), 5)
        for step, line in enumerate(of_type(log, "step")):
            expected = (window[2 * step % 5] + window[(2 * step + 1) % 5]) / 2
            self.assertAlmostEqual(line["loss"], expected, delta=1e-6)
        # Shuffled: 5 steps of 2 are two epochs, each window once in each.
        log = self.train(*common[:-6], "--batch", 1, "--steps", 10, data="few.txt")
        seen = [min(range(5), key=lambda i, loss=line["loss"]: abs(window[i] - loss)) for line in of_type(log, "step")]
        self.assertEqual((sorted(seen[:5]), sorted(seen[5:])), (list(range(5)), list(range(5))))
        self.assertNotEqual(seen[:5], seen[5:])
        self.assertNotEqual(seen[:5], list(range(5)))

    def test_data_of_several_paths_is_one_row(self):
        data = (self.dir / "text.txt").read_bytes()
        self.write("folder/a.txt", data[:400])
        self.write("folder/b.txt", data[400:900])
        self.write("rest.txt", data[900:])
        expected = harness.losses(self.train("--steps", 3))
        parts = ["--steps", 3, "--log", "log.jsonl", *harness.TINY]
        self.succeed("train", *parts, "--data", "folder", "rest.txt")
        self.assertEqual(harness.losses(self.log()), expected)
        self.succeed("train", *parts, "--data", "folder", "--data", "rest.txt")
        self.assertEqual(harness.losses(self.log()), expected)

    def test_ignored_targets(self):
        """All targets ignored: the loss is 0, and nothing is divided by 0."""
        self.write("same.txt", "a" * 200)
        log = self.train("--steps", 2, "--ignore-target", ord("a"), data="same.txt")
        self.assertEqual([(s["loss"], s["grad_norm"], "skipped" in s) for s in of_type(log, "step")], [(0, 0, False)] * 2)

    def test_default_micro_batch(self):
        for pp, batch, expected in ((1, 8, 4), (2, 8, 2), (4, 8, 1), (4, 3, 1)):
            log = self.train("--steps", 1, "--batch", batch, "--pp", pp, "--ranks", pp)
            self.assertEqual(log[0]["micro_batch"], expected)

    def test_start_from_a_checkpoint(self):
        self.train("--steps", 3, "--checkpoint-dir", "ck", "--dump-parameters", "a", "--lr", 0.01)
        self.succeed("train", "--data", "text.txt", "--init-from", "ck", "--steps", 0, "--dump-parameters", "b", "--seq-len", 6)
        self.assertEqual(harness.dumped_parameters(self.dir / "a"), harness.dumped_parameters(self.dir / "b"))


class DryRun(harness.ProgramTest):
    def test_it_writes_nothing_and_takes_any_number_of_ranks(self):
        outputs = ["--log", "log.jsonl", "--trace", "t.json", "--checkpoint-dir", "ck", "--dump-gradients", "g",
                   "--dump-parameters", "p"]
        before = self.files()
        for ranks in (1, 4, 64):
            done = self.succeed("train", *harness.TINY, "--data", "text.txt", "--dry-run", "--json", "--pp", ranks, "--ranks", ranks,
                                *outputs)
            plan = json.loads(done.out)
            self.assertLessEqual({"parameters", "layout", "partition", "peak_bytes_predicted", "bubble_simulated"}, set(plan))
            self.assertEqual(plan["layout"]["pp"], ranks)
            self.assertEqual((len(plan["partition"]), sum(plan["partition"])), (ranks, 4))
            self.assertEqual(len(plan["peak_bytes_predicted"]), ranks)
        plan = json.loads(self.succeed("train", "--data", "text.txt", "--dry-run", "--json", "--pp", 2, mpi=2).out)
        self.assertEqual(plan["layout"]["pp"], 2)
        text = self.succeed("train", "--data", "text.txt", "--dry-run", "--pp", 2, "--ranks", 2).out
        self.assertRegex(text, r"rank 0 .*\n *rank 1 ")
        self.succeed("train", "--model", "gpt2-xl", "--data", "text.txt", "--seq-len", 1024, "--dry-run", "--pp", 8, "--ranks", 8)
        self.assertEqual(self.files(), before)

    def test_the_prediction_holds(self):
        log = self.train("--steps", 3, "--pp", 2, "--ranks", 2)
        for real, predicted in zip(log[-1]["peak_bytes"], log[-1]["peak_bytes_predicted"]):
            self.assertAlmostEqual(real / predicted, 1, delta=0.1)  # how long messages live depends on time
        alone = self.train("--steps", 3)[-1]
        self.assertEqual(alone["peak_bytes"], alone["peak_bytes_predicted"])
        plan = json.loads(self.succeed("train", *harness.TINY, "--data", "text.txt", "--dry-run", "--json", "--pp", 2, "--ranks", 2).out)
        self.assertEqual(plan["peak_bytes_predicted"], log[-1]["peak_bytes_predicted"])


class Settings(harness.ProgramTest):
    def test_a_file_of_settings(self):
        self.write("run.toml", 'data = ["text.txt"]\nlayers = 4\nhidden = 16\nheads = 2\nseq_len = 12\nbatch = 4\nlr = 3e-3\n'
                               'lr-schedule = "cosine"\nsteps = 3\nlog = "toml.jsonl"\ntied_embeddings = false\nresume = false\n')
        self.succeed("train", "--config", "run.toml")
        flags = self.train("--batch", 4, "--lr", 3e-3, "--lr-schedule", "cosine", "--steps", 3, "--tied-embeddings", "false")
        self.assertEqual(harness.losses(self.log("toml.jsonl")), harness.losses(flags))
        self.succeed("train", "--config", "run.toml", "--steps", 2, "--log", "wins.jsonl")
        self.assertEqual(len(of_type(self.log("wins.jsonl"), "step")), 2)

    def test_help_and_version(self):
        for program in ("train", "eval", "generate"):
            text = self.succeed(program, "--help").out
            self.assertIn(f"Example:\n  penstock-{program} ", text)
            self.assertRegex(self.succeed(program, "--version").out, rf"^penstock-{program} \d+\.\d+\.\d+\n$")
        self.assertEqual(self.succeed("train", "--help", mpi=2).out.count("Example:"), 1)
        text = self.succeed("train", "--help").out
        for flag, default in (("batch", 8), ("lr", 0.001), ("schedule", "1f1b"), ("keep", 2), ("clip", 1), ("tp", 1), ("zero", 0)):
            self.assertRegex(text, rf"--{flag} \S+={default}")
        for flag in ("micro-batch", "pp", "threads", "tokenizer"):
            self.assertRegex(text, rf"--{flag} [^\n]*(\n +)?[^\n]*default")


if __name__ == "__main__":
    unittest.main(verbosity=2)
