#!/usr/bin/env python3
"""Compares the losses of runs by different plans of a net (docs/ONEDNN.md) with those of runs with different seeds.

usage: bench/plan_losses.py --data-dir CIFAR [--program build/release/ctrain] [--config resnet18_cifar] [--precision fp32 bf16]
                            [--steps 200] [--last 50] [--seeds 3] [--results FILE.json] [KEY=VALUE ...]

For each precision, trains by the plan that the engine suggests with several seeds, and then with the first seed in NHWC, and, in bf16, in NHWC
with the method gemm for the convolutions for which the suggested plan names a method. Prints the mean of the losses of the last steps. Plans
differ in the last bits of their results, so their losses should differ as little as, or less than, those of two seeds."""

import argparse
import json
import os
import statistics
import subprocess
import tempfile

import host

HERE = os.path.dirname(os.path.abspath(__file__))


def losses(a, directory, precision, seed, plan=None):
    sets = [f"run.dir={directory}", f"run.seed={seed}", f"precision={precision}", f"train.max_steps={a.steps}", "log.every=1", "log.console=off",
            "launch.procs=1", *([f"train.plan={plan}"] if plan else []), *([f"data.dir={a.data_dir}"] if a.data_dir else []), *a.sets]
    subprocess.run([a.program, os.path.join(HERE, "configs", a.config + ".yaml"), *sets], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(directory, "metrics.jsonl")) as f:
        return [m["loss"] for m in map(json.loads, f) if m["kind"] == "step"]


def write_plans(suggested, directory):
    """{name: file} of the plans in NHWC."""
    with open(suggested) as f:
        convs = [line.split()[1] for line in f if line.startswith("conv ")]
    plans = {"nhwc": [], "nhwc, gemm": [f"conv {name} direct direct gemm" for name in convs]}
    for i, lines in enumerate(plans.values()):
        with open(os.path.join(directory, f"plan{i}.txt"), "w") as f:
            f.write("\n".join(["ctrain plan 1", "layout nhwc", *lines, ""]))
    return {name: os.path.join(directory, f"plan{i}.txt") for i, name in enumerate(plans)}


def compare(a, precision, tmp):
    runs = {f"suggested, seed {seed}": losses(a, f"{tmp}/{precision}-{seed}", precision, seed) for seed in range(1, a.seeds + 1)}
    plans = write_plans(f"{tmp}/{precision}-1/plan.txt", tmp)
    for i, (name, plan) in enumerate(plans.items()):
        if precision == "bf16" or name == "nhwc":
            runs[f"{name}, seed 1"] = losses(a, f"{tmp}/{precision}-plan{i}", precision, 1, plan)
    return runs


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sets", nargs="*", metavar="KEY=VALUE")
    p.add_argument("--program", default="build/release/ctrain")
    p.add_argument("--config", default="resnet18_cifar")
    p.add_argument("--data-dir")
    p.add_argument("--precision", nargs="+", default=["fp32", "bf16"])
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--last", type=int, default=50)
    p.add_argument("--seeds", type=int, default=2)
    p.add_argument("--results")
    a = p.parse_intermixed_args()
    a.program = os.path.abspath(a.program)
    got = {}
    with tempfile.TemporaryDirectory() as tmp:
        for precision in a.precision:
            for name, values in compare(a, precision, tmp).items():
                got[f"{precision}, {name}"] = values
                print(f"{precision}, {name:20} {statistics.mean(values[-a.last:]):.4f}", flush=True)
    if a.results:
        with open(a.results, "w") as f:
            json.dump({"machine": host.describe(a.program), "config": a.config, "steps": a.steps, "last": a.last, "losses": got}, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
