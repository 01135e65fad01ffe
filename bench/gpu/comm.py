"""Steps with several ranks or with NCCL: ranks, nccl."""
import json
import os
import re
import socket
import subprocess

from cases import DRY_STEPS, STEPS, sets_of
from common import (CACHED, DRY, FAIL, MEASURED, PROGRAM_ENV, QUIET, UNAVAILABLE, Failed, Pace, Run, bundle, judge, left, program, row, train)
from correct import TOLERANCES, deviation
import speed

# One rank, with NCCL although there is nothing to sum.
ALONE = {"CTRAIN_NCCL_ALONE": "1"}
BACKENDS = {"self": None, "nccl": ALONE}


def weights_of(run):
    """The digest of the weights of each rank. The metrics have that of rank 0; the others log theirs with log.level=train=debug."""
    digests = [run.digest()]
    for rank in range(1, run.metrics("run")[-1]["world_size"]):
        with open(os.path.join(run.folder, "log", f"rank-{rank:05d}.log"), encoding="utf-8", errors="replace") as f:
            digests += re.findall(r"weights ([0-9a-f]{64})", f.read())[-1:] or ["none"]
    return digests


def compare_ranks(check, one, runs):
    """runs: the processes of two ranks, or of their launcher."""
    try:
        for run in runs:
            run.wait()
    except Failed as e:
        # An NCCL that does not accept two ranks on one GPU is not a wrong result.
        row(check, UNAVAILABLE if "Duplicate GPU" in e.message else FAIL, note=e.message)
        for run in runs:
            run.process.kill()
        return
    d, equal = deviation(runs[0].losses(), one.losses()), len(set(weights_of(runs[0]))) == 1
    judge(check, d <= TOLERANCES["fp32"] and equal, d, "relative",
          f"over {len(one.losses())} steps, at most {TOLERANCES['fp32']:g}; the ranks have {'equal' if equal else 'different'} weights")


def compare_stages(check, sets, config):
    one = train("stages-1", config, *sets, "launch.procs=1")
    try:
        run = train("stages-2", config, *sets, "launch.pipeline=2", "launch.procs=2", "launch.devices=0,0", "dist.backend=shm")
    except Failed as e:
        row(check, FAIL, note=e.message)
        return
    d = deviation(run.losses(), one.losses())
    judge(check, d <= TOLERANCES["fp32"], d, "relative", f"over {len(one.losses())} steps, at most {TOLERANCES['fp32']:g}")


def why_no_nccl():
    info = json.loads(program([bundle("bin", "ctrain"), "info", "--json"]).stdout)
    nccl = next((c for c in info["communicators"] if c["name"] == "nccl"), {"available": False, "why": "this ctrain has no communicator nccl"})
    return "" if nccl["available"] else nccl.get("why", "ctrain info says that it is not available")


def two_hosts():
    """The environments of two ranks that NCCL believes to be on two hosts: otherwise, it refuses ranks that share a GPU. They communicate through
    sockets."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "NCCL_NET": "Socket",
             "NCCL_SOCKET_IFNAME": "lo"}
    return [{**world, "RANK": r, "LOCAL_RANK": r, "NCCL_HOSTID": f"ctrain-gate-{r}"} for r in ("0", "1")]


def step_ranks():
    """Two ranks that share the GPU have the losses of one, and so have two stages of the model. Not measured: the GPU executes their work in turn.
    bench/results/cudnn_plans.tsv has the graphs of both batch sizes, because other runs have them too."""
    config, sets = sets_of("convnet", bundle("data"), DRY_STEPS if DRY else STEPS, DRY)
    sets = (*QUIET, *sets, CACHED, "model.bn=sync", "log.level=info,train=debug", "dist.timeout=20")
    batch = 8 if DRY else 32
    pair = (*sets, f"batch.per_rank={batch}", "launch.procs=2", "launch.devices=0,0", "dist.first_bucket_mib=0.01", "dist.bucket_mib=0.05")
    pace = Pace(8)
    with pace:
        one = train("ranks-1", config, *sets, f"batch.per_rank={2 * batch}")
    check = "2 ranks, host-staged: losses of 1 rank"
    if pace.allows(check):
        with pace:
            compare_ranks(check, one, [Run("ranks-shm", config, *pair, "dist.backend=shm")])
    check, why = "2 ranks, NCCL over sockets: losses of 1 rank", why_no_nccl()
    if why:
        row(check, UNAVAILABLE, note=why)
    elif pace.allows(check):
        compare_ranks(check, one, [Run("ranks-nccl", config, *pair, "dist.backend=nccl", env=env) for env in two_hosts()])
    check = "pipeline of 2 stages: losses of 1 rank"
    if pace.allows(check):
        with pace:
            compare_stages(check, (*sets, "model.bn=local", f"batch.per_rank={batch}", "train.accumulate=2"), config)


def same_weights(pace):
    check = "1 rank, NCCL in the recording: weights of self"
    config, sets = sets_of("convnet", bundle("data"), DRY_STEPS if DRY else STEPS, DRY)
    small = ("dist.first_bucket_mib=0.01", "dist.bucket_mib=0.05", "log.level=info,dist=debug")
    if not pace.allows(check):
        return
    with pace:
        runs = [train(f"alone-{name}", config, *QUIET, *sets, CACHED, *small, f"dist.backend={name}", env=env) for name, env in BACKENDS.items()]
    used = [run.metrics("run")[-1]["backend"] for run in runs]
    judge(check, used == list(BACKENDS) and runs[0].digest() == runs[1].digest(), ", ".join(used), "", f"over {len(runs[0].losses())} steps")


def cost(pace, model, batch, precision):
    """How much longer a step takes with NCCL's calls for each bucket. There is no other rank, so NCCL moves nothing."""
    what, step_us = f"1 rank, {model} N={batch} {precision}", {}
    for name, env in BACKENDS.items():
        if not pace.allows(f"{what}: {name}"):
            return
        with pace:
            r = speed.our_rate(model, batch, precision, 3.0, env, f"dist.backend={name}")
        step_us[name] = 1e6 * batch / r["images_per_sec"]
        speed.rate_row(f"{what}: {name}", r, step_us=step_us[name])
    own, nccl = (step_us[name] for name in BACKENDS)
    row(f"{what}: NCCL adds to a step", MEASURED, nccl - own, "us", f"{own:.1f} us without, ratio {nccl / own:.4f}")


def bench_comm(check, envs, *options):
    """A row for each operation, with its largest bandwidth; all results must be right."""
    command = [bundle("bin", "ctrain"), "bench", "comm", bundle("configs", "bench", "mlp.yaml"), "--json", "--min", "4K", "device=cuda",
               "dist.backend=nccl", "dist.timeout=15", *options]
    running = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**PROGRAM_ENV, **env},
                                universal_newlines=True) for env in envs]
    try:
        outputs = [p.communicate(timeout=max(left() - 1, 0)) for p in running]
    except subprocess.TimeoutExpired:
        for p in running:
            p.kill()
        row(check, FAIL, note="it did not end in time")
        return
    bad = [p.returncode for p in running if p.returncode != 0]
    if bad:
        message = Failed(bad[0], "".join(err for _, err in outputs)).message
        row(check, UNAVAILABLE if "Duplicate GPU" in message else FAIL, note=message)
    if not outputs[0][0].startswith("{"):
        return
    by_op = {}
    for r in json.loads(outputs[0][0])["rows"]:
        by_op.setdefault(r["op"], []).append(r)
    for op, rows in by_op.items():
        best, small, wrong = max(rows, key=lambda r: r["algbw_gbps"]), min(rows, key=lambda r: r["bytes"]), sum(r["wrong"] for r in rows)
        judge(f"{check}: {op}", wrong == 0, best["algbw_gbps"], "GB/s",
              f"algorithm bandwidth at {best['bytes']} bytes; {small['bytes']} bytes take {small['us']:.1f} us; {wrong} wrong elements")


def step_nccl():
    why, pace = why_no_nccl(), Pace(11)
    if why:
        row("1 rank with NCCL", UNAVAILABLE, note=why)
        return
    same_weights(pace)
    sizes = ("--op", "allreduce", "--max", "64K" if DRY else "64M")
    bench_comm("bench comm, 1 rank", [ALONE], *sizes, "launch.procs=1")
    bench_comm("bench comm, 2 ranks, sockets", two_hosts(), *sizes, "launch.procs=2", "launch.devices=0,0")
    cost(pace, "mlp", 64, "fp32")
    if not DRY:
        cost(pace, "resnet50", 256, "bf16")
