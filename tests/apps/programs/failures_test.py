"""Signals, and ranks that fail, die or stop: every rank ends in bounded time, with the right status, and says who it was."""
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

import harness
from harness import of_type

LONG = ["--steps", 1000000, "--log", "log.jsonl", "--data", "text.txt"]


def ranks_below(launcher, program):
    """Process ids of the ranks that a launcher has started, by rank."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            name = os.path.basename(os.readlink(path / "exe"))
            if parent != launcher or name != f"penstock-{program}":
                continue
            environment = (path / "environ").read_bytes().split(b"\0")
            rank = next(int(e.split(b"=")[1]) for e in environment if e.startswith(b"OMPI_COMM_WORLD_RANK="))
        except (OSError, ValueError, StopIteration):
            continue
        found.append((rank, int(path.name)))
    return [process for _, process in sorted(found)]


def is_alive(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Failures(harness.ProgramTest):
    def start(self, *arguments, mpi=None):
        """Starts a long run; returns once a few steps are in the log."""
        (self.dir / "log.jsonl").unlink(missing_ok=True)
        process = subprocess.Popen(harness.command("train", [*harness.TINY, *LONG, *arguments], mpi), cwd=self.dir,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        end = time.monotonic() + harness.LIMIT
        while not (self.dir / "log.jsonl").exists() or (self.dir / "log.jsonl").read_text().count('"type":"step"') < 3:
            self.assertIsNone(process.poll(), process.communicate() if process.poll() is not None else "")
            self.assertLess(time.monotonic(), end, "no step within the time")
            time.sleep(0.02)
        return process

    def end(self, process, limit):
        start = time.monotonic()
        out, err = process.communicate(timeout=harness.LIMIT)
        self.assertLess(time.monotonic() - start, limit, err)
        return harness.Done(process.returncode, out, err)

    def all_are_gone(self, processes):
        end = time.monotonic() + 5
        while any(map(is_alive, processes)) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual([p for p in processes if is_alive(p)], [])

    def test_a_signal_ends_the_run_after_its_step(self):
        for number, mpi in ((signal.SIGINT, None), (signal.SIGTERM, None), (signal.SIGINT, 2), (signal.SIGTERM, 2)):
            with self.subTest(signal=number, mpi=mpi):
                directory = f"ck-{number}-{mpi}"
                layout = ["--pp", 2] if mpi else ["--pp", 2, "--ranks", 2]
                process = self.start(*layout, "--checkpoint-dir", directory, mpi=mpi)
                ranks = ranks_below(process.pid, "train") if mpi else [process.pid]
                self.assertEqual(len(ranks), mpi or 1)
                os.kill(ranks[-1], number)  # not the one that writes the log
                done = self.end(process, 20)
                self.assertEqual(done.status, 128 + number, done.err)
                log = self.log()
                last = of_type(log, "step")[-1]["step"]
                self.assertEqual([line["type"] for line in log[-2:]], ["checkpoint", "summary"])
                self.assertEqual((log[-2]["step"], log[-1]["steps"]), (last, last))
                self.succeed("train", *harness.TINY, "--data", "text.txt", "--checkpoint-dir", directory, "--resume", "--steps",
                             last + 1)

    def test_a_second_signal_ends_it_at_once(self):
        process = subprocess.Popen(harness.command("train", ["--data", "text.txt", "--steps", 1, "--batch", 4000, "--seq-len", 128,
                                                             "--log", "slow.jsonl", "--checkpoint-dir", "ck"]),
                                   cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        end = time.monotonic() + harness.LIMIT
        while not (self.dir / "slow.jsonl").exists() or not (self.dir / "slow.jsonl").read_text():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.end(process, 5).status, 130)
        self.assertEqual([line["type"] for line in self.log("slow.jsonl")], ["run"])
        self.assertFalse((self.dir / "ck").exists())

    def test_a_rank_that_throws(self):
        """The file of rank 1 cannot be written, which shows after the last step alone."""
        (self.dir / "p/rank-1.safetensors/full").mkdir(parents=True)
        arguments = [*harness.TINY, "--data", "text.txt", "--steps", 2, "--pp", 3, "--dump-parameters", "p"]
        done = self.run_program("train", *arguments, "--ranks", 3)
        self.assertEqual(done.status, 1, done.err)
        self.assertEqual(len(done.lines_of("train")), 1, done.err)
        self.assertRegex(done.lines_of("train")[0], r"^penstock-train: rank 1: .*rank-1\.safetensors")
        done = self.run_program("train", *arguments, mpi=3)
        self.assertEqual(done.status, 1, done.err)
        self.assertTrue(any(line.startswith("penstock-train: rank 1: ") for line in done.lines_of("train")), done.err)
        self.assertTrue(all("rank-1.safetensors" in line for line in done.lines_of("train")), done.err)

    def test_a_rank_that_dies(self):
        process = self.start("--pp", 3, mpi=3)
        ranks = ranks_below(process.pid, "train")
        self.assertEqual(len(ranks), 3)
        os.kill(ranks[1], signal.SIGKILL)
        done = self.end(process, 10)
        self.assertNotEqual(done.status, 0)
        told = done.lines_of("train")
        self.assertEqual(len(told), 2, done.err)
        for rank in (0, 2):
            self.assertTrue(any(re.match(rf"penstock-train: rank {rank}\b.*: rank 1 on \S+ died: ", line) for line in told),
                            done.err)
        self.all_are_gone(ranks)

    def test_ranks_that_were_started_differently(self):
        def job(first, second):
            line = harness.command("train", [*harness.TINY, "--data", "text.txt", "--pp", 2, *first], 1)
            line += [":", "-n", "1", *harness.command("train", [*harness.TINY, "--data", "text.txt", "--pp", 2, *second])]
            done = subprocess.run(line, cwd=self.dir, capture_output=True, text=True, timeout=harness.LIMIT)
            return harness.Done(done.returncode, done.stdout, done.stderr)

        done = job(["--steps", 2, "--log", "log.jsonl"], ["--steps", 3, "--log", "log.jsonl"])
        self.assertEqual(done.status, 2, done.err)
        self.assertEqual(len(done.lines_of("train")), 1, done.err)
        self.assertRegex(done.lines_of("train")[0], r"--steps: rank 1 on \S+ has 3, rank 0 has 2")
        self.assertFalse((self.dir / "log.jsonl").exists())
        done = job(["--steps", 2], ["--steps", "two"])  # wrong in one alone
        self.assertEqual((done.status, len(done.lines_of("train"))), (2, 1), done.err)
        self.assertEqual(job(["--steps", 2], ["--steps", 2]).status, 0)

    def test_ranks_that_see_other_files(self):
        """Each rank has a working directory of its own, as machines have their own disks."""
        for place in ("a", "b"):
            self.write(f"{place}/text.txt", harness.text(1500))

        def job(*arguments):
            own = harness.command("train", [*harness.TINY, "--data", "text.txt", "--steps", 2, "--pp", 2, *arguments])
            line = [*harness.LAUNCH, "1", "--wdir", self.dir / "a", *own, ":", "-n", "1", "--wdir", self.dir / "b", *own]
            before = self.files()
            done = subprocess.run(line, capture_output=True, text=True, timeout=harness.LIMIT)
            done = harness.Done(done.returncode, done.stdout, done.stderr)
            return done, set(self.files()) - set(before)

        done, made = job()
        self.assertEqual((done.status, made), (0, set()), done.err)  # the same content in two places is the same
        done, made = job("--checkpoint-dir", "new/ck", "--log", "log.jsonl")
        self.assertEqual((done.status, len(done.lines_of("train")), made), (2, 1, set()), done.err)
        self.assertRegex(done.lines_of("train")[0], r"--checkpoint-dir new/ck: rank 1 on \S+ cannot see there")
        self.assertEqual(job("--checkpoint-dir", self.dir / "shared")[0].status, 0)
        self.write("b/text.txt", harness.text(1500, seed=2))
        done, made = job("--log", "log.jsonl")
        self.assertEqual((done.status, len(done.lines_of("train")), made), (2, 1, set()), done.err)
        self.assertRegex(done.lines_of("train")[0], r"--data text.txt: rank 1 on \S+ has 1500 tokens .*, rank 0 ")

    def test_a_rank_that_stops_answering(self):
        process = self.start("--pp", 2, "--deadline", 3, mpi=2)
        ranks = ranks_below(process.pid, "train")
        os.kill(ranks[1], signal.SIGSTOP)
        done = self.end(process, 20)
        self.assertEqual(done.status, 1, done.err)
        self.assertTrue(any("rank 1" in line and "3 s" in line for line in done.lines_of("train")), done.err)
        self.assertRegex(done.err, r"rank 0.*: rank 1 on \S+ has not answered for 3 s")  # not only waited for in vain
        self.all_are_gone(ranks)


if __name__ == "__main__":
    unittest.main(verbosity=2)
