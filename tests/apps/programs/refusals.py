"""Runs tables of what must be refused: exit status 2, one line on stderr that names flag or file and value, nothing on
stdout, no file made, changed or left behind; on one rank, and once for all ranks under mpirun.

A case is (arguments, words that the line must hold), or (arguments, words, "alone") where it is wrong on one rank only.
Each run has a directory of its own, with the files of `lay`.
"""
import concurrent.futures
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile

import harness

AT_ONCE = 4
RANKS = 2
IDS = struct.pack("<50H", *range(50))


def llmc(magic, version, tokens, ids):
    return struct.pack("<256i", magic, version, tokens, *[0] * 253) + ids


# Names to contents; text stands for its UTF-8.
FILES = {
    "text.txt": harness.text(1500), "empty.txt": "", "folder/a.txt": "pipe" * 100, "mixed/a.txt": "a", "mixed/b.bin": IDS,
    # TOML
    "bad.toml": "batch = 4\nlr = = 3\n", "unknown.toml": "lerning_rate = 1\n", "zero.toml": "seed = 1\nbatch = 0\n",
    "negative.toml": "batch = -1\n", "nan.toml": "lr = nan\n", "inf.toml": "lr = inf\n", "far.toml": "lr = 1e999\n",
    "huge.toml": "seed = 9223372036854775808\n", "broken.toml": "batch = 2.5\n", "size.toml": 'batch = "1M"\n',
    "empty.toml": 'model = ""\n', "table.toml": "[model]\nlayers = 3\n", "date.toml": "seed = 1979-05-27\n",
    "twice.toml": "batch = 4\nbatch = 5\n", "dashes.toml": "micro-batch = 4\nmicro_batch = 4\n", "list.toml": "batch = [4, 5]\n",
    "nested.toml": 'data = [["a"]]\n', "deep.toml": "data = " + "[" * 5000 + "]" * 5000, "inner.toml": 'config = "zero.toml"\n',
    "case.toml": "Batch = 4\n", "number.toml": "resume = 1\n", "word.toml": 'dry-run = "true"\n', "later.toml": "zero = 2\n",
    "nul.toml": b"batch = 4\x00\n", "escaped.toml": 'seed = 1\nmodel = "a\\u0000b"\n', "bytes.toml": b'seed = 1\nmodel = "\xff\xfe"\n',
    "mark.toml": b"\xef\xbb\xbfbatch = 0\n", "crlf.toml": "seed = 1\r\nbatch = 0\r\n", "wide.toml": "seed = 1\nlr = １\n",
    "prose.toml": "This is no TOML.\n",
    # models
    "experts.toml": "experts = 4\n", "flat.toml": "layers = 0\n", "vast.toml": "layers = 2\nhidden = 1073741824\n",
    "tall.toml": "layers = 2000000000\n", "uneven.toml": "hidden = 18\nheads = 4\n", "flag.toml": "batch = 4\n",
    # token files
    "odd.bin": b"abc", "text.bin": harness.text(1500), "ids.bin": struct.pack("<50H", *[300] * 50), "empty.bin": "",
    "version.bin": llmc(20240520, 2, 50, IDS), "cut.bin": llmc(20240520, 1, 60, IDS), "more.bin": llmc(20240520, 1, 40, IDS),
    "minus.bin": llmc(20240520, 1, -5, IDS), "none.bin": llmc(20240520, 1, 0, b""), "halves.bin": llmc(20240801, 7, 50, IDS),
    "head.bin": llmc(20240520, 1, 50, IDS)[:500], "swapped.bin": struct.pack(">256i", 20240520, 1, 50, *[0] * 253) + IDS,
    # schedules
    "bad.csv": "0X0\n", "json.csv": '{"a": 1}\n', "empty.csv": "", "blank.csv": " \n,,\n", "nul.csv": b"0F0\x00,0B0\n",
    "bytes.csv": b"0F0,0B0\n0F1,\xff\n", "huge.csv": "0F0,0B999999999999\n", "short.csv": "0F0,0F1,0B0,0B1\n",
    "replicas.csv": "0F0,1F0,1B0,0B0\n0F1,1F1,1B1,0B1\n", "again.csv": "0F0,0RECOMPUTE0,0B0\n",
    "locks.csv": "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", "tower.csv": "999999999F0,999999999B0\n",
    "pair.csv": "0F0,0B0\n1F0,1B0\n",
    # Hugging Face directories
    "prose/config.json": "no JSON", "array/config.json": "[]", "cutjson/config.json": '{"model_type": "gpt2"',
    "nothing/config.json": "{}", "weightless/config.json":
        '{"model_type": "gpt2", "n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 12, "vocab_size": 256}',
    "foreign/config.json": '{"model_type": "bert"}',
    "minus/config.json": '{"model_type": "gpt2", "n_embd": -16, "n_head": 2, "n_layer": 2, "n_positions": 12, "vocab_size": 256}',
    "manifest/manifest.json": "{", "other/manifest.json": '{"format": "else"}', "listed/manifest.json": "[]",
}
for kind, content in (("prose", "no tensors"), ("cut", b"\x10\0\0\0\0\0\0\0{}"), ("far", b"\xff" * 16), ("hollow", "")):
    FILES[f"weights-{kind}/config.json"] = FILES["weightless/config.json"]
    FILES[f"weights-{kind}/model.safetensors"] = content


def lay(directory):
    """The files of a run, and what is no file."""
    for name, content in FILES.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (directory / "hollow").mkdir()
    (directory / "folder.toml").mkdir()
    (directory / "folder.csv").mkdir()
    os.mkfifo(directory / "pipe")
    os.mkfifo(directory / "pipe.csv")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(".", os.O_RDONLY)  # a socket's path must be short, whatever TMPDIR is
        try:
            os.chdir(directory)
            listener.bind("socket")
        finally:
            os.fchdir(here)
            os.close(here)
    (directory / "nowhere").symlink_to("missing")
    (directory / "loop").symlink_to("loop")
    with open(directory / "sparse.txt", "wb") as sparse:
        sparse.truncate(1 << 42)


def state(directory):
    """All names below a directory, with contents (of what is not vast)."""
    found = {}
    for path in sorted(directory.rglob("*")):
        regular = path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 30
        found[str(path.relative_to(directory))] = path.read_bytes() if regular else None
    return found


class RefusalTest(harness.ProgramTest):
    def fault(self, program, arguments, words, mpi):
        """What is wrong with a refusal; None when nothing is."""
        top = pathlib.Path(tempfile.mkdtemp(dir=self.dir))
        work, scratch = top / "work", top / "tmp"
        work.mkdir()
        scratch.mkdir()
        lay(work)
        before = state(work)
        environment = dict(os.environ, TMPDIR=str(scratch), OMPI_MCA_btl_vader_backing_directory=str(scratch))
        line = harness.command(program, [], mpi) + [a if isinstance(a, bytes) else str(a) for a in arguments]
        try:
            done = subprocess.run(line, cwd=work, env=environment, capture_output=True, timeout=harness.LIMIT,
                                  stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return "it hangs"
        err = done.stderr.decode()  # must be UTF-8, whatever was typed
        told = [text for text in err.splitlines() if text.startswith(f"penstock-{program}: ")]
        faults = []
        if done.returncode != 2:
            faults.append(f"exit status {done.returncode}")
        if len(told) != 1 or (not mpi and err.count("\n") != 1):
            faults.append(f"{len(told)} lines told")
        faults += [f"does not say '{word}'" for word in words if not told or word not in told[0]]
        if done.stdout:
            faults.append("prints results")
        after = state(work)
        changed = {name for name in before.keys() | after.keys() if before.get(name, 0) != after.get(name, 0)}
        if changed:
            faults.append(f"makes or changes {sorted(changed)}")
        left = [name for name, content in state(scratch).items() if content is not None]
        if left:
            faults.append(f"leaves {left}")
        shutil.rmtree(top)
        return f"{', '.join(faults)}: {done.stdout.decode(errors='replace')}{err}" if faults else None

    def refuse(self, program, cases, base=(), under_mpi=()):
        """Runs a table on one rank and under mpirun; `base` stands before each case's arguments, `under_mpi` too for mpirun,
        less the flags that the case gives itself."""
        runs = []
        for arguments, words, *where in cases:
            for mpi, flags in ((None, base), (RANKS, [*base, *under_mpi])):
                if where != ["alone"] or not mpi:
                    runs.append((program, [*without(flags, arguments), *arguments], words, mpi))
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            faults = pool.map(lambda run: self.fault(*run), runs)
        for (_, arguments, _, mpi), fault in zip(runs, faults):
            with self.subTest(program=program, arguments=arguments, mpi=mpi):
                self.assertIsNone(fault)


def without(flags, given):
    """Pairs of flag and value, less those whose flag is among `given`."""
    for flag, value in zip(flags[::2], flags[1::2]):
        if flag not in [str(a).partition("=")[0] for a in given if not isinstance(a, bytes)]:
            yield flag
            yield value
