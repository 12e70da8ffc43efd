"""Runs the programs as their users do: alone, as threads (--ranks), or under mpirun; reads what they leave.

The environment says where they are: PENSTOCK_BIN, a directory, and PENSTOCK_MPI_LAUNCH, the launcher with its arguments up
to the number of ranks, between semicolons.
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest

BIN = pathlib.Path(os.environ["PENSTOCK_BIN"])
LAUNCH = os.environ["PENSTOCK_MPI_LAUNCH"].split(";")
LIMIT = 120  # seconds that a command may take on a loaded machine

# A model that trains in milliseconds.
TINY = ["--layers", 4, "--hidden", 16, "--heads", 2, "--seq-len", 12]


def text(length, seed=1):
    """`length` bytes of words that a model can learn something from."""
    words, state = [], seed
    while sum(len(w) + 1 for w in words) < length:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        words.append(("pipe", "stage", "bubble", "micro", "batch", "rank", "flow")[(state >> 33) % 7])
    return (" ".join(words) + " ")[:length]


class Done:
    """What a command came to."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def lines_of(self, program):
        """Lines on stderr that the program itself wrote; a launcher adds its own."""
        return [line for line in self.err.splitlines() if line.startswith(f"penstock-{program}: ")]


def command(program, arguments, mpi=None):
    line = [str(BIN / f"penstock-{program}"), *map(str, arguments)]
    return [*LAUNCH, str(mpi), *line] if mpi else line


class ProgramTest(unittest.TestCase):
    """Each test has a directory of its own, in which the programs run."""

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="penstock-test-"))
        self.addCleanup(shutil.rmtree, self.dir)
        self.write("text.txt", text(1500))

    def write(self, name, content):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content)
        return path

    def run_program(self, program, *arguments, mpi=None, **options):
        done = subprocess.run(command(program, arguments, mpi), cwd=self.dir, capture_output=True, text=True,
                              timeout=LIMIT, **options)
        return Done(done.returncode, done.stdout, done.stderr)

    def succeed(self, program, *arguments, mpi=None):
        done = self.run_program(program, *arguments, mpi=mpi)
        self.assertEqual(done.status, 0, f"penstock-{program} {arguments}:\n{done.out}{done.err}")
        return done

    def train(self, *arguments, mpi=None, data="text.txt", log="log.jsonl"):
        """Trains the tiny model; returns the log's lines."""
        self.succeed("train", *TINY, "--data", data, "--log", log, *arguments, mpi=mpi)
        return self.log(log)

    def log(self, name="log.jsonl"):
        return [json.loads(line) for line in (self.dir / name).read_text().splitlines()]

    def files(self):
        return sorted(str(p.relative_to(self.dir)) for p in self.dir.rglob("*"))


def of_type(log, kind):
    return [line for line in log if line["type"] == kind]


def losses(log):
    """What must not depend on the layout, of a log: exact numbers of its steps and evaluations."""
    keys = ("type", "step", "loss", "grad_norm", "lr", "tokens", "perplexity")
    return [tuple(line.get(k) for k in keys) for line in log if line["type"] in ("step", "eval")]


class Tensors:
    """A safetensors file: names to (shape, bytes), and the metadata."""

    def __init__(self, path):
        data = pathlib.Path(path).read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + size])
        self.metadata = header.pop("__metadata__", {})
        self.shape = {name: entry["shape"] for name, entry in header.items()}
        self.dtype = {name: entry["dtype"] for name, entry in header.items()}
        self.bytes = {name: data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]]
                      for name, entry in header.items()}

    def floats(self, name):
        assert self.dtype[name] == "F32", self.dtype[name]
        return struct.unpack(f"<{len(self.bytes[name]) // 4}f", self.bytes[name])


def dumped_parameters(directory):
    """All parameters of --dump-parameters, whole, from the files of all ranks: name to (shape, bytes)."""
    whole = {}
    for path in sorted(pathlib.Path(directory).glob("rank-*.safetensors")):
        tensors = Tensors(path)
        for name in tensors.bytes:
            place = json.loads(tensors.metadata[name])
            assert place["shape"] == tensors.shape[name] and not any(place["offset"]), (name, place)
            piece = (place["shape"], tensors.bytes[name])
            assert whole.setdefault(name, piece) == piece, f"{name} differs between ranks"
    return whole
