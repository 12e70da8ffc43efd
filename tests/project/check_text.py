"""The shape of a file: a comment that opens it, at most 600 lines, no notes of unfinished work, clean white space."""
import re
from typing import List

import sources
from sources import Source, Violation

LONGEST = 600
MARKERS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK"]) + r")\b")
WHERE_LENGTH_COUNTS = sources.CPP + (".py", ".cmake")


def opening(file: Source) -> str:
    """The first line that is not a #! line; empty for an empty file."""
    for line in file.lines:
        if not line.startswith("#!") and line.strip():
            return line.strip()
    return ""


def has_opening_comment(file: Source) -> bool:
    first = opening(file)
    if file.path.endswith(sources.CPP):
        return bool(re.match(r"^(///?|/\*)\s*\S", first)) or first == "/*"
    if file.path.endswith(".py"):
        return first.startswith(('"""', "#", 'r"""'))
    return first.startswith("#")


def check_sources(files: List[Source]) -> List[Violation]:
    found = []
    for file in files:
        code = file.path.endswith(sources.CPP) or sources.is_script(file.path, file.text)
        if code and not has_opening_comment(file):
            found.append(Violation(file.path, 1, "a file opens with a comment that says what it is for and why"))
        if file.path.endswith(WHERE_LENGTH_COUNTS) and len(file.lines) > LONGEST:
            found.append(Violation(file.path, LONGEST + 1, f"{len(file.lines)} lines; {LONGEST} is the most"))
        for number, line in enumerate(file.lines, 1):
            match = MARKERS.search(line)
            if match:
                found.append(Violation(file.path, number, f"{match.group(0)}: finish it, or file an issue"))
            if line != line.rstrip() and not file.path.endswith(".md"):
                found.append(Violation(file.path, number, "white space at the end of the line"))
        if file.text and not file.text.endswith("\n"):
            found.append(Violation(file.path, len(file.lines), "no line end at the end of the file"))
    return found


def check(root):
    files = sources.read(root, sources.listed(root))
    ours = [f for f in files if f.path.endswith(sources.CPP + (".md", ".toml")) or sources.is_script(f.path, f.text)]
    return check_sources(ours)


if __name__ == "__main__":
    sources.main(check, "file shape")
