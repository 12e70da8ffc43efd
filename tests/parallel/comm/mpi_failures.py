#!/usr/bin/env python3
"""Failures of one process under mpirun, seen from outside: within what time the job ends, with which status, and what the
others say. Usage: mpi_failures.py TEST_COMM_MPI MPIRUN [ARGUMENTS...] -n"""
import os
import re
import subprocess
import sys
import time

program, launch = sys.argv[1], sys.argv[2:]
problems = []


def expect(name, condition, output):
    print(("ok      " if condition else "FAILED  ") + name, flush=True)
    if not condition:
        problems.append(name)
        print(output, flush=True)


def run(command, **environment):
    start = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                          env={**os.environ, **environment})
    return done.returncode, done.stdout, time.monotonic() - start


def job(ranks, *arguments):
    return run([*launch, str(ranks), program, *arguments])


# Rank 1 of 4 fails; rank 0 waits in a receive, rank 2 in a send, rank 3 in a barrier of a sub-group.
status, output, seconds = job(4, "4", "abort")
for rank, where in ((0, "rank 0, 1RECV_F0: "), (2, "rank 2, 1SEND_B0: "), (3, "rank 3, barrier: ")):
    expect(f"abort: rank {rank} is told why", f"rank {rank} released: {where}rank 1: a planned failure" in output, output)
expect(f"abort: ends with an error ({status}, {seconds:.1f} s)", status != 0 and seconds < 10, output)

status, output, seconds = job(4, "4", "throw")
expect("throw: the exception's own words are said", "ended: a planned exception" in output, output)
for rank in (0, 2, 3):
    expect(f"throw: rank {rank} is released", re.search(rf"rank {rank} released: .*rank 1: an exception ends", output), output)
expect(f"throw: ends with an error ({status}, {seconds:.1f} s)", status != 0 and seconds < 10, output)

status, output, seconds = job(4, "4", "exit")
expect(f"exit: the launcher ends the others ({status}, {seconds:.1f} s)", status != 0 and seconds < 10, output)
expect("exit: nobody went on", "was not released" not in output, output)

for mode in ("silent", "absent"):
    status, output, seconds = job(4, "4", mode)
    expect(f"{mode}: rank 0 names whom it waited for",
           "rank 0 released: rank 0, 1RECV_F0: waited 1.5 s for a message from rank 1" in output, output)
    expect(f"{mode}: ends with an error ({status}, {seconds:.1f} s)", status != 0 and seconds < 20, output)

# The same by `launch`, which owns the job: the others are told, and the exception reaches the caller as it was.
status, output, seconds = job(3, "3", "launch-well")
expect("launch: runs the body as every rank", status == 0 and all(f"rank {r} done" in output for r in range(3)), output)
status, output, seconds = job(3, "3", "launch")
for rank in (0, 1):
    expect(f"launch: rank {rank} is told why", re.search(rf"rank {rank} released: .*rank 2: a planned exception", output), output)
expect("launch: the caller gets the exception", "ended: a planned exception" in output, output)
expect(f"launch: ends with an error ({status}, {seconds:.1f} s)", status != 0 and seconds < 10, output)
status, output, seconds = job(2, "2", "launch-threads")
expect("launch: no threads under mpirun", status != 0 and "--ranks 2: under mpirun" in output and "done" not in output, output)

# A test that cannot fail is none: the wrong number of ranks, and no launcher at all.
status, output, _ = job(2, "3")
expect("a wrong number of ranks is refused", status != 0 and "passed" not in output and "2 ranks where 3" in output, output)
status, output, _ = run([program, "1"])
expect("a start without a launcher is refused", status != 0 and "passed" not in output, output)

# Known fault 44: a launcher that the MPI library does not understand.
for variables in ({"PMI_SIZE": "2", "PMI_RANK": "0"}, {"OMPI_COMM_WORLD_SIZE": "2"},
                  {"SLURM_NTASKS": "2", "SLURM_PROCID": "0"}, {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}):
    status, output, seconds = run([program, "2"], **variables)
    first = next(iter(variables))
    expect(f"{first}: the contradiction is told ({seconds:.1f} s)",
           status != 0 and seconds < 10 and f"there are 2 ranks ({first}=2), MPI sees 1" in output, output)

print(f"{len(problems)} failed" if problems else "passed: failures of one process end the job as they must")
sys.exit(1 if problems else 0)
