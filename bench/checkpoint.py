#!/usr/bin/env python3
"""Measures how long training stands still for a checkpoint.

usage: bench/checkpoint.py PROGRAM [PROGRAM ...] [--rounds 3] [KEY=VALUE ...]

Trains ResNet-50 with momentum (205 MB of state) on one small image per step, with a save every STEPS steps; runs of all programs
alternate. Prints the medians over the saves during the run: how long training stood still (exposed_seconds in metrics.jsonl; the
entire save for programs that do not write it), for the first save and for the others, and the time until the checkpoint was stored.
Without background writes (checkpoint.background=false) both times are the same."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, SAVES = 30, 4


def saves_of(program, sets):
    """The checkpoint lines of the saves during a run."""
    with tempfile.TemporaryDirectory() as run:
        command = [program, os.path.join(HERE, "configs", "resnet50.yaml"), f"run.dir={run}", f"train.max_steps={STEPS * (SAVES + 1)}",
                   "data.shape=[3, 32, 32]", "data.n_train=4096", "batch.per_rank=1", "log.console=off", "data.val=none",
                   f"checkpoint.every_steps={STEPS}", "checkpoint.every_epochs=0", "launch.procs=1", *sets]
        r = subprocess.run(command, capture_output=True, text=True)
        if r.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{r.stderr}")
        with open(os.path.join(run, "metrics.jsonl")) as f:
            return [m for m in map(json.loads, f) if m["kind"] == "checkpoint"][:SAVES]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("words", nargs="+", metavar="PROGRAM|KEY=VALUE")
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_intermixed_args()
    programs, sets = [w for w in a.words if "=" not in w], [w for w in a.words if "=" in w]
    runs = {program: [] for program in programs}
    for i in range(a.rounds):
        for program in programs if i % 2 == 0 else reversed(programs):
            runs[program].append(saves_of(program, sets))
    for program in programs:
        def median(field, first, end):
            return 1e3 * statistics.median(m.get(field, m["seconds"]) for run in runs[program] for m in run[first:end])
        print(f"{program}: {runs[program][0][0]['bytes'] / 1e6:.0f} MB  training stood still {median('exposed_seconds', 0, 1):.0f} ms at the first save, "
              f"{median('exposed_seconds', 1, SAVES):.0f} ms at the others  stored after {median('seconds', 1, SAVES):.0f} ms", flush=True)


if __name__ == "__main__":
    main()
