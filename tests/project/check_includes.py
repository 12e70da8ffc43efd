"""Who may include whom: the order of the folders, enforced.

A file includes only from its own folder and from those that stand above it in the house; mpi.h and nccl.h appear in
parallel/comm alone; the schedules are pure data and see nothing but core; nn knows no ranks.
"""
import re
from typing import List, Optional

import sources
from sources import Source, Violation

# A folder may include itself and those before it in this list, as far as NARROW does not allow less.
ORDER = ["core", "kernels", "autograd", "nn", "data", "parallel", "models", "apps"]

# Folders that may see less than the order would allow: (the folder, the folders that it may include from).
NARROW = [
    ("parallel/pipeline/schedule", ["core", "parallel/pipeline/schedule"]),
    ("parallel/comm", ["core", "kernels", "parallel/comm"]),
    ("data", ["core", "data"]),
]

# Headers that belong to one folder: (what the name looks like, the folders that may include it, why).
ONLY_IN = [
    (re.compile(r"^(mpi|mpi-ext)\.h$"), ["parallel/comm"], "MPI is spoken in parallel/comm alone"),
    (re.compile(r"^nccl\.h$"), ["parallel/comm"], "NCCL is spoken in parallel/comm alone"),
    (re.compile(r"^(dnnl|oneapi/dnnl/.*)\.(h|hpp)$"), ["kernels"], "oneDNN is called in kernels alone"),
    (re.compile(r"^(CLI/.*|toml\+\+/.*|toml\.hpp)$"), ["apps"], "flags are the programs' business"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def inside(path: str, folder: str) -> bool:
    return path.startswith(folder + "/")


def house(path: str) -> Optional[str]:
    top = path.split("/", 1)[0]
    return top if "/" in path and top in ORDER else None


def check_line(path: str, quoted: bool, name: str) -> Optional[str]:
    """What is wrong with `path` including `name`, if anything."""
    if ".." in name.split("/"):
        return f'"{name}": includes are written from the root, without ".."'
    mine = house(path)
    for pattern, folders, why in ONLY_IN:
        if pattern.match(name) and mine and not any(inside(path, folder) for folder in folders):
            return f"{name} may not be included here: {why}"
    theirs = house(name)
    if mine is None:
        return None  # tests, bench and examples see everything
    if theirs is None:
        if quoted and not name.startswith("penstock_"):
            return f'"{name}" is not a path from the root that begins with a folder of the house'
        return None
    if ORDER.index(theirs) > ORDER.index(mine):
        return f"{mine} may not include from {theirs}, which stands below it"
    for folder, allowed in NARROW:
        if inside(path, folder) and not any(inside(name, a) for a in allowed):
            return f"{folder} may include only from {', '.join(allowed)}, not {name}"
    return None


def check_sources(files: List[Source]) -> List[Violation]:
    found = []
    for file in files:
        for number, line in enumerate(file.lines, 1):
            match = INCLUDE.match(line)
            if match:
                message = check_line(file.path, match.group(1) == '"', match.group(2))
                if message:
                    found.append(Violation(file.path, number, message))
    return found


def check(root):
    paths = [p for p in sources.listed(root) if p.endswith(sources.CPP)]
    return check_sources(sources.read(root, paths))


if __name__ == "__main__":
    sources.main(check, "include order")
