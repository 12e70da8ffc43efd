"""Checkpoints through the program: a resumed run is the same as one that was not interrupted; what is kept and cleared."""
import resource
import subprocess
import unittest

import harness
from harness import dumped_parameters, losses, of_type

# Inside the warm-up, in the second epoch, with dropout: everything that a checkpoint must bring back.
RUN = ["--batch", 7, "--micro-batch", 2, "--dropout", 0.2, "--lr", 0.01, "--warmup", 7, "--seed", 3, "--valid-fraction", 0.7]


class Resume(harness.ProgramTest):
    def checkpoints(self, name="ck"):
        return sorted(p.name for p in (self.dir / name).iterdir())

    def test_five_and_five_are_ten(self):
        whole = self.train(*RUN, "--steps", 10, "--dump-parameters", "whole")
        for optimizer in ([], ["--optimizer", "sgd", "--momentum", 0.9]):
            if optimizer:
                whole = self.train(*RUN, *optimizer, "--steps", 10, "--dump-parameters", "whole")
            for first, second, mpi in ((1, 1, None), (1, 3, None), (2, 1, None), (2, 2, 2)):
                with self.subTest(optimizer=optimizer, first=first, second=second, mpi=mpi):
                    directory = f"ck-{len(optimizer)}-{first}-{second}"
                    keep = [*RUN, *optimizer, "--checkpoint-dir", directory]
                    ranks = [] if mpi else ["--ranks", first]
                    self.train(*keep, "--steps", 5, "--pp", first, *ranks, mpi=mpi)
                    for leftover in (self.dir / "parts").glob("*"):
                        leftover.unlink()
                    ranks = [] if mpi else ["--ranks", second]
                    log = self.train(*keep, "--steps", 10, "--resume", "--dump-parameters", "parts", "--pp", second, *ranks, mpi=mpi)
                    self.assertEqual([line["type"] for line in log].count("run"), 2)  # appended to
                    self.assertEqual(losses(log), losses(whole))
                    self.assertEqual(dumped_parameters(self.dir / "parts"), dumped_parameters(self.dir / "whole"))
                    self.assertEqual((log[-1]["type"], log[-1]["steps"]), ("summary", 5))

    def test_nothing_left_to_do(self):
        self.train("--steps", 3, "--checkpoint-dir", "ck")
        for steps in (3, 2):
            log = self.train("--steps", steps, "--checkpoint-dir", "ck", "--resume", log="again.jsonl")
            self.assertEqual((of_type(log, "step"), log[-1]["steps"]), ([], 0))
        log = self.train("--steps", 0, "--checkpoint-dir", "none", log="zero.jsonl")
        self.assertEqual([line["type"] for line in log], ["run", "summary"])

    def test_what_stays(self):
        self.write("ck/notes.txt", "mine")
        self.write("ck/step-00000009.tmp/weights", "of an interrupted save")
        self.train("--steps", 7, "--checkpoint-dir", "ck", "--save-every", 2)
        self.assertEqual(self.checkpoints(), ["notes.txt", "step-00000006", "step-00000007"])
        self.train("--steps", 11, "--checkpoint-dir", "ck", "--save-every", 2, "--keep", 0, "--resume")
        self.assertEqual(self.checkpoints(), ["notes.txt", "step-00000006", "step-00000007", "step-00000008", "step-00000010",
                                              "step-00000011"])
        self.train("--steps", 12, "--checkpoint-dir", "ck", "--keep", 1, "--resume")
        self.assertEqual(self.checkpoints(), ["notes.txt", "step-00000012"])

    def test_settings_may_change_on_resume(self):
        self.train("--steps", 2, "--checkpoint-dir", "ck")
        log = self.train("--steps", 4, "--checkpoint-dir", "ck", "--resume", "--batch", 3, "--lr", 0.5, "--data-order", "sequential",
                         "--dropout", 0.1, "--seed", 9, log="more.jsonl")
        self.assertEqual([(s["step"], s["tokens"], s["lr"]) for s in of_type(log, "step")], [(3, 36, 0.5), (4, 36, 0.5)])

    def test_a_run_that_started_from_weights_resumes(self):
        self.train("--steps", 2, "--checkpoint-dir", "first")
        command = ["--data", "text.txt", "--init-from", "first", "--seq-len", 6, "--checkpoint-dir", "second", "--log", "log.jsonl"]
        self.succeed("train", *command, "--steps", 2)
        self.succeed("train", *command, "--steps", 4, "--resume")
        whole = ["--data", "text.txt", "--init-from", "first", "--seq-len", 6, "--log", "whole.jsonl", "--steps", 4]
        self.succeed("train", *whole)
        self.assertEqual(losses(self.log()), losses(self.log("whole.jsonl")))

    def test_a_half_line_of_a_killed_run_is_closed(self):
        self.train("--steps", 1, "--checkpoint-dir", "ck")
        path = self.dir / "log.jsonl"
        path.write_text(path.read_text() + '{"type":"st')
        self.succeed("train", *harness.TINY, "--data", "text.txt", "--log", "log.jsonl", "--steps", 2, "--checkpoint-dir", "ck",
                     "--resume")
        lines = path.read_text().splitlines()
        self.assertEqual(lines.count('{"type":"st'), 1)
        self.assertTrue(lines[lines.index('{"type":"st') + 1].startswith('{"type":"run"'))

    def test_a_save_that_fails(self):
        """Files may not grow over 64 KiB: no checkpoint fits. The run goes on, tells it, and ends with 1."""
        done = subprocess.run(harness.command("train", [*harness.TINY, "--data", "text.txt", "--steps", 3, "--save-every", 1,
                                                        "--checkpoint-dir", "ck", "--log", "log.jsonl"]),
                              cwd=self.dir, capture_output=True, text=True, timeout=harness.LIMIT, restore_signals=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, "step 1 could not be saved")
        self.assertRegex(done.stderr, "step 3 could not be saved")
        self.assertEqual([line["type"] for line in self.log()], ["run", "step", "step", "step", "summary"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
