#!/usr/bin/env python3
"""Compares the operations of a communicator with those of the library that it is built on, or of another one.

    bench/vs_library.py [--library openmpi|mpich|gloo] [--backend mpi|gloo|shm] [--op allreduce,broadcast] [--ranks 2] [--rounds 5]
                        [--threads single|serialized] [--min 4] [--max 67108864] [--factor 4] [--build build/release] [--out FILE.json]

Runs `ctrain bench comm` and bench/mpi_ops.c or bench/gloo_ops.cc alternately. Prints for each size the medians over the rounds, and the median
of the rounds' ratios; above 1, ctrain is faster. Both programs take times in the same way, and start with the same scheduling. A round is
repeated if the time of a cache line between the CPUs (bench/cache_line.c) has changed meanwhile. MPI is measured with its blocking and with its
nonblocking operations; ctrain's operations are nonblocking. --threads is the level of thread support: ctrain needs `serialized`, and the OSU
micro-benchmarks use `single`. gloo's all-reduce is measured with both of its algorithms, and the faster one counts. Measure on a quiet machine
with a CPU for every rank."""

import argparse
import datetime
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

import host

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))
MPIRUN = ("openmpi", "mpich")
OPERATIONS = ["allreduce", "reduce", "broadcast", "allgather", "gather", "scatter", "reduce_scatter", "sendrecv", "barrier"]
NOT_IN_GLOO = {"reduce_scatter", "sendrecv"}


def wait(processes):
    """Returns the output of the first process when all have ended."""
    texts = [p.communicate()[0] for p in processes]
    for p in processes:
        if p.returncode != 0:
            sys.exit(f"vs_library: {shlex.join(p.args)} ended with {p.returncode}")
    return texts[0]


def start(argv):
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)


def mpirun(a, library):
    # Open MPI binds each rank to a core, and refuses more ranks than cores. MPICH must be told to bind: two ranks that wait on the same
    # CPU take milliseconds for every operation.
    crowded = a.ranks > os.cpu_count()
    options = {"openmpi": ["--oversubscribe"] if crowded else [], "mpich": [] if crowded else ["-bind-to", "core"]}
    return [f"mpirun.{library}", *options[library], "-n", str(a.ranks)]


def ctrain_times(a, op):
    launch, options = [], ["--procs", str(a.ranks)]
    if a.backend == "mpi":
        launch, options = mpirun(a, a.library), []
    text = wait([start([*launch, os.path.join(a.build, "ctrain"), "bench", "comm", os.path.join(ROOT, "configs", "smoke.yaml"), *options,
                        "device=cpu", f"dist.backend={a.backend}", "--op", op, "--min", str(a.min), "--max", str(a.max), "--factor",
                        str(a.factor), "--json"])])
    return {row["bytes"]: row["us"] for row in json.loads(text)["rows"]}


def library_times(a, op, sizes):
    sizes = [str(s) for s in sizes]
    if a.library in MPIRUN:
        text = wait([start([*mpirun(a, a.library), os.path.join(a.build, "bench", f"mpi_ops_{a.library}"), a.threads, op, *sizes])])
    else:
        with tempfile.TemporaryDirectory() as store:
            text = wait([start([os.path.join(a.build, "bench", "gloo_ops"), store, str(r), str(a.ranks), op, *sizes])
                         for r in range(a.ranks)])
    return {int(line.split()[0]): float(line.split()[1]) for line in text.splitlines()}


def variants(a, op):
    """Returns the operations of the library that do the same, by column. The fastest one of a column counts."""
    if a.library in MPIRUN:
        return {"library_us": [op], "nonblocking_us": ["i" + op]}
    return {"library_us": [op, "allreduce_bcube"] if op == "allreduce" else [op]}


def cache_line(a):
    return float(wait([start([os.path.join(a.build, "bench", "cache_line")])])) if os.cpu_count() > 1 else 0.0


def measure_round(a, op, names):
    """Returns ctrain's times, those of the library by operation, and the time of a cache line, which was the same before and after."""
    while True:
        before = cache_line(a)
        own = ctrain_times(a, op)
        other = {name: library_times(a, name, own) for name in names}
        after = cache_line(a)
        if max(before, after) <= 1.5 * min(before, after):
            return own, other, before


def compare(a, op, lines):
    """Returns the rows of an operation. Adds the time of a cache line in each round to lines."""
    columns = variants(a, op)
    rounds = []
    for _ in range(a.rounds):
        own, other, line = measure_round(a, op, sum(columns.values(), []))
        rounds.append((own, {c: {size: min(other[name][size] for name in names) for size in own} for c, names in columns.items()}))
        lines.append(line)
    rows = []
    for size in rounds[0][0]:
        row = {"op": op, "bytes": size, "us": statistics.median(own[size] for own, _ in rounds)}
        for column in columns:
            row[column] = statistics.median(other[column][size] for _, other in rounds)
            row[column.replace("_us", "_ratio")] = statistics.median(other[column][size] / own[size] for own, other in rounds)
        rows.append(row)
    return rows


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--library", choices=[*MPIRUN, "gloo"], default="openmpi")
    p.add_argument("--backend", choices=["mpi", "gloo", "shm"], help="ctrain's communicator (default: the one built on the library)")
    p.add_argument("--op", default="allreduce", help=f"operations, or all: {','.join(OPERATIONS)}")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", choices=["single", "serialized"], default="single", help="level of thread support of MPI")
    p.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    p.add_argument("--min", type=int, default=4)
    p.add_argument("--max", type=int, default=64 << 20)
    p.add_argument("--factor", type=int, default=4)
    p.add_argument("--out", help="JSON file of the results")
    a = p.parse_args()
    a.backend = a.backend or ("mpi" if a.library in MPIRUN else "gloo")
    if a.backend == "mpi" and a.library not in MPIRUN:
        p.error("backend mpi is compared with openmpi or mpich")
    lacking = NOT_IN_GLOO if a.library == "gloo" else set()
    a.ops = [op for op in OPERATIONS if op not in lacking] if a.op == "all" else a.op.split(",")
    for op in a.ops:
        if op not in OPERATIONS or op in lacking:
            p.error(f"{a.library} has no operation {op}")
    return a


def main():
    a = arguments()
    rows, lines = [], []
    print(f"# {a.backend} compared with {a.library}, {a.ranks} ranks, medians of {a.rounds} rounds\n"
          f"# {'operation':<14} {'bytes':>10} {'ctrain us':>12} {'library us':>12} {'ratio':>7}"
          + (f" {'nonblocking':>12} {'ratio':>7}" if a.library in MPIRUN else ""))
    for op in a.ops:
        new = compare(a, op, lines)
        for r in new:
            text = "".join(f" {r[c + '_us']:>12.2f} {r[c + '_ratio']:>7.2f}" for c in ("library", "nonblocking") if c + "_us" in r)
            print(f"  {op:<14} {r['bytes']:>10} {r['us']:>12.2f}{text}", flush=True)
        rows += new
    if a.out:
        with open(a.out, "w", encoding="utf-8") as f:
            # The paths of this machine do not matter.
            command = ["bench/vs_library.py", *sys.argv[1:]]
            json.dump({"v": 1, "bench": "vs_library", "date": datetime.date.today().isoformat(),
                       "machine": host.describe(os.path.join(a.build, "ctrain")), "command": shlex.join(command),
                       "library": a.library, "backend": a.backend, "world_size": a.ranks, "rounds": a.rounds, **({"threads": a.threads} if a.library in MPIRUN else {}), "cache_line_ns": lines, "rows": rows}, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
