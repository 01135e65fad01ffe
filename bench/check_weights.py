#!/usr/bin/env python3
"""Measures what dist.check_weights costs: the time of one comparison of all ranks, and its share of the training time at the default interval.

usage: bench/check_weights.py CTRAIN [--procs 2] [--interval 1000] [--configs mlp,convnet,...] [--results FILE.json] [KEY=VALUE ...]

The comparisons are timed by ctrain itself (rank 0, including the wait for the other ranks) in a run that compares every 5 steps. The time of a
step comes from a run without comparisons."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import host

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = {"mlp": 3000, "convnet": 600, "resnet18_cifar": 12, "resnet50": 12}


def train(program, config, procs, check, sets):
    """Returns (seconds per step, seconds per comparison)."""
    with tempfile.TemporaryDirectory() as run:
        command = [program, os.path.join(HERE, "configs", config + ".yaml"), f"run.dir={run}", f"train.max_steps={STEPS[config]}", "log.console=off",
                   "data.val=none", f"launch.procs={procs}", "launch.threads=1", f"dist.check_weights={check}", "checkpoint.every_epochs=0", *sets]
        r = subprocess.run(command, capture_output=True, text=True)
        if r.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{r.stderr}")
        with open(os.path.join(run, "metrics.jsonl")) as f:
            lines = [json.loads(line) for line in f]
        with open(os.path.join(run, "log", "rank-00000.log")) as f:
            m = re.search(r"compared the state of all ranks (\d+) times?, in ([\d.]+) s", f.read())
    batch = next(line["global_batch"] for line in lines if line["kind"] == "run")
    end = next(line for line in lines if line["kind"] == "end")
    return batch / end["images_per_sec"], float(m[2]) / int(m[1]) if m else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("--procs", type=int, default=2)
    p.add_argument("--interval", type=int, default=1000)
    p.add_argument("--configs", default=",".join(STEPS))
    p.add_argument("--results")
    p.add_argument("sets", nargs="*", metavar="KEY=VALUE")
    a = p.parse_intermixed_args()
    rows = []
    for config in a.configs.split(","):
        step, _ = train(a.program, config, a.procs, 0, a.sets)
        _, check = train(a.program, config, a.procs, 5, a.sets)
        share = check / (a.interval * step)
        rows.append({"config": config, "procs": a.procs, "step_ms": 1e3 * step, "check_ms": 1e3 * check, "interval": a.interval, "share": share})
        print(f"{config:16s} {a.procs} x 1  step {1e3 * step:9.3f} ms  comparison {1e3 * check:8.3f} ms  every {a.interval} steps: {100 * share:.4f} % of the time", flush=True)
    if a.results:
        with open(a.results, "w") as f:
            json.dump({"machine": host.describe(a.program), "command": sys.argv, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
