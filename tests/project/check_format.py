"""All C++ files are as clang-format writes them, by the .clang-format in the root.

Version 14 is the reference: it is used where the system has it by that name, otherwise any clang-format from 14 on. A
missing or older formatter fails the check; a check that did not look must not pass.
"""
import pathlib
import re
import shutil
import subprocess
import sys
from typing import List, Optional, Tuple

import sources
from sources import Violation

REFERENCE = 14
CANDIDATES = [f"clang-format-{REFERENCE}", "clang-format"]


def version(program: str) -> int:
    """Major version, 0 when the program does not say."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    match = re.search(r"version (\d+)", done.stdout)
    return int(match.group(1)) if match else 0


def find(candidates=None) -> Tuple[Optional[str], str]:
    """The formatter to use, or None and why there is none."""
    seen = []
    for name in candidates or CANDIDATES:
        program = shutil.which(name)
        if program:
            if version(program) >= REFERENCE:
                return program, ""
            seen.append(f"{name} is version {version(program)}")
    return None, (f"clang-format {REFERENCE} or later is needed ({', '.join(seen) or 'none found'}); "
                  "scripts/test installs it")


def check_files(root: pathlib.Path, paths: List[str], candidates=None) -> List[Violation]:
    program, why = find(candidates)
    if program is None:
        return [Violation(".clang-format", 0, why)]
    print(f"{program}, version {version(program)}, {len(paths)} files")
    found = []
    for first in range(0, len(paths), 64):
        done = subprocess.run([program, "--dry-run", "--Werror", "--style=file", *paths[first:first + 64]],
                              cwd=root, capture_output=True, text=True)
        places = re.findall(r"^(\S+?):(\d+):\d+: error: ", done.stderr, re.MULTILINE)
        found += [Violation(path, int(line), "not as clang-format writes it") for path, line in places]
        if done.returncode != 0 and not places:
            found.append(Violation(".clang-format", 0, f"{program} failed: {done.stderr.strip()[:500]}"))
    # One line a file is enough: `clang-format -i FILE` mends them all.
    first_of = {}
    for violation in found:
        first_of.setdefault(violation.path, violation)
    return list(first_of.values())


def check(root):
    return check_files(root, [p for p in sources.listed(root) if p.endswith(sources.CPP)])


if __name__ == "__main__":
    sources.main(check, "format")
