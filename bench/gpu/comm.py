"""Steps with several ranks or with NCCL: ranks, nccl."""
import json
import os
import re
import socket
import statistics
import subprocess

from cases import DRY_STEPS, STEPS, sets_of
from common import (CACHED, DRY, FAIL, MEASURED, PROGRAM_ENV, QUIET, UNAVAILABLE, Failed, Pace, Run, bundle, judge, left, program, row, train)
from correct import TOLERANCES, deviation
import speed

# One rank, with NCCL although there is nothing to sum.
ALONE = {"CTRAIN_NCCL_ALONE": "1"}
BACKENDS = {"self": None, "nccl": ALONE}


def digest_of_rank_1(run):
    """The metrics have that of rank 0 only."""
    with open(os.path.join(run.folder, "log", "rank-00001.log"), encoding="utf-8", errors="replace") as f:
        return "".join(re.findall(r"weights ([0-9a-f]{64})", f.read())[-1:])


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
    d, equal = deviation(runs[0].losses(), one.losses()), digest_of_rank_1(runs[0]) == runs[0].digest()
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
    config, sets = sets_of("convnet", bundle("data"), DRY_STEPS if DRY else STEPS)
    sets = (*QUIET, *sets, CACHED, "model.bn=sync", "log.level=info,train=debug", "dist.timeout=20")
    pair = (*sets, "batch.per_rank=32", "launch.procs=2", "launch.devices=0,0", "dist.first_bucket_mib=0.01", "dist.bucket_mib=0.05")
    pace = Pace(8)
    with pace:
        one = train("ranks-1", config, *sets, "batch.per_rank=64")
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
            compare_stages(check, (*sets, "model.bn=local", "batch.per_rank=32", "train.accumulate=2"), config)


def same_weights(pace):
    check = "1 rank, NCCL in the recording: weights of self"
    config, sets = sets_of("convnet", bundle("data"), DRY_STEPS if DRY else STEPS)
    small = ("dist.first_bucket_mib=0.01", "dist.bucket_mib=0.05", "log.level=info,dist=debug")
    if not pace.allows(check):
        return
    with pace:
        runs = [train(f"alone-{name}", config, *QUIET, *sets, CACHED, *small, f"dist.backend={name}", env=env) for name, env in BACKENDS.items()]
    used = [run.metrics("run")[-1]["backend"] for run in runs]
    judge(check, used == list(BACKENDS) and runs[0].digest() == runs[1].digest(), ", ".join(used), "", f"over {len(runs[0].losses())} steps")


def cost(pace, model, batch, precision, rounds):
    """How much longer a step takes with NCCL's calls for each bucket. There is no other rank, so NCCL moves nothing."""
    what, rates = f"1 rank, {model} N={batch} {precision}", {name: [] for name in BACKENDS}
    for i in range(rounds):
        for name, env in BACKENDS.items():
            check = f"{what}: {name}, run {i + 1}"
            if not pace.allows(check):
                continue
            with pace:
                rates[name].append(speed.our_rate(model, batch, precision, 3.0, env, f"dist.backend={name}"))
            rate = rates[name][-1]["images_per_sec"]
            row(check, MEASURED, rate, "images/s", step_us=1e6 * batch / rate)
    if all(rates.values()):
        own, nccl = (1e6 * batch / statistics.median(r["images_per_sec"] for r in rates[name]) for name in BACKENDS)
        row(f"{what}: NCCL adds to a step", MEASURED, nccl - own, "us", f"{own:.1f} us without, ratio {nccl / own:.4f}")


def bench_comm(check, envs, *options):
    """One row with the fastest all-reduce; all results must be right."""
    command = [bundle("bin", "ctrain"), "bench", "comm", bundle("configs", "bench", "mlp.yaml"), "--json", "--op", "allreduce", "--min", "4K",
               "--max", "64K" if DRY else "64M", "device=cuda", "dist.backend=nccl", "dist.timeout=20", *options]
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
        return
    result = json.loads(outputs[0][0])
    best = max(result["rows"], key=lambda r: r["algbw_gbps"])
    small = min(result["rows"], key=lambda r: r["bytes"])
    judge(check, result["wrong"] == 0, best["algbw_gbps"], "GB/s",
          f"algorithm bandwidth at {best['bytes']} bytes; {small['bytes']} bytes take {small['us']:.1f} us; {result['wrong']} wrong elements")


def step_nccl():
    why, pace = why_no_nccl(), Pace(11)
    if why:
        row("1 rank with NCCL", UNAVAILABLE, note=why)
        return
    same_weights(pace)
    bench_comm("bench comm, 1 rank", [ALONE], "launch.procs=1")
    bench_comm("bench comm, 2 ranks, sockets", two_hosts(), "launch.procs=2", "launch.devices=0,0")
    cost(pace, "mlp", 64, "fp32", 1 if DRY else 2)
    if not DRY:
        cost(pace, "resnet50", 256, "bf16", 1)
