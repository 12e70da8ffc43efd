"""The files that the project's own checks look at, and how a check reports.

A check is a function from a list of Source to a list of Violation, so that the self-test can hand it planted files.
"""
import os
import pathlib
import subprocess
import sys
from typing import Callable, Iterable, List, NamedTuple

CPP = (".h", ".hpp", ".cpp", ".cu", ".cuh")
SCRIPT = (".py", ".sh", ".cmake")
NOT_OURS = {".git", "build", "runs", "install", "__pycache__", ".cache"}


class Source(NamedTuple):
    path: str  # from the root, with slashes
    text: str

    @property
    def lines(self) -> List[str]:
        return self.text.splitlines()


class Violation(NamedTuple):
    path: str
    line: int  # from 1; 0 is the file as a whole
    message: str


def listed(root: pathlib.Path) -> List[str]:
    """Paths that git tracks or would track; without git, all files outside the build folders."""
    command = ["git", "-c", f"safe.directory={root}", "-C", str(root), "ls-files", "-z", "--cached", "--others",
               "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True, check=True)
        names = [name for name in done.stdout.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = []
    if not names:
        for folder, folders, files in os.walk(root):
            folders[:] = sorted(set(folders) - NOT_OURS)
            names += [str((pathlib.Path(folder) / file).relative_to(root)) for file in files]
    return sorted({name for name in names if (root / name).is_file()})


def is_script(path: str, text: str) -> bool:
    return path.endswith(SCRIPT) or path.endswith("CMakeLists.txt") or text.startswith("#!")


def read(root: pathlib.Path, paths: Iterable[str]) -> List[Source]:
    sources = []
    for path in paths:
        try:
            sources.append(Source(path, (root / path).read_bytes().decode("utf-8")))
        except UnicodeDecodeError:
            continue  # not a text of ours
    return sources


def main(check: Callable[[pathlib.Path], List[Violation]], what: str) -> None:
    """Runs a check on the root given as the only argument, prints what it found, exits 0 or 1."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} ROOT")
    found = check(pathlib.Path(sys.argv[1]).resolve())
    for violation in found:
        print(f"{violation.path}:{violation.line}: {violation.message}")
    print(f"{what}: {len(found)} violation{'' if len(found) == 1 else 's'}")
    sys.exit(1 if found else 0)
