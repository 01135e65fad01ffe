"""Steps that measure training speed: tune, resnet50, versus, small, sizes, compiled, shards. No speed is judged: the note has the goal."""
import glob
import json
import os
import statistics
import subprocess
import time

from common import DRY, FAIL, MEASURED, QUIET, SKIPPED, UNAVAILABLE, USAGE, WORK, Failed, Run, bundle, program, row, speed

HERE = os.path.dirname(os.path.abspath(__file__))
CPUS = os.cpu_count() or 1
# Loader threads compute the images, about 2,400 per second and CPU; they must not bound the step.
IMAGES = ("data.shape=[3,224,224]", "data.classes=1000", "data.n_train=65536", f"data.workers={max(CPUS - 2, 1)}")
MNIST = ("data.name=mnist", "data.dir=" + bundle("data", "mnist"))
# A dry run trains a small network in place of each large one.
SMALL = ("model.name=resnet20", "data.name=synthetic", "data.shape=[3,16,16]", "data.classes=10", "data.n_train=64", "batch.per_rank=4")
# name: config, keys, steps between two measurements
MODELS = {
    "resnet50": ("bench/resnet50.yaml", IMAGES, 10),
    "resnet18": ("bench/resnet50.yaml", ("model.name=resnet18", *IMAGES), 20),
    "resnet18_cifar": ("bench/resnet50.yaml", ("model.name=resnet18", "data.shape=[3,32,32]", "data.classes=10", "data.n_train=50000",
                                               f"data.workers={max(CPUS // 2, 1)}"), 20),
    "mlp": ("bench/mlp.yaml", MNIST, 500),
    "convnet": ("bench/convnet.yaml", MNIST, 500),
}
TUNE_SECONDS = 42 * float(os.environ.get("GATE_SCALE", "1"))  # the limit of one start; the step tune makes two
GOAL_EAGER, GOAL_SMALL_EAGER, GOAL_SMALL_GRAPH, GOAL_STEP_US = 1.2, 10, 1.5, 50


class Rates:
    """Rates of ctrain and of PyTorch's variants, measured in turn."""

    def __init__(self):
        self.of = {}

    def add(self, who, rate):
        self.of.setdefault(who, []).append(rate)

    def median(self, who):
        return statistics.median(self.of[who])


def our_rate(model, batch, precision, seconds, env=None):
    config, sets, every = MODELS[model]
    dry = SMALL if DRY and model.startswith("resnet") else ("batch.per_rank=8",) if DRY else ()
    name = f"speed-{model}-{batch}-{precision}-{len(os.listdir(WORK))}"
    return speed(name, config, *sets, f"batch.per_rank={batch}", f"precision={precision}", *dry, seconds=seconds, every=every, env=env)


def own_row(model, batch, precision, seconds=5.0, label="", env=None):
    """One row; returns the rate, or None if this ctrain cannot run it."""
    check = f"{model} N={batch} {precision}{label}"
    try:
        r = our_rate(model, batch, precision, seconds, env)
    except Failed as e:
        row(check, UNAVAILABLE if e.code == USAGE else FAIL, note=e.message)
        return None
    row(check, MEASURED, r["images_per_sec"], "images/s", f"{r['low']:.0f} to {r['high']:.0f} over {r['steps']} steps; "
        f"the first step after {r['startup_seconds']:.1f} s", step_us=1e6 * batch / r["images_per_sec"])
    return r["images_per_sec"]


def remember(**rates):
    path = os.path.join(WORK, "rates.json")
    known = recall()
    known.update(rates)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(known, f)


def recall():
    try:
        with open(os.path.join(WORK, "rates.json"), encoding="utf-8") as f:
            return json.load(f)
    except FileNotFoundError:
        return {}


def cached_plans():
    """The number of entries in the file of plans."""
    n = 0
    for path in glob.glob(os.path.join(glob.escape(WORK), "cache", "ctrain", "plans", "*.txt")):
        with open(path, encoding="utf-8") as f:
            n += sum("\t" in line for line in f)
    return n


def step_tune():
    """Two steps of what the step resnet50 measures. A start that takes too long is stopped; the plans that it has stored remain."""
    config, sets, _ = MODELS["resnet50"]
    for precision in ("fp16", "bf16"):
        check = f"resnet50 N=256 {precision}: first start"
        begin = time.monotonic()
        run = Run("tune-" + precision, config, *QUIET, *sets, "batch.per_rank=256", "precision=" + precision, "data.val=none",
                  "train.max_steps=2", *(SMALL if DRY else ()))
        try:
            run.process.wait(TUNE_SECONDS)
            run.wait()
        except subprocess.TimeoutExpired:
            run.process.kill()
            run.process.wait()
            row(check, MEASURED, time.monotonic() - begin, "s", f"stopped; {cached_plans()} plans in the file")
        except Failed as e:
            row(check, UNAVAILABLE if e.code == USAGE else FAIL, note=e.message)
        else:
            row(check, MEASURED, time.monotonic() - begin, "s", f"{cached_plans()} plans in the file")


def step_resnet50():
    for precision in ("fp16", "bf16"):
        rate = own_row("resnet50", 256, precision)
        if rate:
            remember(**{"resnet50-" + precision: rate})
    own_row("resnet50", 256, "bf16", label=", not fused", env={"CTRAIN_CUDA_LEVEL": "0"})


class Torch:
    """The process of torch_peer.py, or the reason why there is none."""

    def __init__(self):
        python = os.environ["GATE_PYTHON"]
        self.why, self.process = "" if python else "a dry run has no GPU for PyTorch", None
        if not python:
            return
        self.process = subprocess.Popen([python, "-B", os.path.join(HERE, "torch_peer.py")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, universal_newlines=True)
        first = self.process.stdout.readline()
        if first:
            row("PyTorch", MEASURED, ", ".join(f"{k} {v}" for k, v in json.loads(first).items()))
        else:
            self.why = f"torch_peer.py ended with {self.process.wait()}: see gate.log"

    def rate(self, seconds, **request):
        """Images per second. Raises ValueError with the reason."""
        self.process.stdin.write(json.dumps({**request, "seconds": seconds}) + "\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline() or '{"error": "torch_peer.py ended: see gate.log"}')
        if "error" in reply:
            raise ValueError(reply["error"])
        return reply["images_per_sec"]

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()


def alternate(torch, model, batch, precision, modes, rounds, seconds):
    """ctrain and each mode of PyTorch in turn, `rounds` times; rows with rates and ratios. modes: {mode: goal of the ratio, or None}."""
    rates, broken, what = Rates(), {}, f"{model} N={batch} {precision}"
    for _ in range(1 if DRY else rounds):
        for mode in modes:
            try:
                rates.add("ctrain", our_rate(model, batch, precision, seconds)["images_per_sec"])
            except Failed as e:
                row(f"{what}: ctrain", UNAVAILABLE if e.code == USAGE else FAIL, note=e.message)
                return
            if torch.why or mode in broken:
                continue
            try:
                rates.add(mode, torch.rate(seconds, model=model, batch=batch, precision=precision, mode=mode))
            except ValueError as e:
                broken[mode] = str(e)
    ours = rates.median("ctrain")
    row(f"{what}: ctrain", MEASURED, ours, "images/s", f"runs: {', '.join('%.0f' % r for r in rates.of['ctrain'])}", step_us=1e6 * batch / ours)
    for mode, goal in modes.items():
        if mode in rates.of:
            theirs = rates.median(mode)
            row(f"{what}: PyTorch {mode}", MEASURED, theirs, "images/s", f"runs: {', '.join('%.0f' % r for r in rates.of[mode])}",
                step_us=1e6 * batch / theirs)
            row(f"{what}: ctrain / PyTorch {mode}", MEASURED, ours / theirs, "", f"goal: {goal}" if goal else "")
        else:
            row(f"{what}: PyTorch {mode}", SKIPPED, note=torch.why or broken[mode])


def step_versus():
    torch = Torch()
    for precision in ("fp16", "bf16"):
        alternate(torch, "resnet50", 256, precision, {"eager": GOAL_EAGER, "graph": None}, rounds=2, seconds=3.0)
    torch.close()


def step_small():
    torch = Torch()
    for model in ("mlp", "convnet"):
        alternate(torch, model, 64, "fp32", {"eager": GOAL_SMALL_EAGER, "graph": GOAL_SMALL_GRAPH}, rounds=2, seconds=1.5)
        own = our_rate(model, 64, "fp32", 2.0)
        row(f"{model} N=64 fp32: time of a step", MEASURED, 64e6 / own["images_per_sec"], "us", f"goal: {GOAL_STEP_US} or less")
    torch.close()


def step_compiled():
    torch = Torch()
    alternate(torch, "resnet50", 256, "bf16", {"compile": None, "reduce-overhead": None}, rounds=2, seconds=3.0)
    torch.close()


def step_sizes():
    for batch in (64,) if DRY else (64, 128, 512):
        for precision in ("fp16", "bf16"):
            own_row("resnet50", batch, precision, 3.0)
    for precision in ("fp16", "bf16"):
        own_row("resnet18", 256, precision, 3.0)
        own_row("resnet18_cifar", 512, precision, 3.0)
    own_row("resnet50", 128, "tf32", 3.0)


def many_shards(copies):
    """A directory in which each shard of the bundle has several names: an epoch of a few hundred images would measure only its ends."""
    folder = os.path.join(WORK, "shards")
    os.makedirs(folder, exist_ok=True)
    shards = sorted(f[:-len(".tar")] for f in os.listdir(bundle("data", "shards")) if f.endswith(".tar"))
    for i in range(copies):
        for ending in (".tar", ".idx"):
            os.symlink(bundle("data", "shards", shards[i % len(shards)] + ending), os.path.join(folder, f"train-{i:06d}{ending}"))
    os.symlink(bundle("data", "shards", "classes.txt"), os.path.join(folder, "classes.txt"))
    return folder


def step_shards():
    """JPEG files through the loader: the loader alone, and training."""
    if not os.path.isdir(bundle("data", "shards")):
        row("JPEG shards", SKIPPED, note="the bundle has no shards")
        return
    folder = many_shards(2 if DRY else 256)
    data = ("data.name=shards", "data.dir=" + folder, "data.train=train-*.tar", "data.val=none", "data.augment.flip=true", "data.classes=1000")
    size = ("data.train.size=32",) if DRY else ()
    out = program([bundle("bin", "ctrain"), "bench", "data", bundle("configs", "bench", "resnet50.yaml"), "--json", "--seconds", "1" if DRY else "6",
                   "--threads", str(CPUS), *data, *size])
    if out.returncode != 0:
        raise Failed(out.returncode, out.stderr)
    j = json.loads(out.stdout)
    row("loader alone", MEASURED, j["images_per_sec"], "images/s", f"{j['threads']} threads; bound by {j['bound_by']}")
    small = ("model.name=resnet20", "batch.per_rank=8") if DRY else ()
    synthetic = recall().get("resnet50-bf16")
    for workers in ("auto", str(max(CPUS - 2, 1))):
        check = f"resnet50 N=256 bf16 from JPEG, data.workers={workers}"
        r = speed(f"shards-{workers}", "bench/resnet50.yaml", "batch.per_rank=256", "precision=bf16", "data.workers=" + workers, *data, *size, *small,
                  seconds=8.0, every=5)
        row(check, MEASURED, r["images_per_sec"], "images/s", f"{CPUS} CPUs")
        if synthetic and not DRY:
            row(check + " / synthetic", MEASURED, r["images_per_sec"] / synthetic, "", "goal: 0.9")
