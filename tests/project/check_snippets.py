"""C++ code in the documents is code of the examples: it is compiled and run there.

A block names its file after the language: ```cpp examples/NAME/main.cpp. Its lines stand in that file, one after the
other, indented as one likes; a line `// ...` stands for what is left out between two parts of it.
"""
import pathlib
import re
from typing import List, Tuple

import sources
from sources import Violation

BLOCK = re.compile(r"^```cpp\b[ \t]*(\S*)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
GAP = "// ..."


def parts(code: str) -> List[Tuple[int, List[str]]]:
    """The runs of lines between gaps, each with the number of its first line within the code."""
    found, current, first = [], [], 0
    for number, line in enumerate(code.splitlines() + [GAP]):
        if line.strip() == GAP:
            if any(current):
                found.append((first, current))
            current, first = [], number + 1
        else:
            current.append(line.strip())
    return found


def find(lines: List[str], part: List[str], start: int) -> int:
    """Where the part ends in the lines, from `start` on; -1 when it is not there."""
    for i in range(start, len(lines) - len(part) + 1):
        if lines[i:i + len(part)] == part:
            return i + len(part)
    return -1


def check_document(root: pathlib.Path, path: str, text: str) -> List[Violation]:
    found = []
    for block in BLOCK.finditer(text):
        name, code = block.groups()
        line = text.count("\n", 0, block.start()) + 1
        if not name or not (root / name).is_file():
            found.append(Violation(path, line, f"C++ code without its file ({name or 'none named'}): ```cpp PATH"))
            continue
        lines = [one.strip() for one in (root / name).read_text().splitlines()]
        place = 0
        for first, part in parts(code):
            while part and not part[0]:
                part, first = part[1:], first + 1
            while part and not part[-1]:
                part = part[:-1]
            place = find(lines, part, place)
            if place < 0:
                found.append(Violation(path, line + 1 + first, f"not in {name}, or not there in this order: {part[0]}"))
                break
    return found


def check(root):
    found = []
    for source in sources.read(root, [p for p in sources.listed(root) if p.endswith(".md")]):
        found += check_document(root, source.path, source.text)
    return found


if __name__ == "__main__":
    sources.main(check, "snippets")
