#!/usr/bin/env python3
"""Checks that the source files that comments and pages name exist, so that a file is not renamed without them.

usage: tests/style/file_names.py [ROOT]

In comments, a name is relative to the directory of the file, to one above it, or to the root. In pages (*.md), only names between backquotes
are checked. They may also be the end of a path, because tables omit a directory that their text names.
"""
import os
import re
import sys
import tempfile

SOURCES = (".c", ".h", ".cc", ".hh", ".cu", ".cuh")
SCRIPTS = (".py", ".sh", ".cmake", "CMakeLists.txt")
NAME = re.compile(r"(?<![\w./<>$*{}~:-])((?:[A-Za-z_][\w-]*/)*[A-Za-z_][\w-]*\.(?:c|h|cc|cu|cuh|py|sh))(?![\w(*-])(?!\.\w)")
# Files of other projects, and names in examples.
FOREIGN = re.compile(r"""(.*/)?\w*(NAME|FILE|PEER|PATH)\.\w+ | (BUNDLE|DIR|PATH|src)/.* |
	(dnnl|jansson|libdeflate|mpi|nccl|record_writer|yaml|zlib)\.h | Resample\.c | wds2idx\.py |
	(digits_model|main|model|multigpu_torchrun|train_cifar)\.py | file\.cu""", re.VERBOSE)
# Their comments describe trees that they make, and the history of changes names files that have been renamed.
OMITTED = ("tests/style/file_names.py", "tests/style/self_test.sh", "CHANGELOG.md")


def sources(root):
    """The paths of all files, relative to the root, without build trees."""
    for at, directories, names in os.walk(root):
        top = at == root
        directories[:] = [d for d in directories if d[0] not in "._" and not (top and (d.startswith("build") or d in ("shared", "runs")))]
        for name in names:
            yield os.path.relpath(os.path.join(at, name), root)


def comments(path, source):
    """Yields the position and the string of each comment, or of each string between backquotes of a page."""
    patterns = []
    if path.endswith(SOURCES):
        patterns = [r"/\*(?s:.*?)\*/|//.*"]
    elif path.endswith(SCRIPTS):
        patterns = [r"(?<!\S)#.*"] + [r'"""(?s:.*?)"""'] * path.endswith(".py")
    elif path.endswith(".md"):
        patterns = [r"`[^`\n]+`"]
    for pattern in patterns:
        yield from ((m.start(), m.group()) for m in re.finditer(pattern, source))


def offences(root):
    paths = set(sources(root))
    ends = {path[i:] for path in paths for i in [0, *(m.end() for m in re.finditer("/", path))]}
    for path in sorted(paths.difference(OMITTED)):
        if not path.endswith((*SOURCES, *SCRIPTS, ".md")):
            continue
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
            source = f.read()
        above = [path[:m.end()] for m in re.finditer("/", path)] + [""]
        for start, comment in comments(path, source):
            for m in NAME.finditer(comment):
                name = m.group(1)
                if not (FOREIGN.fullmatch(name) or any(directory + name in paths for directory in above) or (path.endswith(".md") and name in ends)):
                    yield f"{path}:{source.count(chr(10), 0, start + m.start()) + 1}: there is no file {name}"


def check_this():
    """Whether what is wrong is found, and nothing else."""
    files = {
        "nn/net.c": "/* net.h, nn/net.h and graph/op.h; fan.h */\nint x; // net.c\n/* see\n * nn/graph.h */",
        "nn/net.h": "", "nn/graph/op.h": "/* net.h */\n/* core.h */", "base/core.h": "/* NAME.c, dnnl.h, *.h and <stdio.h> */\nstruct s; /* w.hidden */",
        "docs/A.md": "`op.h` `graph/op.h` `nn/net.c`\nold.h, `raph/op.h` `cat nn/old.c`", "scripts/a.py": '"""b.py\nc.py\n"""\nx = 1 # d.sh',
    }
    expected = ["docs/A.md:2: there is no file nn/old.c", "docs/A.md:2: there is no file raph/op.h", "nn/graph/op.h:2: there is no file core.h",
                "nn/net.c:1: there is no file fan.h", "nn/net.c:4: there is no file nn/graph.h", "scripts/a.py:1: there is no file b.py",
                "scripts/a.py:2: there is no file c.py", "scripts/a.py:4: there is no file d.sh"]
    with tempfile.TemporaryDirectory() as root:
        for name, source in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
            with open(os.path.join(root, name), "w", encoding="utf-8") as f:
                f.write(source)
        got = sorted(offences(root))
    if got != expected:
        sys.exit("file_names: the check itself is wrong:\n" + "\n".join(got))


def main():
    check_this()
    found = list(offences(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")))
    for offence in found:
        print(offence)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
