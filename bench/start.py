#!/usr/bin/env python3
"""Shows where the time until the end of the first step goes, for one or more builds of ctrain in alternating runs.

usage: bench/start.py PROGRAM... [--config resnet50] [--rounds 5] [--touch MIB] [--results FILE.json] [KEY=VALUE ...]

A run has two steps. "later" is how much later the first step ends than the start of the program plus one step (the second one). It is the
sum of "start" (processes, config, files), "join" (the other ranks), "net" (compilation, memory, initial weights) and "first" (by how much the
first step is longer than the second). "CPU" is the CPU time of all processes of the run. All columns are medians.

Before each run, the script writes --touch MiB of memory and frees it: a virtual machine may get memory from its host only when the memory is
first written, and waits for it. With --touch 0, nothing is known about the memory. KEY=VALUE is passed to all builds."""

import argparse
import json
import mmap
import os
import re
import statistics
import subprocess
import sys
import tempfile

import host

HERE = os.path.dirname(os.path.abspath(__file__))
COLUMNS = {"later": "later, s", "start": "start", "join": "join", "net": "net", "first": "first", "step": "a step, s", "cpu": "CPU, s",
           "faults": "page faults", "peak_mib": "peak MiB"}


def touch(mib):
    pid = os.fork()
    if pid == 0:
        with mmap.mmap(-1, max(mib, 1) << 20) as m:
            m.madvise(mmap.MADV_HUGEPAGE)
            for _ in range(mib):
                m.write(b"\1" * (1 << 20))
        os._exit(0)
    os.waitpid(pid, 0)


def run(program, a):
    touch(a.touch)
    with tempfile.TemporaryDirectory() as tmp:
        command = [program, os.path.join(HERE, "configs", a.config + ".yaml"), f"run.dir={tmp}/run", "train.max_steps=2", "log.every=1",
                   "log.console=off", "data.val=none", "launch.procs=1", *a.sets]
        with open(os.path.join(tmp, "errors"), "w+") as errors:
            # Threads that wait for others use no CPU time.
            pid = subprocess.Popen(command, env={**os.environ, "OMP_WAIT_POLICY": "passive"}, stdout=errors, stderr=errors).pid
            _, status, used = os.wait4(pid, 0)
            errors.seek(0)
            if status != 0:
                sys.exit(f"{' '.join(command)}\n{errors.read()}")
        with open(os.path.join(tmp, "run", "metrics.jsonl")) as f:
            lines = [json.loads(line) for line in f]
        with open(os.path.join(tmp, "run", "log", "rank-00000.log")) as f:
            join, net = map(float, re.search(r"joined in ([\d.]+) s, .*compiled in ([\d.]+) s", f.read()).groups())
    end = next(m for m in lines if m["kind"] == "end")
    first, step = (end["images"] / 2 / m["images_per_sec"] for m in lines if m["kind"] == "step")
    later = end["startup_seconds"] - step
    return {"later": later, "start": later - join - net - (first - step), "join": join, "net": net, "first": first - step, "step": step,
            "cpu": used.ru_utime + used.ru_stime, "faults": used.ru_minflt, "peak_mib": used.ru_maxrss / 1024, "weights": end["weights_digest"]}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("programs", nargs="+", metavar="PROGRAM")
    p.add_argument("--config", default="resnet50")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--touch", type=int, default=3072)
    p.add_argument("--results")
    a = p.parse_intermixed_args()
    a.sets = [x for x in a.programs if "=" in x]
    programs = [x for x in a.programs if "=" not in x]
    got = {program: [] for program in programs}
    for i in range(a.rounds):
        for program in programs if i % 2 == 0 else programs[::-1]:
            got[program].append(run(program, a))
    print(" | ".join(["program", *COLUMNS.values(), "weights"]))
    for program, runs in got.items():
        medians = [statistics.median(r[c] for r in runs) for c in COLUMNS]
        print(" | ".join([program, *(f"{m:.3f}" if m < 100 else f"{m:.0f}" for m in medians), *sorted({r["weights"][:12] for r in runs})]), flush=True)
    if a.results:
        with open(a.results, "w") as f:
            json.dump({"machine": host.describe(*programs), "command": sys.argv, "runs": got}, f, indent=1)


if __name__ == "__main__":
    main()
