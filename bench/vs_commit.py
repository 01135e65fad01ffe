#!/usr/bin/env python3
"""Compares two builds of ctrain: images per second in alternating runs, as a ratio of medians.

usage: bench/vs_commit.py OLD NEW [--rounds 5] [--configs mlp,convnet,...] [--procs 1,2] [--results FILE.json] [KEY=VALUE ...]

OLD and NEW are programs. Runs of both alternate on the same machine; the first of two runs changes with each round. The rate is the
median of the step lines of metrics.jsonl, without the first. KEY=VALUE is passed to both."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import host

HERE = os.path.dirname(os.path.abspath(__file__))
# Steps, and steps between two lines of metrics: about two seconds each.
STEPS = {"mlp": (3000, 200), "convnet": (600, 50), "resnet18_cifar": (6, 1), "resnet50": (6, 1)}


def rate(program, config, procs, sets):
    steps, every = STEPS[config]
    with tempfile.TemporaryDirectory() as run:
        command = [program, os.path.join(HERE, "configs", config + ".yaml"), f"run.dir={run}", f"train.max_steps={steps}",
                   f"log.every={every}", "log.console=off", "data.val=none", f"launch.procs={procs}", "launch.threads=1", *sets]
        r = subprocess.run(command, capture_output=True, text=True)
        if r.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{r.stderr}")
        with open(os.path.join(run, "metrics.jsonl")) as f:
            lines = [json.loads(line) for line in f]
    end = [m for m in lines if m["kind"] == "end"][0]
    rates = [m["images_per_sec"] for m in lines if m["kind"] == "step"][1:]
    return statistics.median(rates), end["startup_seconds"], end["weights_digest"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("old")
    p.add_argument("new")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--configs", default=",".join(STEPS))
    p.add_argument("--procs", default="1,2")
    p.add_argument("--results")
    p.add_argument("sets", nargs="*", metavar="KEY=VALUE")
    a = p.parse_intermixed_args()
    rows = []
    for config in a.configs.split(","):
        for procs in map(int, a.procs.split(",")):
            got = {"old": [], "new": []}
            for i in range(a.rounds):
                for which in ("old", "new") if i % 2 == 0 else ("new", "old"):
                    got[which].append(rate(getattr(a, which), config, procs, a.sets))
            old, new = ([m[0] for m in got[k]] for k in ("old", "new"))
            starts = [statistics.median(m[1] for m in got[k]) for k in ("old", "new")]
            row = {"config": config, "procs": procs, "old": old, "new": new, "ratio": statistics.median(new) / statistics.median(old),
                   "startup_old": starts[0], "startup_new": starts[1], "same_weights": len({m[2] for k in got for m in got[k]}) == 1}
            rows.append(row)
            print(f"{config:16s} {procs} x 1  old {statistics.median(old):10.1f}  new {statistics.median(new):10.1f} images/s  ratio {row['ratio']:.3f}  "
                  f"first step after {starts[0]:.3f} s, {starts[1]:.3f} s  {'same' if row['same_weights'] else 'OTHER'} weights", flush=True)
    if a.results:
        with open(a.results, "w") as f:
            json.dump({"machine": host.describe(a.old, a.new), "command": sys.argv, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
