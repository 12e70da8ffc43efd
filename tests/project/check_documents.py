"""What the documents name is there: relative links, and files and folders of the house in code type.

A path with NAME in it stands for many and is not looked up.
"""
import pathlib
import re
from typing import List

import sources
from sources import Violation

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(#[^)\s]*)?\)")
NAMED = re.compile(r"`((?:scripts|docs|examples|cmake|bench|tests|core|kernels|autograd|nn|data|parallel|models|apps)/"
                   r"[A-Za-z0-9_./-]*)`")


def check_document(root: pathlib.Path, path: str, text: str) -> List[Violation]:
    found = []
    folder = (root / path).parent
    for number, line in enumerate(text.splitlines(), 1):
        for match in LINK.finditer(line):
            target = match.group(1)
            if not re.match(r"^[a-z]+:", target) and not (folder / target).exists():
                found.append(Violation(path, number, f"the link leads nowhere: {target}"))
        for match in NAMED.finditer(line):
            if "NAME" not in match.group(1) and not (root / match.group(1)).exists():
                found.append(Violation(path, number, f"named but not there: {match.group(1)}"))
    return found


def check(root):
    found = []
    for source in sources.read(root, [p for p in sources.listed(root) if p.endswith(".md")]):
        found += check_document(root, source.path, source.text)
    return found


if __name__ == "__main__":
    sources.main(check, "documents")
