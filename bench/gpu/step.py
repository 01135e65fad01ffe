#!/usr/bin/env python3
"""One step of the gate: step.py NAME. gate.py starts it and sets its environment; its rows go to standard output."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import comm  # noqa: E402
import common  # noqa: E402
import correct  # noqa: E402
import machine  # noqa: E402
import peers  # noqa: E402
import speed  # noqa: E402
import tools  # noqa: E402

MODULES = (machine, correct, speed, tools, comm, peers)


def main():
    name = sys.argv[1]
    function = next(getattr(m, "step_" + name) for m in MODULES if hasattr(m, "step_" + name))
    try:
        function()
    except (common.Failed, OSError, subprocess.SubprocessError, KeyError, IndexError, ValueError) as e:
        common.row(name, common.ERROR, note=f"{type(e).__name__}: {e}")


if __name__ == "__main__":
    main()
