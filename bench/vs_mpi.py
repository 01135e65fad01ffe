#!/usr/bin/env python3
"""Compares the all-reduce of the communicator mpi with MPI_Allreduce of the same library.

    bench/vs_mpi.py [--mpi openmpi|mpich] [--ranks 2] [--rounds 5] [--build build/release]

Runs `ctrain bench comm` and bench/mpi_allreduce.c alternately, and prints for each size the medians over the rounds and their ratio; above
1, ctrain is faster. Measure on a quiet machine with a CPU for every rank."""

import argparse
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))
OPTIONS = {"openmpi": ["--oversubscribe"], "mpich": []}
FACTOR = 4


def run(argv):
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    r = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if r.returncode != 0:
        sys.exit(f"vs_mpi: {' '.join(argv)} ended with {r.returncode}")
    return r.stdout


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mpi", choices=sorted(OPTIONS), default="openmpi")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--min", type=int, default=1024)
    p.add_argument("--max", type=int, default=16 << 20)
    a = p.parse_args()
    mpirun = [f"mpirun.{a.mpi}", *OPTIONS[a.mpi], "-n", str(a.ranks)]
    sizes = []
    while not sizes or sizes[-1] * FACTOR <= a.max:
        sizes.append(sizes[-1] * FACTOR if sizes else a.min)
    own, plain = {s: [] for s in sizes}, {s: [] for s in sizes}
    for _ in range(a.rounds):
        text = run([*mpirun, os.path.join(a.build, "ctrain"), "bench", "comm", os.path.join(ROOT, "configs", "smoke.yaml"), "device=cpu",
                    "dist.backend=mpi", "--op", "allreduce", "--min", str(a.min), "--max", str(a.max), "--factor", str(FACTOR), "--json"])
        for row in json.loads(text)["rows"]:
            own[row["bytes"]].append(row["us"])
        for line in run([*mpirun, os.path.join(a.build, "bench", f"mpi_allreduce_{a.mpi}"), *map(str, sizes)]).splitlines():
            size, us = line.split()
            plain[int(size)].append(float(us))
    print(f"{'bytes':>10} {'ctrain us':>12} {'MPI us':>12} {'ratio':>7}")
    for s in sizes:
        x, y = statistics.median(own[s]), statistics.median(plain[s])
        print(f"{s:>10} {x:>12.2f} {y:>12.2f} {y / x:>7.2f}")


if __name__ == "__main__":
    main()
