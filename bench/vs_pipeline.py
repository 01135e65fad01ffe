#!/usr/bin/env python3
"""Compares a pipeline with data parallelism on the same number of ranks and with the same global batch: images per second in alternating
runs, as a ratio of medians.

usage: bench/vs_pipeline.py CTRAIN [--stages 2] [--micro-batches 4,16] [--rounds 5] [--configs mlp,resnet20] [--results FILE.json] [KEY=VALUE ...]

CTRAIN is the program. The order of the runs changes with each round. The last column is the ratio that the bubble alone would allow:
M / (M + stages - 1)."""

import argparse
import json
import statistics
import sys

import host
import vs_commit

vs_commit.STEPS.update(mlp=(600, 100), resnet20=(16, 2))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("--stages", type=int, default=2)
    p.add_argument("--micro-batches", default="4,16")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--configs", default="mlp,resnet20")
    p.add_argument("--results")
    p.add_argument("sets", nargs="*", metavar="KEY=VALUE")
    a = p.parse_intermixed_args()
    micros = [int(m) for m in a.micro_batches.split(",")]
    layouts = {"ranks": ()}
    layouts.update({f"stages_{m}": (f"launch.pipeline={a.stages}", f"train.accumulate={m}") for m in micros})
    rows = []
    for config in a.configs.split(","):
        got = {name: [] for name in layouts}
        for i in range(a.rounds):
            for name in layouts if i % 2 == 0 else reversed(layouts):
                sets = ("batch.global=64", "launch.threads=1", *layouts[name], *a.sets)
                got[name].append(vs_commit.rate(a.program, config, a.stages, sets)[0])
        medians = {name: statistics.median(rates) for name, rates in got.items()}
        for m in micros:
            # Of each round, because the speed of a shared machine changes between rounds.
            ratio = statistics.median(a / b for a, b in zip(got[f"stages_{m}"], got["ranks"]))
            rows.append({"config": config, "stages": a.stages, "micro_batches": m, "ranks": got["ranks"], "pipeline": got[f"stages_{m}"], "ratio": ratio})
            print(f"{config:10s} {a.stages} ranks {medians['ranks']:10.1f}  {a.stages} stages, {m} micro-batches {medians[f'stages_{m}']:10.1f} images/s  "
                  f"ratio {ratio:.3f}  bubble {(a.stages - 1) / (m + a.stages - 1):.3f}", flush=True)
    if a.results:
        with open(a.results, "w") as f:
            json.dump({"machine": host.describe(a.program), "command": sys.argv, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
