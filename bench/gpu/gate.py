#!/usr/bin/env python3
"""Runs the steps of the gate on a machine with a GPU, or with --dry on the software GPU. scripts/gpu_gate.sh starts it.

  gate.py [--dry] [--only STEP,...] [--budget SECONDS] [--scale FACTOR] BUNDLE OUT

BUNDLE is made by scripts/gpu_bundle.sh. Each step is a process (step.py NAME) with a time limit, and prints its results, one JSON object
("row") per line. The gate adds the name of the step, and stores each row in OUT/gate.jsonl at once. A step that fails or hangs gets a row
that says so, and the next step begins. Steps for which too little of the budget is left are skipped. --scale multiplies the time limits, for
slow machines. After each step, OUT/gate.json and OUT/gate.md have all rows; OUT/gate.log has what the steps printed on standard error;
OUT/plans.txt has the plans that ctrain chose for this GPU, and OUT/device.json the description of the GPU for cuDNN. OUT has few files and no
directories, so that it can be copied back from anywhere. To continue with these plans, store plans.txt in the bundle as plans/NAME.txt, with
the name that the row "plans" has.

Status of a row: pass, fail (a result is wrong), measured (a speed), not available (this build or machine does not have it), skipped,
timeout, error (a step broke). Exit status: 0 if no row is fail, timeout or error, else 1; 2: wrong arguments.

Environment: CTRAIN_CUDA_LIBS names directories with CUDA's libraries; without it, the gate searches Python's packages (nvidia/*/lib) and
the toolkit. GATE_PYTHON is the Python that has PyTorch [this one; in a dry run, none].
"""
import argparse
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from plan import STEPS  # noqa: E402
import report  # noqa: E402

BAD = ("fail", "timeout", "error")
LIBRARIES = ("libcudart.so.13", "libcudnn.so.9")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dry", action="store_true")
    p.add_argument("--only", default="")
    p.add_argument("--budget", type=float, default=570)
    p.add_argument("--scale", type=float, default=1)
    p.add_argument("bundle")
    p.add_argument("out")
    a = p.parse_args()
    a.bundle, a.out = os.path.abspath(a.bundle), os.path.abspath(a.out)
    unknown = set(filter(None, a.only.split(","))) - {s.name for s in STEPS}
    if unknown:
        p.error(f"--only: there is no step {', '.join(sorted(unknown))}; the steps are {', '.join(s.name for s in STEPS)}")
    if not os.path.isdir(a.bundle):
        p.error(f"{a.bundle} is not a directory")
    return a


def python_packages(python):
    """The directories nvidia/*/lib of the packages of this Python."""
    code = "import nvidia, os; print('\\n'.join(os.path.join(p, d, 'lib') for p in nvidia.__path__ for d in sorted(os.listdir(p))))"
    try:
        out = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20)
        return [d for d in out.stdout.decode().split("\n") if os.path.isdir(d)] if out.returncode == 0 else []
    except (OSError, subprocess.TimeoutExpired):
        return []


def cuda_directories(a, python):
    """The directories that CTRAIN_CUDA_LIBS gets. PyTorch's libraries are preferred, because the speeds are compared with PyTorch's."""
    if a.dry:
        return [os.path.join(a.bundle, "soft")]
    if os.environ.get("CTRAIN_CUDA_LIBS"):
        return os.environ["CTRAIN_CUDA_LIBS"].split(":")
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-13*"))]
    found = python_packages(python) + [os.path.join(r, d) for r in roots if r for d in ("lib64", "lib")]
    return [d for d in found if os.path.isdir(d)]


def work_directory(a):
    """For runs: in memory if there is much of it, so that the speed of a disk has no influence."""
    memory = "/dev/shm"
    enough = not a.dry and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 16 << 30
    return tempfile.mkdtemp(prefix="ctrain-gate-", dir=memory if enough else None)


def prepare(a, work):
    """The plans of an earlier run, and permissions that a copy may have lost."""
    os.makedirs(plans_of(work))
    for path in glob.glob(os.path.join(glob.escape(a.bundle), "plans", "*.txt")):
        shutil.copy(path, plans_of(work))
    for path in glob.glob(os.path.join(glob.escape(a.bundle), "bin", "*")) + glob.glob(os.path.join(glob.escape(a.bundle), "tests", "*")):
        if not os.access(path, os.X_OK):
            try:
                os.chmod(path, 0o755)
            except OSError:
                pass  # the step that needs it reports this


def plans_of(work):
    return os.path.join(work, "cache", "ctrain", "plans")


def environment(a, work):
    python = os.environ.get("GATE_PYTHON") or ("" if a.dry else sys.executable)
    cuda = cuda_directories(a, python)
    missing = [name for name in LIBRARIES if not any(os.path.exists(os.path.join(d, name)) for d in cuda)]
    libraries = [os.path.join(a.bundle, "lib"), *cuda, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CTRAIN_", "SOFT_", "RANK", "WORLD_SIZE", "LOCAL_"))}
    env.setdefault("CUDA_VISIBLE_DEVICES", "0")  # the tests expect one device
    return {**env, "GATE_BUNDLE": a.bundle, "GATE_OUT": a.out, "GATE_WORK": work, "GATE_DRY": "1" if a.dry else "0",
            "GATE_SCALE": str(a.scale), "GATE_PYTHON": python, "GATE_MISSING": " ".join(missing), "GATE_SEARCHED": ":".join(cuda),
            "CTRAIN_CUDA_LIBS": ":".join(cuda), "GATE_LIBRARIES": ":".join(libraries), "XDG_CACHE_HOME": os.path.join(work, "cache"),
            "PYTHONUNBUFFERED": "1"}


class Gate:
    def __init__(self, a):
        self.a, self.rows, self.lock, self.begin = a, [], threading.Lock(), time.monotonic()
        self.step = ""
        self.file = open(os.path.join(a.out, "gate.jsonl"), "w", encoding="utf-8")
        self.log = open(os.path.join(a.out, "gate.log"), "ab")

    def left(self):
        return self.a.budget - (time.monotonic() - self.begin)

    def store(self, step, entry):
        entry = {"step": step, "at": round(time.monotonic() - self.begin, 2), **entry}
        with self.lock:
            self.rows.append(entry)
            self.file.write(json.dumps(entry) + "\n")
            self.file.flush()
            os.fsync(self.file.fileno())
        value = "" if entry.get("value") is None else f" {entry['value']} {entry.get('unit', '')}"
        print(f"{entry['at']:7.1f} s  {step:10}  {entry['status']:13}  {entry['check']}{value}  {entry.get('note', '')}".rstrip(), flush=True)

    def collect(self, step, stream):
        """Stores the rows of a step as they arrive. Lines that are no rows go to the log."""
        for line in stream:
            try:
                entry = json.loads(line)
                self.store(step, {"check": entry["check"], "status": entry["status"], **entry})
            except (ValueError, KeyError, TypeError):
                self.log.write(line)

    def run(self, step, env):
        full = step.seconds * self.a.scale
        limit = min(full, self.left())
        if limit < step.least * self.a.scale:
            self.store(step.name, {"check": step.name, "status": "skipped",
                                   "note": f"{max(self.left(), 0):.0f} s are left, and it needs {step.least * self.a.scale:.0f}"})
            return
        self.log.write(f"\n== {step.name} (limit {limit:.0f} s)\n".encode())
        self.log.flush()
        begin = time.monotonic()
        env = {**env, "GATE_DEADLINE": str(begin + limit)}
        command = [sys.executable, "-B", os.path.join(HERE, "step.py"), step.name]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, env=env, start_new_session=True)
        reader = threading.Thread(target=self.collect, args=(step.name, child.stdout), daemon=True)
        reader.start()
        timed_out = False
        try:
            child.wait(limit)
        except subprocess.TimeoutExpired:
            timed_out = True
        try:
            os.killpg(child.pid, signal.SIGKILL)  # also what the step has left running
        except ProcessLookupError:
            pass
        code = child.wait()
        reader.join(5)
        if timed_out and limit < full:
            self.store(step.name, {"check": step.name, "status": "skipped", "note": f"stopped after {limit:.0f} s, when the gate's time was over"})
        elif timed_out:
            self.store(step.name, {"check": step.name, "status": "timeout", "note": f"stopped after {limit:.0f} s"})
        elif code != 0:
            self.store(step.name, {"check": step.name, "status": "error", "note": f"the step ended with {code}: see gate.log"})
        self.log.write(f"== {step.name}: {time.monotonic() - begin:.1f} s\n".encode())

    def report(self):
        with self.lock:
            report.write(self.a.out, self.rows, dry=self.a.dry, seconds=round(time.monotonic() - self.begin, 1))

    def keep_plans(self, work):
        for path in glob.glob(os.path.join(glob.escape(plans_of(work)), "*.txt"))[:1]:
            shutil.copy(path, os.path.join(self.a.out, "plans.txt"))
            self.store("end", {"check": "plans", "status": "measured", "value": os.path.basename(path)})

    def close(self):
        self.file.close()
        self.log.close()


def main():
    a = arguments()
    os.makedirs(a.out, exist_ok=True)
    gate = Gate(a)
    work = work_directory(a)
    only = set(filter(None, a.only.split(",")))
    try:
        prepare(a, work)
        env = environment(a, work)
        for step in STEPS:
            if not only or step.name in only:
                gate.run(step, env)
                gate.report()
    finally:
        gate.keep_plans(work)
        gate.report()
        gate.close()
        shutil.rmtree(work, ignore_errors=True)
    bad = [r for r in gate.rows if r["status"] in BAD]
    print(f"{len(gate.rows)} rows, {len(bad)} bad: {a.out}/gate.md")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
