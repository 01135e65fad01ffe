"""Steps that compare results: equal, mnist, bits."""
import json

from cases import CASES, sets_of
from common import CACHED, COMM, DRY, FAIL, QUIET, UNAVAILABLE, USAGE, Failed, Pace, Run, bundle, has_key, judge, row, train

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
