#!/usr/bin/env python3
"""Compares the registers and the memory of GPU kernels, as ptxas reports them, with the budget in ptxas_budget.tsv.

    ptxas_budget.py [--write] BUDGET REPORT...        the reports are the files *.o.ptxas of the build

A kernel may use TOLERANCE more registers than its row, but no more shared memory or stack. Nothing may be spilled. A kernel without a row has
the limits of the row "*". --write makes the rows anew.
"""

import os
import re
import subprocess
import sys

TOLERANCE = 8
FIELDS = ("sm_80", "sm_90", "sm_100", "shared", "stack")
OTHERS = {"sm_80": 64, "sm_90": 64, "sm_100": 64, "shared": 32768, "stack": 0}
HEAD = """# The budget of GPU kernels: registers per thread on each architecture, bytes of static shared memory and of stack (the most of all
# architectures). Written by: cmake --build build/release --target ptxas_budget
"""
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\d+)'")
STACK = re.compile(r"^ +(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def demangled(names):
    out = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.splitlines()
    return {n: re.sub(r"^void |\(.*\)$", "", d).replace("__nv_bfloat16", "bf16").replace("__half", "fp16").replace(" ", "")
            for n, d in zip(names, out)}


def read_report(path):
    """{(kernel, architecture): {registers, shared, stack, spilled}}"""
    kernels, now = {}, None
    with open(path, encoding="utf-8") as f:
        for line in f:
            if m := ENTRY.search(line):
                now = kernels.setdefault((m[1], m[2]), {"shared": 0})
            elif now is not None and (m := STACK.match(line)):
                now["stack"], now["spilled"] = int(m[1]), int(m[2]) + int(m[3])
            elif now is not None and (m := USED.search(line)):
                now["registers"] = int(m[1])
                now["shared"] = int(m[1]) if (m := SHARED.search(line)) else 0
    return kernels


def read_reports(paths):
    """{"file.cu kernel": {field: value}, with "spilled" for the architectures that spill}"""
    found = {}
    for path in paths:
        kernels = read_report(path)
        if not kernels:
            sys.exit(f"ptxas_budget: {path} has no kernels: was it made with --resource-usage?")
        names = demangled(sorted({name for name, _ in kernels}))
        for (name, arch), k in kernels.items():
            of = found.setdefault(f"{os.path.basename(path).split('.')[0]} {names[name]}", {"shared": 0, "stack": 0, "spilled": {}})
            of[arch] = k["registers"]
            for field in ("shared", "stack"):
                of[field] = max(of[field], k[field])
            if k["spilled"]:
                of["spilled"][arch] = k["spilled"]
    return found


def read_budget(path):
    with open(path, encoding="utf-8") as f:
        lines = [line.rstrip("\n").split("\t") for line in f if not line.startswith("#")]
    if lines[0] != ["kernel", *FIELDS]:
        sys.exit(f"ptxas_budget: {path}: the columns are not those of this script")
    return {name: dict(zip(FIELDS, map(int, values), strict=True)) for name, *values in lines[1:]}


def write_budget(path, found):
    with open(path, "w", encoding="utf-8") as f:
        f.write(HEAD + "\t".join(("kernel", *FIELDS)) + "\n")
        for name, k in [("*", OTHERS), *sorted(found.items())]:
            f.write("\t".join((name, *(str(k[field]) for field in FIELDS))) + "\n")


def compare(found, budget):
    """The kernels that exceed their budgets, as sentences."""
    bad = []
    for name, k in sorted(found.items()):
        row = budget.get(name, budget["*"])
        missing = [field for field in FIELDS if field not in k]
        if missing:
            bad.append(f"{name}: not compiled for {', '.join(missing)}")
            continue
        for arch, spilled in k["spilled"].items():
            bad.append(f"{name}: {spilled} bytes of registers are spilled on {arch}")
        for field in FIELDS:
            limit = row[field] + (TOLERANCE if field.startswith("sm_") and name in budget else 0)
            if k[field] > limit:
                what = f"registers on {field}" if field.startswith("sm_") else f"bytes of {field}"
                bad.append(f"{name}: {k[field]} {what}, the budget is {limit}")
    return bad


def main():
    arguments = [a for a in sys.argv[1:] if a != "--write"]
    if len(arguments) < 2:
        sys.exit(__doc__)
    found = read_reports(arguments[1:])
    if "--write" in sys.argv:
        write_budget(arguments[0], found)
        return
    budget = read_budget(arguments[0])
    bad = compare(found, budget)
    new, gone = sorted(set(found) - set(budget)), sorted(set(budget) - set(found) - {"*"})
    print(f"{len(found)} kernels, {len(new)} of them without a row ({', '.join(new)}); {len(gone)} rows without a kernel ({', '.join(gone)})")
    if bad:
        sys.exit("\n".join([*bad, "If this is intended: cmake --build build/release --target ptxas_budget"]))


if __name__ == "__main__":
    main()
