"""Steps that compare results: equal, bits."""
import json

from cases import CASES, sets_of
from common import CACHED, COMM, DRY, FAIL, QUIET, UNAVAILABLE, USAGE, Failed, Pace, Run, bundle, judge, row, train

# Largest relative deviation of a loss from ref's.
TOLERANCES = {"fp32": 1e-5, "tf32": 5e-3, "bf16": 3e-2, "fp16": 5e-3}


def deviation(got, want):
    if len(got) != len(want):
        return float("inf")
    return max(abs(x - y) / abs(y) for x, y in zip(got, want))


def compare(case, precision, pace):
    with open(bundle("expected", case + ".json"), encoding="utf-8") as f:
        want = json.load(f)["losses"]
    config, sets = sets_of(case, bundle("data"), len(want), DRY)
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
        others = {"bf16": ("resnet20",), "fp16": ("bottleneck",)}.get(precision, ()) if DRY else ("resnet20", "bottleneck")
        for case in CASES if precision == "fp32" else others:
            compare(case, precision, pace)


# What must not change the weights: {case: {check: keys}}.
SAME = {
    "convnet": {"repeated": (), "recorded = plain": ("train.cuda_graph=off",), "images on the device = on the host": ("data.on_device=off",)},
    "bottleneck": {"repeated": (), "recorded = plain": ("train.cuda_graph=off",)},
    "mlp": {"several steps in one graph = one": ("train.graph_steps=1",)},
}
BASE = ("train.cuda_graph=on", "data.on_device=on", "train.graph_steps=3")


def bits_case(case):
    config, sets = sets_of(case, bundle("data"), 8 if DRY else 50, DRY)
    return config, (*sets, CACHED, *BASE)


def same(pace, case):
    """Compares runs with the first one. Returns its digest, or None if there is no time for it."""
    config, sets = bits_case(case)
    digest = None
    for i, (check, more) in enumerate({"first": (), **SAME[case]}.items()):
        if not pace.allows(f"{case}: {check}"):
            return digest
        with pace:
            found = train(f"bits-{case}-{i}", config, *QUIET, *sets, *more).digest()
        digest = digest or found
        if i > 0:
            judge(f"{case}: {check}", found == digest, found[:16], "", "" if found == digest else f"the first run has {digest[:16]}")
    return digest


def resumed(pace, case, digest):
    check = f"{case}: killed and resumed = uninterrupted"
    if not pace.allows(check):
        return
    config, sets = bits_case(case)
    keep = [s for s in QUIET if not s.startswith("train.resume=")] + ["train.resume=auto", "checkpoint.every_steps=2"]
    with pace:
        Run(f"resumed-{case}", config, *keep, *sets, env={"CTRAIN_FAILPOINT": "step:5"}).wait(COMM)
        again = train(f"resumed-{case}", config, *keep, *sets)
    start = again.metrics("run")[-1]["resumed_step"]
    judge(check, start > 0 and again.digest() == digest, start, "", "the step from which it continued")


def step_bits():
    pace = Pace(4)
    for case in SAME:
        digest = same(pace, case)
        if case == "convnet" and digest:
            resumed(pace, case, digest)
