"""Steps that compare results: equal, mnist, bits, ranks."""
import json
import os
import re
import socket

from cases import CASES, DRY_STEPS, STEPS, sets_of
from common import CACHED, COMM, DRY, FAIL, QUIET, UNAVAILABLE, USAGE, Failed, Pace, Run, bundle, has_key, judge, program, row, train

# Largest relative deviation of a loss from ref's.
TOLERANCES = {"fp32": 1e-5, "tf32": 5e-3, "bf16": 3e-2, "fp16": 5e-3}
MNIST_GOAL = 0.99


def deviation(got, want):
    if len(got) != len(want):
        return float("inf")
    return max(abs(x - y) / abs(y) for x, y in zip(got, want))


def compare(case, precision, pace):
    with open(bundle("expected", case + ".json"), encoding="utf-8") as f:
        want = json.load(f)["losses"]
    config, sets = sets_of(case, bundle("data"), len(want))
    check = f"{case}, {precision}: losses of ref"
    if not pace.allows(check):
        return
    try:
        with pace:
            run = train(f"equal-{case}-{precision}", config, *QUIET, *sets, CACHED, f"precision={precision}")
    except Failed as e:
        row(check, UNAVAILABLE if e.code == USAGE and precision != "fp32" else FAIL, note=e.message)
        return
    d = deviation(run.losses(), want)
    judge(check, d <= TOLERANCES[precision], d, "relative", f"over {len(want)} steps, at most {TOLERANCES[precision]:g}")


def step_equal():
    pace = Pace(4)
    for precision in TOLERANCES:
        for case in CASES if precision == "fp32" else ("resnet20", "bottleneck"):
            compare(case, precision, pace)


def step_mnist():
    """The example config on one rank. A dry run trains an MLP for a fraction of an epoch."""
    data = "data.dir=" + bundle("data", "mnist")
    if DRY:
        config, sets, goal = "mnist_mlp.yaml", ("train.epochs=1", "train.max_steps=30", "schedule.name=constant"), 0.7
    else:
        config, sets, goal = "mnist_ddp.yaml", (), MNIST_GOAL
    run = train("mnist", config, data, CACHED, *sets)
    end = run.metrics("end")[-1]
    judge("top-1 accuracy on MNIST", end["best_top1"] >= goal, end["best_top1"], "", f"at least {goal}; {end['images_per_sec']:.0f} images/s")


def digests(name, *variants):
    """The digests of runs of a case that differ in keys or environment."""
    config, sets = sets_of(name, bundle("data"), 12 if DRY else 50)
    return [train(f"bits-{name}-{i}", config, *QUIET, *sets, CACHED, *more).digest() for i, more in enumerate(variants)]


def same(pace, check, case, *variants):
    if not pace.allows(f"{case}: {check}"):
        return
    with pace:
        found = digests(case, *variants)
    judge(f"{case}: {check}", len(set(found)) == 1, found[0][:16], "", "" if len(set(found)) == 1 else f"digests {', '.join(d[:16] for d in found)}")


def switch(pace, check, key, cases, values=("off", "on")):
    """A key that must not change results."""
    if not has_key(key):
        row(check, UNAVAILABLE, note=f"this ctrain has no key {key}")
        return
    for case in cases:
        same(pace, check, case, *((f"{key}={v}",) for v in values))


def resumed(pace, case):
    check = f"{case}: killed and resumed = uninterrupted"
    if not pace.allows(check):
        return
    config, sets = sets_of(case, bundle("data"), 6 if DRY else 50)
    steps = ("checkpoint.every_steps=2", *sets, CACHED)
    keep = [s for s in QUIET if not s.startswith("train.resume=")] + ["train.resume=auto"]
    with pace:
        complete = train(f"complete-{case}", config, *QUIET, *steps)
        Run(f"resumed-{case}", config, *keep, *steps, env={"CTRAIN_FAILPOINT": "step:5"}).wait(COMM)
        again = train(f"resumed-{case}", config, *keep, *steps)
    start = again.metrics("run")[-1]["resumed_step"]
    judge(check, start > 0 and again.digest() == complete.digest(), start, "", "the step from which it continued")


def step_bits():
    pace, cases = Pace(15), ("convnet", "bottleneck")
    switch(pace, "recorded = plain", "train.cuda_graph", cases)
    resumed(pace, "convnet")
    switch(pace, "images on the device = on the host", "data.on_device", ("convnet",))
    switch(pace, "several steps in one graph = one", "train.graph_steps", ("mlp",), ("1", "3"))
    for case in cases:
        same(pace, "repeated", case, (), ())


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


def why_no_nccl():
    info = json.loads(program([bundle("bin", "ctrain"), "info", "--json"]).stdout)
    nccl = next((c for c in info["communicators"] if c["name"] == "nccl"), {"available": False, "why": "this ctrain has no communicator nccl"})
    return "" if nccl["available"] else nccl.get("why", "ctrain info says that it is not available")


def start_without_launcher(name, config, *sets):
    """Two ranks that NCCL believes to be on two hosts: otherwise, it refuses ranks that share a GPU. They communicate through sockets."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "NCCL_NET": "Socket",
             "NCCL_SOCKET_IFNAME": "lo"}
    return [Run(name, config, *sets, env={**world, "RANK": r, "LOCAL_RANK": r, "NCCL_HOSTID": f"ctrain-gate-{r}"}) for r in ("0", "1")]


def step_ranks():
    """Two ranks that share the GPU have the losses of one. Not measured: the GPU executes their work in turn. bench/results/cudnn_plans.tsv has
    the graphs of both batch sizes, because other runs have them too."""
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
        compare_ranks(check, one, start_without_launcher("ranks-nccl", config, *pair, "dist.backend=nccl"))
