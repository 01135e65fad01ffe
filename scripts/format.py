#!/usr/bin/env python3
"""Formats C, C++ and CUDA sources, or checks their format.

usage: scripts/format.py [--check] [FILE...]        default: all files that git tracks

clang-format does most of the work. Its version matters, so scripts/format_wheels.txt pins a wheel, which scripts/setup.sh --test installs
into build/format. Two rules that clang-format does not know are checked here:

- a blank line separates the declarations at the start of a block from its statements;
- a function has at most 60 lines (LONG lists the exceptions with their reasons, and no other functions).

Exits with 1 if --check finds an offence, and with 77 if clang-format is not installed.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BINARY = os.path.join(ROOT, "build/format/clang_format/data/bin/clang-format")
SUFFIXES = (".c", ".h", ".def", ".cc", ".hh", ".cu", ".cuh")
MOST_LINES = 60
LONG = {
    ("nn/cuda/run/run.c", "run_task"): "a switch with one case for each kind of task",
    ("trainer/tools/doctor/explain.c", "meaning_of"): "a switch with one case for each status",
    ("tests/data/test_sampler.c", "test_window"): "a table of cases",
    ("tests/data/test_shards.c", "test_classes"): "a table of cases",
    ("tests/infer/test_safetensors.c", "test_malformed"): "a table of cases",
    ("tests/nn/cuda/test_kernels.c", "check_loss"): "one kernel and its reference",
    ("tests/nn/test_model_layers.c", "test_errors"): "a table of cases",
    ("tests/soft_gpu/kernels.cu", "builtins"): "one kernel that calls all functions",
    ("tests/trainer/run/test_metrics.c", "test_lines"): "a table of cases",
    ("tests/trainer/tools/test_cli.c", "test_refused"): "a table of cases",
}

WORDS = r"(?:[A-Za-z_]\w*\s+)+"
# Type and name, as in "const struct x *p = ...", "int a, b;" and "enum e (*f)(int)". A statement never begins like this.
DECLARATION = re.compile(r"\s+(?!return\b|goto\b|else\b|case\b|default\b|do\b|if\b|for\b|while\b|switch\b|sizeof\b|delete\b|throw\b|co_)"
                         r"(?:_Alignas\([^)]*\)\s*)?" + WORDS + r"(?:\*+\s*(?:const\s+|restrict\s+)?)*(?:\(\*\w+(?:\[\w*\])?\)\(|[A-Za-z_]\w*\s*(?:[;,=\[]|\(\*))")
OTHER_DECLARATION = re.compile(r"\s+(?:_Static_assert\(|(?:static\s+|const\s+)*(?:struct|union|enum)(?:\s+\w+)?\s*\{)")


def is_declaration(line):
    return DECLARATION.match(line) or OTHER_DECLARATION.match(line)


def without_comments(line):
    return re.sub(r"/\*.*?\*/", "", re.sub(r'"(?:[^"\\]|\\.)*"', '""', line)).split("//")[0].rstrip()


def opens_block(line):
    """A line that ends with the brace of a function body or compound statement, not of a type or initializer."""
    code = without_comments(line)
    if not code.endswith("{") or code.endswith("\\"):
        return False
    return code == "{" or re.match(r"\s+(?:if|for|while|switch|else|do|\}\s*else)\b", code) or code.strip() == "{"


def end_of_statement(lines, i):
    """Returns the index of the last line of the declaration that begins in line i."""
    depth = 0
    while i < len(lines):
        code = without_comments(lines[i])
        depth += code.count("{") + code.count("(") - code.count("}") - code.count(")")
        if depth <= 0 and code.endswith(";"):
            return i
        i += 1
    return i - 1


def missing_blank_lines(lines):
    """Yields the indexes of lines before which a blank line is missing."""
    for i, line in enumerate(lines[:-1]):
        if not opens_block(line):
            continue
        at, found = i + 1, False
        while at < len(lines):
            code = lines[at].strip()
            if code.startswith("/*") or code.startswith("*") or code.startswith("//") or code.startswith("#"):
                # A comment belongs to the line after it.
                end = at
                while code.startswith("/*") and "*/" not in lines[end]:
                    end += 1
                follows = end + 1
                if follows < len(lines) and is_declaration(lines[follows]):
                    at = follows
                    continue
                break
            if not is_declaration(lines[at]):
                break
            found = True
            at = end_of_statement(lines, at) + 1
        if found and at < len(lines) and lines[at].strip() and not lines[at].strip().startswith("}"):
            yield at


def long_functions(lines):
    """Yields the index, the name and the number of lines of each function that is too long."""
    start = None
    for i, line in enumerate(lines):
        if line == "{" and i > 0 and (lines[i - 1].endswith(")") or lines[i - 1].startswith((" ", "\t"))):
            start = i
        elif line == "}" and start is not None:
            name = re.search(r"(\w+)\(", " ".join(lines[max(0, start - 6):start]).split(";")[-1].split("}")[-1])
            name = name.group(1) if name else "?"
            if i - start - 1 > MOST_LINES:
                yield start, name, i - start - 1
            start = None


def too_long(path, lines):
    """Returns what is wrong with the long functions of a file: those that LONG does not list, and those that only LONG lists."""
    found = list(long_functions(lines))
    listed = [name for file, name in LONG if file == path]
    wrong = [(at, f"{name} has {n} lines: split it (limit {MOST_LINES})") for at, name, n in found if name not in listed]
    return wrong + [(0, f"{name} has at most {MOST_LINES} lines: remove it from LONG in scripts/format.py")
                    for name in listed if name not in [other for _, other, _ in found]]


def all_files():
    """The files that git tracks; in a copy of the tree without git, all files outside of build/."""
    try:
        found = subprocess.check_output(["git", "ls-files"], text=True, stderr=subprocess.DEVNULL).split()
    except (OSError, subprocess.CalledProcessError):
        found = [os.path.relpath(os.path.join(at, name)) for at, _, names in os.walk(".") for name in names]
        found = sorted(f for f in found if not f.startswith(("build/", "../")))
    return [f for f in found if f.endswith(SUFFIXES) and os.path.exists(f)]


def main(arguments):
    check = "--check" in arguments
    os.chdir(ROOT)
    files = [os.path.relpath(os.path.abspath(a), ROOT) for a in arguments if a != "--check"]
    if not files:
        files = all_files()
    binary = os.environ.get("CTRAIN_CLANG_FORMAT", BINARY)
    if not os.access(binary, os.X_OK):
        print(f"format: no {os.path.relpath(binary)}: run scripts/setup.sh --test", file=sys.stderr)
        return 77
    offences = 0
    if check:
        result = subprocess.run([binary, "--dry-run", "--Werror", "--ferror-limit=1"] + files, stderr=subprocess.PIPE, text=True)
        for line in result.stderr.splitlines():
            if ": error: " in line:
                print(line.split(": error: ")[0] + ": not formatted: run scripts/format.py")
                offences += 1
    else:
        subprocess.check_call([binary, "-i"] + files)
    for path in files:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        lines = text.split("\n")
        missing = list(missing_blank_lines(lines))
        if check:
            for at in missing:
                print(f"{path}:{at + 1}: no blank line after the declarations")
        elif missing:
            for at in reversed(missing):
                lines.insert(at, "")
            with open(path, "w", encoding="utf-8") as f:
                f.write("\n".join(lines))
        wrong = too_long(path, lines)
        for at, why in wrong:
            print(f"{path}:{at + 1}: {why}")
        offences += (len(missing) if check else 0) + len(wrong)
    for path in sorted({file for file, _ in LONG if not os.path.exists(file)}):
        print(f"{path}:1: this file does not exist: remove it from LONG in scripts/format.py")
        offences += 1
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
