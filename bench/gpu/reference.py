#!/usr/bin/env python3
"""Computes the losses that the gate expects, with the engine ref on the CPU: reference.py [--dry] BUNDLE. Writes BUNDLE/expected/NAME.json."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import CASES, DRY_STEPS, STEPS, sets_of  # noqa: E402


def losses(bundle, case, dry, work):
    config, sets = sets_of(case, os.path.join(bundle, "data"), DRY_STEPS if dry else STEPS, dry)
    command = [os.path.join(bundle, "bin", "ctrain"), os.path.join(bundle, "configs", config), "device=cpu", "train.engine=ref", "launch.procs=1",
               f"run.dir={work}/{case}", "train.resume=never", *sets]
    env = {**os.environ, "LD_LIBRARY_PATH": os.path.join(bundle, "lib")}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)
    with open(f"{work}/{case}/metrics.jsonl", encoding="utf-8") as f:
        return [r["loss"] for r in map(json.loads, f) if r["kind"] == "step"]


def main():
    dry, bundle = "--dry" in sys.argv[1:], sys.argv[-1]
    os.makedirs(os.path.join(bundle, "expected"), exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        for case in CASES:
            values = losses(bundle, case, dry, work)
            with open(os.path.join(bundle, "expected", case + ".json"), "w", encoding="utf-8") as f:
                json.dump({"case": case, "losses": values}, f)
            print(f"{case}: {len(values)} losses, {values[0]:.6f} to {values[-1]:.6f}")


if __name__ == "__main__":
    main()
