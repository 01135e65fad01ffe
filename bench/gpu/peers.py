"""Steps with a rank on each of several GPUs (gate.py --peers): comm, same, sums, killed. They check results and measure no training speed."""
import array
import glob
import json
import math
import os
import re
import struct
import subprocess
import time

from cases import sets_of
from comm import bench_comm, weights_of
from common import CACHED, COMM, DRY, FAIL, QUIET, UNAVAILABLE, USAGE, WORK, Failed, Pace, Run, bundle, judge, left, row, train
from correct import TOLERANCES, deviation

# Several buckets, and a rank on each GPU.
SETS = ("launch.procs=auto", "batch.per_rank=8", "dist.first_bucket_mib=0.01", "dist.bucket_mib=0.05", "train.cuda_graph=on", "train.graph_steps=1",
        "dist.timeout=15", "log.level=info,train=debug")
WINDOWS = ("dist.nccl_windows=true",)
# Largest deviation of an element of the gradient, relative to its size plus the root mean square of all elements.
GRADIENT_TOLERANCES = {"fp32": 1e-5, "bf16": 5e-2}


def case(steps):
    config, sets = sets_of("convnet", bundle("data"), steps, DRY)
    return config, (*QUIET, *sets, CACHED, *SETS)


def step_comm():
    bench_comm("bench comm", [{}], *(("--max", "16K", "--iters", "2") if DRY else ("--max", "16M")), "launch.procs=auto")


def has_windows(run):
    """Whether NCCL has made windows. If it cannot, the gradients are in other memory."""
    with open(os.path.join(run.folder, "log", "rank-00000.log"), encoding="utf-8", errors="replace") as f:
        return re.search(r"bytes are in a symmetric window$", f.read(), re.M) is not None


def attempt(check, name, config, *sets):
    """A run to the end, or None after a row."""
    windows = WINDOWS[0] in sets
    try:
        run = train(name, config, *sets)
    except Failed as e:
        row(check, UNAVAILABLE if e.code == USAGE and windows else FAIL, note=e.message)
        return None
    if windows and not has_windows(run):
        row(check, UNAVAILABLE, note="NCCL has made no symmetric windows")
        return None
    return run


def step_same():
    config, sets = case(6 if DRY else 50)
    pace, first = Pace(6), None
    for i, (check, more) in enumerate({"all ranks have equal weights": (), "repeated": (), "recorded = plain": ("train.cuda_graph=off",),
                                       "windows on = off": WINDOWS}.items()):
        if not pace.allows(check):
            return
        with pace:
            run = attempt(check, f"same-{i}", config, *sets, *more)
        if run is None:
            continue
        first, weights, used = first or run, weights_of(run), run.metrics("run")[-1]
        d = deviation(run.losses(), first.losses())
        equal = len(set(weights)) == 1 and used["backend"] == "nccl"
        # NCCL may sum windows in another order, which does not matter if there are two ranks.
        close = d <= TOLERANCES["fp32"] if more == WINDOWS and len(weights) > 2 else weights[0] == first.digest()
        judge(check, equal and close, weights[0][:16], "", f"{len(weights)} ranks with {used['backend']}, {len(set(weights))} different digests; "
              f"losses of the first run within {d:.1g}")


def momentum(run):
    """{name: values}: the momentum that SGD has stored, which is a sum of the gradients of all steps."""
    with open(os.path.join(run.folder, "checkpoints", "last", "optim.safetensors"), "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    found = {}
    for name, tensor in header.items():
        if name.startswith("momentum_buffer/"):
            begin, end = tensor["data_offsets"]
            found[name] = array.array("f", data[begin:end])
    return found


def difference(got, want):
    """Returns the largest deviation and the name of its tensor."""
    rms = math.sqrt(sum(y * y for values in want.values() for y in values) / sum(map(len, want.values())))
    deviations = [(abs(x - y) / (rms + abs(y)), name) for name in want for x, y in zip(got[name], want[name])]
    bad = [(math.inf, name) for name in want if len(got[name]) != len(want[name]) or any(x != x for x in got[name])]
    return max(bad + deviations)


def step_sums():
    """NCCL's sums of the gradients, element by element. One rank computes the gradients of all ranks one after the other and adds them. The weights
    do not change, so that no difference grows."""
    config, sets = case(6)
    sets, pace = (*sets, "optim.lr=1e-30", "optim.weight_decay=0", "checkpoint.every_steps=6"), Pace(6)
    want = {}
    for precision, more in (("fp32", ()), ("bf16", ()), ("fp32", WINDOWS)):
        check = f"{precision}{', windows on' if more else ''}: sums of the ranks' gradients"
        if not pace.allows(check):
            return
        with pace:
            run = attempt(check, f"sums-{precision}-{len(more)}", config, *sets, f"precision={precision}", *more)
        if run is None:
            continue
        ranks, tolerance = run.metrics("run")[-1]["world_size"], GRADIENT_TOLERANCES[precision]
        if precision not in want:
            # Steps of more than 8 batches are not recorded.
            one = attempt(check, f"sums-{precision}", config, *sets, f"precision={precision}", "launch.procs=1", f"train.accumulate={ranks}",
                          "train.cuda_graph=off")
            if one is None:
                continue
            want[precision] = momentum(one)
        d, name = difference(momentum(run), want[precision])
        judge(check, ranks > 1 and d <= tolerance, d, "relative", f"{ranks} ranks, 6 steps, {sum(map(len, want[precision].values()))} elements; "
              f"at most {tolerance:g}; largest in {name.split('/')[-1]}")


def leftovers():
    """What the gate has started and what still runs, other than this step."""
    found = []
    for path in glob.glob("/proc/[0-9]*"):
        try:
            with open(path + "/environ", "rb") as f:
                own = f"GATE_WORK={WORK}".encode() in f.read().split(b"\0")
            with open(path + "/comm", encoding="utf-8", errors="replace") as f:
                name = f.read().strip()
        except OSError:
            continue  # it has ended, or belongs to another user
        pid = int(os.path.basename(path))
        if own and pid != os.getpid():
            found.append(f"process {pid} ({name})")
    return found


def shared_memory():
    """Files that NCCL or ctrain has created."""
    found = set()
    for name in os.listdir("/dev/shm"):
        try:
            if name.startswith(("nccl-", "ctrain.")) and os.stat("/dev/shm/" + name).st_uid == os.getuid():
                found.add("/dev/shm/" + name)
        except OSError:
            pass  # it was removed
    return found


def step_killed():
    check, before = "rank 1 is killed: the others end", shared_memory()
    config, sets = case(1000000)
    begin, bound = time.monotonic(), max(left() - 5, 1)
    run = Run("killed", config, *sets, env={"CTRAIN_FAILPOINT": "step:10@1"})
    try:
        run.process.wait(bound)
    except subprocess.TimeoutExpired:
        row(check, FAIL, note=f"still running after {bound:.0f} s")
        run.process.kill()
        run.process.wait()
    else:
        code, message = run.process.returncode, Failed(run.process.returncode, run.errors()).message
        judge(check, code == COMM and re.search(r"\brank 1\b", message), time.monotonic() - begin, "s from start to end",
              f"exit status {code}: {message}")
    patience = time.monotonic() + 2
    while leftovers() and time.monotonic() < patience:
        time.sleep(0.05)
    left_over = leftovers() + sorted(shared_memory() - before)
    judge("no process and no shared memory is left", not left_over, note=", ".join(left_over))
