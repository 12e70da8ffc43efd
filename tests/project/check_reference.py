"""Doxygen makes the reference of the public headers (docs/reference/Doxyfile) without a warning.

PENSTOCK_REFERENCE_OUTPUT names the folder that it is left in; without, it is thrown away. No doxygen fails the check.
"""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from typing import List

import sources
from sources import Violation

DOXYFILE = "docs/reference/Doxyfile"
COMPLAINT = re.compile(r"^(\S+?):(\d+): (?:warning|error): (.*)$", re.MULTILINE)


def run(root: pathlib.Path, output: str, program: str) -> List[Violation]:
    done = subprocess.run([program, DOXYFILE], cwd=root, capture_output=True, text=True,
                          env={**os.environ, "PENSTOCK_REFERENCE_OUTPUT": output})
    text = done.stdout + done.stderr
    found = [Violation(os.path.relpath(path, root) if os.path.isabs(path) else path, int(line), message)
             for path, line, message in COMPLAINT.findall(text)]
    if not found and (done.returncode != 0 or not (pathlib.Path(output) / "html" / "index.html").exists()):
        found.append(Violation(DOXYFILE, 0, f"doxygen failed with status {done.returncode}: {text.strip()[:500]}"))
    return found


def check(root: pathlib.Path, program: str = "doxygen") -> List[Violation]:
    if shutil.which(program) is None:
        return [Violation(DOXYFILE, 0, f"{program} is needed; scripts/test installs it")]
    output = os.environ.get("PENSTOCK_REFERENCE_OUTPUT")
    if output:
        pathlib.Path(output).mkdir(parents=True, exist_ok=True)
        return run(root, output, program)
    with tempfile.TemporaryDirectory() as folder:
        return run(root, folder, program)


if __name__ == "__main__":
    sources.main(check, "reference")
