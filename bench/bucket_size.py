#!/usr/bin/env python3
"""Measures how the size of the reduce buckets changes the step time and the exposed communication.

usage: bench/bucket_size.py PROGRAM [--config resnet18_cifar] [--procs 2] [--backends shm,gloo] [--sizes 0.5,1,4,25,auto] [--steps 12]
                            [--rounds 3] [KEY=VALUE ...]

Trains on synthetic images; the runs of all sizes alternate. Prints, for each backend and size, the number of buckets and the medians over
the steps of all runs, except for the first quarter of each run. For auto, also prints the sizes that were chosen."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def run(a, sets, backend, size):
    """The run line of one run, and its steady steps."""
    with tempfile.TemporaryDirectory() as d:
        command = [a.program, os.path.join(HERE, "configs", a.config + ".yaml"), f"run.dir={d}/run", f"train.max_steps={a.steps}", "log.every=1",
                   "log.console=off", "data.name=synthetic", "data.shape=[3, 32, 32]", "data.n_train=65536", "data.val=none",
                   "checkpoint.every_epochs=0", "--procs", str(a.procs), "launch.threads=1", "batch.per_rank=8", f"dist.backend={backend}",
                   f"dist.bucket_mib={size}", *sets]
        r = subprocess.run(command, capture_output=True, text=True)
        if r.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{r.stderr}")
        with open(os.path.join(d, "run", "metrics.jsonl")) as f:
            lines = [json.loads(line) for line in f]
        steps = [m for m in lines if m["kind"] == "step"]
        return lines[0], steps[len(steps) // 4:]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("sets", nargs="*", metavar="KEY=VALUE")
    p.add_argument("--config", default="resnet18_cifar")
    p.add_argument("--procs", type=int, default=2)
    p.add_argument("--backends", default="shm,gloo")
    p.add_argument("--sizes", default="0.5,1,4,25,auto")
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_intermixed_args()
    cases = [(b, s) for b in a.backends.split(",") for s in a.sizes.split(",")]
    runs = {case: [] for case in cases}
    for i in range(a.rounds):
        for case in cases if i % 2 == 0 else reversed(cases):
            runs[case].append(run(a, a.sets, *case))
    print(f"{'backend':8} {'MiB':>5} {'buckets':>7} {'step ms':>8} {'backward ms':>11} {'exposed ms':>10} {'share':>6}")
    for (backend, size), results in runs.items():
        steps = [m for _, part in results for m in part]
        phases = ("data_ms", "forward_ms", "backward_ms", "exposed_comm_ms", "optim_ms", "other_ms")
        step = statistics.median(sum(m[k] for k in phases) for m in steps)
        backward, exposed = (statistics.median(m[k] for m in steps) for k in ("backward_ms", "exposed_comm_ms"))
        chosen = "  chose " + ", ".join(f"{line['bucket_mib']:g}" for line, _ in results) if size == "auto" else ""
        print(f"{backend:8} {size:>5} {results[0][0]['buckets']:7} {step:8.2f} {backward:11.2f} {exposed:10.3f} {exposed / step:6.1%}{chosen}", flush=True)


if __name__ == "__main__":
    main()
