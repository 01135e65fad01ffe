#!/usr/bin/env python3
"""Counts the tests of all stages of scripts/test.sh: sum_tests.py FILE...

FILE was written by ctest --output-junit (its name without .xml is the stage), or has lines "passed|failed|skipped NAME[: reason]" (.txt).
A test program counts once; a case that a program skips counts as skipped and is listed, even when the rest of the program passed.
Ends with 1 when something failed, or was skipped without a reason.
"""

import os
import re
import sys
import xml.etree.ElementTree as ElementTree

NO_REASON = "no reason given"


def reason_in(line):
    return re.sub(r"^(skipped|SKIPPED):\s*", "", line.strip()) or NO_REASON


def cases_skipped(output):
    """(case, reason) of the cases that cmocka programs and tests/e2e/harness.py report as skipped."""
    found, said = [], []
    for line in output.splitlines():
        if m := re.match(r"\[ RUN +\] (.*)", line):
            said = []
        elif m := re.match(r"\[  SKIPPED \] (\S+)$", line):
            # cmocka lists them again at the end, after "N test(s)".
            if not any(case == m[1] for case, _ in found):
                found.append((m[1], said[-1] if said else NO_REASON))
        elif m := re.match(r"SKIPPED (\S+): (.*)", line):
            found.append((m[1], reason_in(m[2])))
        elif line.strip():
            said.append(reason_in(line))
    return found


def read_junit(path):
    """Yields (verdict, name, [(case, reason)])."""
    for test in ElementTree.parse(path).getroot().iter("testcase"):
        output = test.findtext("system-out") or ""
        skipped, left_out = test.find("skipped"), cases_skipped(output)
        if skipped is not None and "SKIP_" in skipped.get("message", ""):
            lines = [line for line in output.splitlines() if line.strip()]
            yield "skipped", test.get("name"), left_out or [("", reason_in(lines[-1] if lines else ""))]
        else:
            yield ("passed" if test.get("status") == "run" else "failed"), test.get("name"), left_out


def read_lines(path):
    with open(path, encoding="utf-8") as f:
        for line in f:
            verdict, _, rest = line.rstrip("\n").partition(" ")
            name, _, reason = rest.partition(": ")
            yield verdict, name, [("", reason_in(reason))] if verdict == "skipped" else []


def main():
    passed, failed, skipped = 0, [], 0
    for path in sys.argv[1:]:
        stage = os.path.splitext(os.path.basename(path))[0]
        if not os.path.exists(path):
            failed.append(f"{stage}: wrote no results")
            continue
        for verdict, name, left_out in (read_junit if path.endswith(".xml") else read_lines)(path):
            passed += verdict == "passed"
            skipped += len(left_out)
            if verdict == "failed":
                failed.append(f"{stage}: {name}")
            for why in dict.fromkeys(reason for _, reason in left_out):
                cases = [case.rpartition(".")[2] for case, reason in left_out if reason == why and case]
                line = f"{stage}: {name}{' ' if cases else ''}{', '.join(cases)}"
                print(f"skipped {line}: {why}")
                if why == NO_REASON:
                    failed.append(f"{line}: skipped without a reason")
    for line in failed:
        print("FAILED ", line)
    print(f"{passed} passed, {len(failed)} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)


main()
