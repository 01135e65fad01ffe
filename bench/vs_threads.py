#!/usr/bin/env python3
"""Compares one process that uses several CPUs with one process for each CPU, as nn.DataParallel and DistributedDataParallel differ: images per
second in alternating runs, as a ratio of medians. The global batch is the same.

usage: bench/vs_threads.py CTRAIN [--cpus 2] [--rounds 5] [--configs mlp,convnet,resnet20] [--results FILE.json] [KEY=VALUE ...]

CTRAIN is the program. The first of two runs changes with each round."""

import argparse
import json
import statistics
import sys

import host
import vs_commit

vs_commit.STEPS["resnet20"] = (40, 4)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("--cpus", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--configs", default="mlp,convnet,resnet20")
    p.add_argument("--results")
    p.add_argument("sets", nargs="*", metavar="KEY=VALUE")
    a = p.parse_intermixed_args()
    layouts = {"threads": (1, a.cpus), "ranks": (a.cpus, 1)}
    rows = []
    for config in a.configs.split(","):
        got = {name: [] for name in layouts}
        for i in range(a.rounds):
            for name in layouts if i % 2 == 0 else reversed(layouts):
                procs, threads = layouts[name]
                sets = ("batch.global=64", f"launch.threads={threads}", *a.sets)
                got[name].append(vs_commit.rate(a.program, config, procs, sets)[0])
        medians = {name: statistics.median(rates) for name, rates in got.items()}
        rows.append({"config": config, "cpus": a.cpus, **got, "ratio": medians["ranks"] / medians["threads"]})
        print(f"{config:10s} 1 rank x {a.cpus} threads {medians['threads']:10.1f}  {a.cpus} ranks x 1 thread {medians['ranks']:10.1f} images/s  "
              f"ratio {rows[-1]['ratio']:.3f}", flush=True)
    if a.results:
        with open(a.results, "w") as f:
            json.dump({"machine": host.describe(a.program), "command": sys.argv, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
