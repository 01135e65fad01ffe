#!/usr/bin/env python3
"""Compares the step times of training with dist.reduce_dtype fp32, bf16 and fp16, for ranks that gloo connects over slow links.

    sudo bench/reduce_dtype.py [--config bench/configs/scaling.yaml] [--rate 1gbit] [--ranks 2] [--rounds 5] [--json FILE] [KEY=VALUE ...]

The ranks run in network namespaces, whose links bench/simulate.py limits. The types alternate. Prints for each type the medians, over the
rounds, of the median step and of its exposed communication, the range of the steps, and the ratio of the medians; above 1, the type is faster than fp32.
Measure on a quiet machine."""

import argparse
import json
import os
import statistics
import tempfile

import host
import simulate

TYPES = ("fp32", "bf16", "fp16")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--config", default=os.path.join(simulate.ROOT, "bench", "configs", "scaling.yaml"))
    p.add_argument("--rate", default="1gbit", help="of each network interface, for tc")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--ctrain", default=os.path.join(simulate.ROOT, "build", "release", "ctrain"))
    p.add_argument("--json", help="file for the results")
    p.add_argument("sets", nargs="*", metavar="KEY=VALUE")
    a = p.parse_args()
    a.config, a.ctrain = os.path.abspath(a.config), os.path.abspath(a.ctrain)
    hub, nodes = simulate.Namespace(), [simulate.Namespace() for _ in range(a.ranks)]
    simulate.connect(hub, nodes, a.rate)
    times = {t: [] for t in TYPES}
    with tempfile.TemporaryDirectory(prefix="ctrain-reduce-") as tmp:
        bench = simulate.Bench(a, nodes, tmp)
        sets = a.sets
        for _ in range(a.rounds):
            for t in TYPES:
                a.sets = [*sets, f"dist.reduce_dtype={t}"]
                times[t].append(bench.measure(a.ranks))
    print(f"{'type':<5} {'step ms':>9} {'lowest':>9} {'highest':>9} {'exposed ms':>11} {'ratio':>6}")
    rows = []
    for t in TYPES:
        steps = [s for s, _ in times[t]]
        step, exposed = statistics.median(steps), statistics.median(e for _, e in times[t])
        ratio = statistics.median(s for s, _ in times["fp32"]) / step
        print(f"{t:<5} {step:>9.2f} {min(steps):>9.2f} {max(steps):>9.2f} {exposed:>11.2f} {ratio:>6.2f}")
        rows.append({"type": t, "step_ms": step, "lowest_ms": min(steps), "highest_ms": max(steps), "exposed_comm_ms": exposed, "ratio": ratio})
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"machine": host.describe(a.ctrain), "config": os.path.relpath(a.config, simulate.ROOT), "rate": a.rate, "ranks": a.ranks,
                       "rounds": a.rounds, "sets": sets, "rows": rows}, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
