#!/usr/bin/env python3
"""The runs of the gate whose operation graphs bench/cudnn_plans.c asks cuDNN about. Writes runs.tsv: a config of the repository and the keys on
which graphs depend, separated by tabs. runs.py --check: only compares."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "runs.tsv")
sys.path.insert(0, HERE)
os.environ["GATE_PYTHON"] = ""
import speed  # noqa: E402
from cases import CASES, STEPS, sets_of  # noqa: E402

KEYS = ("model.", "batch.", "train.accumulate", "data.name", "data.shape", "data.classes")


def line(config, sets):
    return "\t".join([config.replace("bench/", "bench/configs/"), *(s for s in sets if s.startswith(KEYS))])


def measured():
    """What the steps that measure speed would run: each of their runs goes through our_rate, which here only notes the model and the batch."""
    found = []

    def note(model, batch, *_, **__):
        config, sets, _ = speed.MODELS[model]
        found.append(line(config, (*sets, f"batch.per_rank={batch}")))
        return {"images_per_sec": 1, "low": 1, "high": 1, "steps": 1, "startup_seconds": 1, "config": ""}

    speed.our_rate = note
    speed.first_start = speed.row = lambda *_, **__: None
    speed.Pace.allows = lambda *_: True
    for step in (speed.step_resnet50, speed.step_versus, speed.step_small, speed.step_sizes, speed.step_compiled):
        step()
    return found


def main():
    runs = [line(*sets_of(case, "", STEPS)) for case in CASES] + measured()
    text = "".join(run + "\n" for run in dict.fromkeys(runs))
    if "--check" not in sys.argv[1:]:
        with open(TABLE, "w", encoding="utf-8") as f:
            f.write(text)
        return 0
    with open(TABLE, encoding="utf-8") as f:
        same = f.read() == text
    if not same:
        print("bench/gpu/runs.tsv does not have the runs of the gate: make it again with bench/gpu/runs.py, and then the table of plans "
              "with build/release/bench/cudnn_plans", file=sys.stderr)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
