#!/usr/bin/env python3
"""Prints how many lines of each directory the tests of a build with CTRAIN_COVERAGE have run (needs gcov).

scripts/coverage.py [--build DIRECTORY] [--check] [--uncovered N]
  --build DIRECTORY  default: build/coverage
  --check            ends with 1 if a directory of AT_LEAST has too few lines
  --uncovered N      lists the N longest regions that did not run, of the directories of AT_LEAST
"""

import argparse
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
# The share of lines, in percent, that tests must run. trainer/config, trainer/plan, trainer/job and trainer/tools are printed only.
AT_LEAST = {"base": 90, "data": 90, "dist": 90, "nn": 90, "trainer/run": 90, "trainer/launch": 90}
SHOWN = ("base", "data", "dist", "infer", "nn", "trainer")
BATCH = 20  # files for each call of gcov


def gcov(build, names):
    """(file, [(line, count)]) of some .gcno files; without a .gcda file beside it, no line of the object has run. A line may occur several
    times, for example in each clone of a function for another processor."""
    run = subprocess.run(["gcov", "--json-format", "--stdout", *names], cwd=build, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    for text in run.stdout.splitlines():
        if not text.strip():
            continue
        report = json.loads(text)
        for f in report["files"]:
            path = os.path.normpath(os.path.join(report["current_working_directory"], f["file"]))
            yield path, [(line["line_number"], line["count"]) for line in f["lines"]]


def collect(build):
    """{path: {line: count}} of the product's sources, of all objects that contain the line. Objects of sources that have moved or gone may still
    lie in the directory; they are not among the commands."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        objects = [re.search(r" -o (\S+)\.o ", c["command"]).group(1) for c in json.load(f)]
    found = [name + ".gcno" for name in objects if os.path.exists(os.path.join(build, name + ".gcno"))]
    batches = [found[i:i + BATCH] for i in range(0, len(found), BATCH)]
    lines = collections.defaultdict(lambda: collections.defaultdict(int))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for report in pool.map(lambda names: list(gcov(build, names)), batches):
            for path, counts in report:
                path = os.path.relpath(path, ROOT)
                if path.split(os.sep)[0] in SHOWN:
                    for line, count in counts:
                        lines[path][line] += count
    return lines


def directory_of(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "trainer" and len(parts) > 2 else parts[0]


def details(path):
    """The name of the directory below it that a second table shows."""
    parts = os.path.dirname(path).split("/")
    return "/".join(parts[:3 if parts[0] == "trainer" else 2])


def regions(counts):
    """(lines, first, last) of what did not run. Lines without code, such as comments, do not end a region."""
    first = last = n = 0
    for line in sorted(counts):
        if counts[line] == 0:
            first, last, n = first or line, line, n + 1
        elif n:
            yield n, first, last
            first = n = 0
    if n:
        yield n, first, last


def share(ran, of):
    return 100 * ran / of if of else 100


def table(lines, group):
    sums = collections.defaultdict(lambda: [0, 0])
    for path, counts in lines.items():
        total = sums[group(path)]
        total[0] += sum(1 for c in counts.values() if c)
        total[1] += len(counts)
    return dict(sorted(sums.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "coverage"))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--uncovered", type=int, default=0)
    args = parser.parse_args()
    lines = collect(args.build)
    if not lines:
        sys.exit(f"coverage: {args.build} has no objects that count lines")
    print("  lines     run       %  directory")
    few = []
    for name, (ran, of) in table(lines, directory_of).items():
        least = AT_LEAST.get(name)
        if least and share(ran, of) < least:
            few.append(name)
        print(f"{of:7} {ran:7} {share(ran, of):7.1f}  {name}" + (f" (at least {least})" if least else ""))
    print("\n  lines     run       %  directories below")
    for name, (ran, of) in table(lines, lambda path: details(path)).items():
        print(f"{of:7} {ran:7} {share(ran, of):7.1f}  {name}")
    if args.uncovered:
        print("\nlongest regions that did not run")
        longest = [(n, path, a, b) for path, counts in lines.items() if directory_of(path) in AT_LEAST for n, a, b in regions(counts)]
        for n, path, a, b in sorted(longest, key=lambda r: (-r[0], r[1:]))[:args.uncovered]:
            print(f"{n:7}  {path}:{a}-{b}")
    for name in few:
        print(f"coverage: too few lines of {name} have run")
    return 1 if args.check and few else 0


if __name__ == "__main__":
    sys.exit(main())
