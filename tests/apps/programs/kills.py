"""Ranks killed or stopped at random moments, from start-up to exit: the job ends in bounded time, nothing of it is left behind,
and what was saved can be resumed. PENSTOCK_KILLS: how many (10 by default); PENSTOCK_KILLS_SEED: which ones;
PENSTOCK_KILLS_FROM: in the part of the run from there on, 0 to 1."""
import os
import random
import shutil
import signal
import subprocess
import time
import unittest

import harness
from failures_test import is_alive, ranks_below

RANKS = 3
DEADLINE = 4
EARLIEST = float(os.environ.get("PENSTOCK_KILLS_FROM") or 0)
# Saves and evaluates often, so that the moments fall into these as well.
RUN = ["--data", "text.txt", "--valid-data", "text.txt", "--eval-every", 3, "--eval-batches", 2, "--pp", RANKS,
       "--log", "log.jsonl", "--checkpoint-dir", "ck", "--save-every", 2, "--keep", 2, "--deadline", DEADLINE]


class Kills(harness.ProgramTest):
    def kill_one(self, draw, longest):
        """Starts a job and sends one rank a signal at a random moment. Returns a line of what happened."""
        scratch = self.dir / "scratch"  # of this job's MPI: session directories, shared memory
        shutil.rmtree(scratch, ignore_errors=True)  # of one that had to be killed
        scratch.mkdir()
        environment = {**os.environ, "OMPI_MCA_orte_tmpdir_base": str(scratch), "TMPDIR": str(scratch),
                       "OMPI_MCA_btl_vader_backing_directory": str(scratch)}
        process = subprocess.Popen(harness.command("train", [*harness.TINY, *RUN, "--steps", 60], RANKS), cwd=self.dir,
                                   env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        number, delay = draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP]), draw.uniform(EARLIEST * longest, longest)
        time.sleep(delay)
        ranks, victim = ranks_below(process.pid, "train"), None
        while not ranks and process.poll() is None:  # not yet started
            ranks = ranks_below(process.pid, "train")
        if ranks:
            victim = draw.randrange(len(ranks))
            try:
                os.kill(ranks[victim], number)
            except ProcessLookupError:
                victim = None
        start = time.monotonic()
        story = f"{number.name} to {victim} of {len(ranks)} after {delay:.2f} s"
        limit = 10 if number == signal.SIGKILL else 10 + DEADLINE
        try:
            _, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            left = [rank for rank in ranks if is_alive(rank)]
            for rank in left:
                os.kill(rank, signal.SIGKILL)
            process.kill()
            self.fail(f"{story}: still running {limit} s later, with {len(left)} ranks: {process.communicate()[1]}")
        seconds = time.monotonic() - start
        story += f": status {process.returncode} in {seconds:.1f} s"
        end = time.monotonic() + 3
        while any(map(is_alive, ranks)) and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual([rank for rank in ranks if is_alive(rank)], [], f"{story}: ranks are left\n{err}")
        self.assertEqual([str(path) for path in scratch.rglob("*") if not path.is_dir()], [], f"{story}: files are left")
        if process.returncode == 0:
            self.assertEqual(self.log()[-1]["type"], "summary", story)
        told = [line for line in err.splitlines() if line.startswith("penstock-train: ")]
        return story, told

    def test_at_random_moments(self):
        seed = int(os.environ.get("PENSTOCK_KILLS_SEED") or random.randrange(10**6))
        draw = random.Random(seed)
        start = time.monotonic()
        self.succeed("train", *harness.TINY, *RUN, "--steps", 60, mpi=RANKS)
        whole = time.monotonic() - start
        for kill in range(int(os.environ.get("PENSTOCK_KILLS") or 10)):
            with self.subTest(seed=seed, kill=kill):
                shutil.rmtree(self.dir / "ck", ignore_errors=True)
                (self.dir / "log.jsonl").unlink(missing_ok=True)
                try:
                    story, told = self.kill_one(draw, whole)
                except AssertionError as e:
                    print(f"{kill}: {e}", flush=True)  # at once, in a long test
                    raise
                saved = sorted(int(path.parent.name[5:]) for path in self.dir.glob("ck/step-*/manifest.json"))
                print(f"{kill}: {story}; saved {saved}", *told, sep="\n    ", flush=True)
                if saved:  # what is there is whole
                    self.succeed("train", *harness.TINY, *RUN, "--ranks", RANKS, "--resume", "--steps", saved[-1] + 1)
                    left = [path.name for path in self.dir.glob("ck/*") if not path.name.startswith("step-")]
                    self.assertEqual(left, [], story)


if __name__ == "__main__":
    unittest.main(verbosity=2)
