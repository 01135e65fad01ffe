"""Steps that measure training speed: tune, shipped, resnet50, versus, small, sizes, compiled, shards. No speed is judged: the note has the
goal."""
import glob
import json
import os
import select
import statistics
import subprocess
import time

from common import (CACHED, DRY, FAIL, MEASURED, QUIET, SKIPPED, UNAVAILABLE, USAGE, WORK, Failed, Pace, Run, bundle, judge, left, program, rate_of,
                    row, speed, train)

HERE = os.path.dirname(os.path.abspath(__file__))
CPUS = os.cpu_count() or 1
# The images are in the memory of the GPU, as PyTorch's are: the rows are to measure training. One CPU computes about 2,400 images per second
# when a run starts.
RESIDENT = ("data.on_device=on", CACHED)
IMAGES = ("data.shape=[3,224,224]", "data.classes=1000", "data.n_train=4096", *RESIDENT)
MNIST = ("data.name=mnist", "data.dir=" + bundle("data", "mnist"), CACHED)
# A dry run trains a small network in place of each large one.
SMALL = ("model.name=resnet20", "data.name=synthetic", "data.shape=[3,16,16]", "data.classes=10", "data.n_train=64", "batch.per_rank=4")
SMALL_IMAGES = ("data.shape=[3,16,16]", "data.n_train=64") if DRY else ()
# name: config, keys, steps between two measurements
MODELS = {
    "resnet50": ("bench/resnet50.yaml", IMAGES, 10),
    "resnet18": ("bench/resnet50.yaml", ("model.name=resnet18", *IMAGES), 20),
    "resnet18_cifar": ("bench/resnet50.yaml", ("model.name=resnet18", "data.shape=[3,32,32]", "data.classes=10", "data.n_train=50176",
                                               *RESIDENT), 20),
    "mlp": ("bench/mlp.yaml", MNIST, 500),
    "convnet": ("bench/convnet.yaml", MNIST, 500),
}
SCALE = float(os.environ.get("GATE_SCALE", "1"))
# The first starts of the step tune, with the limit of each.
FIRST_STARTS = {("mlp", 64, "fp32"): 7 * SCALE, ("convnet", 64, "fp32"): 7 * SCALE, ("resnet50", 256, "bf16"): 36 * SCALE,
                ("resnet50", 256, "fp16"): 36 * SCALE}
START_SECONDS = 8  # of a run and of one of PyTorch's variants, until they have been measured
NOT_TUNED = ", plans of cuDNN's heuristics"
# The example config for GPUs, and in a dry run a small network in its place.
IMAGENET, IMAGENET_SETS = "resnet50_imagenet_gpu.yaml", ("model.name=resnet20", "batch.per_rank=8") if DRY else ()
MNIST_GOAL = 0.7 if DRY else 0.99
GOAL_EAGER, GOAL_SMALL_EAGER, GOAL_SMALL_GRAPH, GOAL_STEP_US = 1.2, 10, 1.5, 50


def keys(model, batch, precision):
    dry = SMALL if DRY and model.startswith("resnet") else ("batch.per_rank=8",) if DRY else ()
    return (*MODELS[model][1], f"batch.per_rank={batch}", f"precision={precision}", *dry)


def our_rate(model, batch, precision, seconds, env=None, *sets):
    config, _, every = MODELS[model]
    name = f"speed-{model}-{batch}-{precision}-{len(os.listdir(WORK))}"
    return speed(name, config, *keys(model, batch, precision), *sets, seconds=seconds, every=every, env=env)


def rate_row(check, r, note="", **more):
    row(check, MEASURED, r["images_per_sec"], "images/s", f"{r['low']:.0f} to {r['high']:.0f} over {r['steps']} steps; "
        f"the first step after {r['startup_seconds']:.1f} s{note}", config=r["config"], **more)


def own_row(pace, model, batch, precision, seconds=5.0, label="", env=None):
    """One row; returns the rate, or None if this ctrain cannot run it."""
    check = f"{model} N={batch} {precision}{label}"
    if not pace.allows(check):
        return None
    try:
        with pace:
            r = our_rate(model, batch, precision, seconds, env)
    except Failed as e:
        row(check, UNAVAILABLE if e.code == USAGE else FAIL, note=e.message)
        return None
    rate_row(check, r, step_us=1e6 * batch / r["images_per_sec"])
    return r["images_per_sec"]


def cached_plans():
    """The number of entries in the file of plans."""
    n = 0
    for path in glob.glob(os.path.join(glob.escape(WORK), "cache", "ctrain", "plans", "*.txt")):
        with open(path, encoding="utf-8") as f:
            n += sum("\t" in line for line in f)
    return n


def first_start(model, batch, precision, seconds):
    """Two steps of what is measured later, which choose the plans. A start that takes too long is stopped; the plans that it has stored remain."""
    check = f"{model} N={batch} {precision}: first start"
    begin = time.monotonic()
    run = Run(f"tune-{model}-{precision}", MODELS[model][0], *QUIET, *keys(model, batch, precision), "train.autotune=auto", "data.val=none",
              "train.max_steps=2")
    try:
        run.process.wait(min(seconds, max(left() - 1, 0)))  # it also ends before the gate stops the step
        run.wait()
    except subprocess.TimeoutExpired:
        run.process.kill()
        run.process.wait()
        row(check, MEASURED, time.monotonic() - begin, "s", f"stopped; {cached_plans()} plans in the file")
    except Failed as e:
        row(check, UNAVAILABLE if e.code == USAGE else FAIL, note=e.message)
    else:
        row(check, MEASURED, time.monotonic() - begin, "s", f"{cached_plans()} plans in the file")


def step_tune():
    for what, seconds in FIRST_STARTS.items():
        first_start(*what, seconds)


def shipped_mnist(pace, config, judged):
    """The example config on one rank, to its end. A dry run trains for a fraction of an epoch."""
    if not pace.allows(config):
        return
    dry = ("train.epochs=1", f"train.max_steps={30 if judged else 8}", "batch.per_rank=16", "optim.lr=0.005", "schedule.name=constant", "log.every=2")
    with pace:
        run = train(config[:-len(".yaml")], config, "data.dir=" + bundle("data", "mnist"), CACHED, *(dry if DRY else ()))
    top1 = run.metrics("end")[-1]["best_top1"]
    rate_row(config, rate_of(run), f"; top-1 accuracy {top1:.4f}")
    if judged:
        judge("top-1 accuracy on MNIST", top1 >= MNIST_GOAL, top1, "", f"at least {MNIST_GOAL}")


def shipped_imagenet(pace, check, *sets):
    """The example config, on one rank and with these data. Returns the rate, or None if there is no time."""
    check = f"{IMAGENET} {check}"
    if not pace.allows(check):
        return None
    with pace:
        r = speed(f"shipped-{len(os.listdir(WORK))}", IMAGENET, CACHED, *IMAGENET_SETS, *sets, seconds=6.0, every=5)
    rate_row(check, r, f"; precision {r['precision']}")
    return r["images_per_sec"]


def step_shipped():
    """The example configs as they are, with the plans of the step tune. ImageNet is synthetic, or a few hundred real images."""
    pace = Pace(START_SECONDS + 6)
    shipped_mnist(pace, "mnist_ddp.yaml", judged=True)
    synthetic = shipped_imagenet(pace, "with images in device memory", "data.name=synthetic", *IMAGES, *SMALL_IMAGES)
    data = shards(2 if DRY else 256)
    jpeg = shipped_imagenet(pace, "from JPEG files", *data) if data else None
    if synthetic and jpeg:
        row(f"{IMAGENET}: JPEG files / images in device memory", MEASURED, jpeg / synthetic, "", "goal: 0.9")
    shipped_mnist(pace, "mnist_mlp.yaml", judged=False)


def step_resnet50():
    pace = Pace(START_SECONDS + 5)
    for precision in ("bf16", "fp16"):
        own_row(pace, "resnet50", 256, precision)
    own_row(pace, "resnet50", 256, "bf16", label=", not fused", env={"CTRAIN_CUDA_LEVEL": "0"})


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
        if self.why:
            raise ValueError(self.why)
        try:
            self.process.stdin.write(json.dumps({**request, "seconds": seconds}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.why = "torch_peer.py ended: see gate.log"
            raise ValueError(self.why) from None
        # One line for each request, so nothing can be left in Python's buffer.
        if not select.select([self.process.stdout], [], [], max(left() - 3, 0))[0]:
            self.why = "PyTorch did not answer in time"
            self.process.kill()
            raise ValueError(self.why)
        reply = json.loads(self.process.stdout.readline() or json.dumps({"error": "torch_peer.py ended: see gate.log"}))
        if "error" in reply:
            raise ValueError(reply["error"])
        return reply["images_per_sec"]

    def close(self):
        if self.process:
            self.process.kill()
            self.process.wait()


class Race:
    """One model, with ctrain and some modes of PyTorch. Each run is a row at once; the ratios are rows in the end."""

    def __init__(self, torch, model, batch, precision, modes, seconds):
        self.torch, self.what, self.seconds, self.modes = torch, f"{model} N={batch} {precision}", seconds, modes  # {mode: goal of the ratio, or None}
        self.key = {"model": model, "batch": batch, "precision": precision}
        self.rates, self.missing = {}, {mode: torch.why for mode in modes if torch.why}

    def measure(self, who):
        if who == "ctrain":
            return our_rate(**self.key, seconds=self.seconds)["images_per_sec"]
        return self.torch.rate(self.seconds, mode=who, **self.key)

    def round(self, pace):
        for who in ("ctrain", *self.modes):
            name = who if who == "ctrain" else f"PyTorch {who}"
            n = len(self.rates.get(who, ()))
            if who in self.missing or not pace.allows(f"{self.what}: {name}, run {n + 1}"):
                continue
            try:
                with pace:
                    rate = self.measure(who)
            except ValueError as e:
                self.missing[who] = str(e)
            except Failed as e:
                self.missing[who] = e.message
                row(f"{self.what}: ctrain", UNAVAILABLE if e.code == USAGE else FAIL, note=e.message)
            else:
                self.rates.setdefault(who, []).append(rate)
                row(f"{self.what}: {name}, run {n + 1}", MEASURED, rate, "images/s")

    def median(self, who, name):
        rate = statistics.median(self.rates[who])
        row(f"{self.what}: {name}", MEASURED, rate, "images/s", f"median of {len(self.rates[who])}", step_us=1e6 * self.key["batch"] / rate)
        return rate

    def result(self):
        ours = self.median("ctrain", "ctrain") if "ctrain" in self.rates else None
        for mode, goal in self.modes.items():
            if mode in self.missing:
                row(f"{self.what}: PyTorch {mode}", SKIPPED, note=self.missing[mode])
            if mode in self.rates:
                theirs = self.median(mode, f"PyTorch {mode}")
                if ours:
                    row(f"{self.what}: ctrain / PyTorch {mode}", MEASURED, ours / theirs, "", f"goal: {goal}" if goal else "")
        return ours


def alternate(contests, modes, rounds, seconds):
    """Races in turn: a round of each, then the next round of each, so that the first rounds are complete if there is no time for the others.
    contests: (model, batch, precision). Returns ctrain's median rates."""
    torch = Torch()
    races, pace = [Race(torch, *c, modes, seconds) for c in contests], Pace(START_SECONDS + seconds)
    for _ in range(1 if DRY else rounds):
        for race in races:
            race.round(pace)
    torch.close()
    return [race.result() for race in races]


def step_versus():
    alternate([("resnet50", 256, p) for p in ("fp16", "bf16")], {"eager": GOAL_EAGER, "graph": None}, rounds=2, seconds=3.0)


def step_small():
    contests = [(model, 64, "fp32") for model in ("mlp", "convnet")]
    rates = alternate(contests, {"eager": GOAL_SMALL_EAGER, "graph": GOAL_SMALL_GRAPH}, rounds=2, seconds=1.5)
    for (model, batch, precision), rate in zip(contests, rates):
        if rate:
            row(f"{model} N={batch} {precision}: time of a step", MEASURED, 1e6 * batch / rate, "us", f"goal: {GOAL_STEP_US} or less")


def step_compiled():
    alternate([("resnet50", 256, "bf16")], {"compile": None, "reduce-overhead": None}, rounds=2, seconds=3.0)


def step_sizes():
    """Only N = 256 has been tuned."""
    pace, label = Pace(START_SECONDS + 3), NOT_TUNED
    sizes = [("resnet50", n, p) for n in (64, 128, 512) for p in ("fp16", "bf16")]
    others = [(model, n, p) for model, n in (("resnet18", 256), ("resnet18_cifar", 512)) for p in ("fp16", "bf16")]
    for model, batch, precision in (*sizes[:1], *others[:1]) if DRY else (*sizes, *others, ("resnet50", 128, "tf32")):
        own_row(pace, model, batch, precision, 3.0, label)


def shards(copies):
    """Keys for a directory in which each shard of the bundle has several names: an epoch of a few hundred images would measure only its ends. ()
    if the bundle has no shards."""
    folder = os.path.join(WORK, "shards")
    if not os.path.isdir(bundle("data", "shards")):
        row("JPEG shards", SKIPPED, note="the bundle has no shards")
        return ()
    if not os.path.isdir(folder):
        os.makedirs(folder)
        names = sorted(f[:-len(".tar")] for f in os.listdir(bundle("data", "shards")) if f.endswith(".tar"))
        for i in range(copies):
            for ending in (".tar", ".idx"):
                os.symlink(bundle("data", "shards", names[i % len(names)] + ending), os.path.join(folder, f"train-{i:06d}{ending}"))
        os.symlink(bundle("data", "shards", "classes.txt"), os.path.join(folder, "classes.txt"))
    return ("data.dir=" + folder, "data.val=none", *(["data.train.size=32"] if DRY else []))


def step_shards():
    """JPEG files through the loader: the loader alone, and training with as many threads as possible."""
    data = shards(2 if DRY else 256)
    if not data:
        return
    out = program([bundle("bin", "ctrain"), "bench", "data", bundle("configs", IMAGENET), "--json", "--seconds", "1" if DRY else "6",
                   "--threads", str(CPUS), *data, *IMAGENET_SETS])
    if out.returncode != 0:
        raise Failed(out.returncode, out.stderr)
    j = json.loads(out.stdout)
    row("loader alone", MEASURED, j["images_per_sec"], "images/s", f"{j['threads']} threads; bound by {j['bound_by']}")
    workers = max(CPUS - 2, 1)
    shipped_imagenet(Pace(START_SECONDS + 6), f"from JPEG files, data.workers={workers} of {CPUS} CPUs", *data, f"data.workers={workers}")
