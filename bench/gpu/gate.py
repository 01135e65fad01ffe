#!/usr/bin/env python3
"""Runs the steps of the gate on a machine with a GPU, or with --dry on the software GPU. scripts/gpu_gate.sh starts it.

  gate.py [--peers] [--dry] [--only STEP,...] [--budget SECONDS] [--scale FACTOR] [--plans FILE] BUNDLE OUT

BUNDLE is made by scripts/gpu_bundle.sh. Each step is a process (step.py NAME) with a time limit, and prints its results, one JSON object
("row") per line. The gate adds the name of the step, and stores each row at once in OUT/gate.json, which has everything that is worth sending
(report.py). A step that fails or hangs gets a row that says so, and the next step begins. Steps and checks for which too little time is left
get a row "not run: out of time". OUT/gate.log has what the steps printed on standard error.

--peers: the steps for two or more GPUs; without it, the steps for one. --budget: seconds in all [570; with --peers 120]. --scale multiplies
the time limits of the steps, for slow machines. --plans: the gate.json of another run on the same kind of machine, whose plans are used.

Status of a row: pass, fail (a result is wrong), measured (a speed), not available (this build or machine does not have it), skipped,
timeout, error (a step broke). Exit status: 1 if a row is fail, timeout or error; otherwise 3 if the gate was stopped or one of the steps that
check results (plan.REQUIRED, plan.PEERS_REQUIRED) has not run completely, for example because of --only; otherwise 0. 2: wrong arguments.

Environment: CTRAIN_CUDA_LIBS names directories with CUDA's libraries; without it, the gate searches Python's packages (nvidia/*/lib) and
the toolkit. CUDA_VISIBLE_DEVICES selects GPUs [0; with --peers, all]. GATE_PYTHON is the Python that has PyTorch [this one; in a dry run,
none].
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
from plan import PEER_STEPS, PEERS_REQUIRED, REQUIRED, STEPS  # noqa: E402
import report  # noqa: E402

MOST_LOG = 8000  # bytes of a step with a bad row that go to the results
STATUS = {"pass": 0, "fail": 1, "incomplete": 3}  # by verdict
LIBRARIES = ("libcudart.so.13", "libcudnn.so.9")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--peers", action="store_true")
    p.add_argument("--dry", action="store_true")
    p.add_argument("--only", default="")
    p.add_argument("--budget", type=float)
    p.add_argument("--scale", type=float, default=1)
    p.add_argument("--plans")
    p.add_argument("bundle")
    p.add_argument("out")
    a = p.parse_args()
    a.bundle, a.out = os.path.abspath(a.bundle), os.path.abspath(a.out)
    a.budget = a.budget or (120 if a.peers else 570)
    steps = PEER_STEPS if a.peers else STEPS
    only = list(filter(None, a.only.split(",")))
    unknown = set(only) - {s.name for s in steps}
    if unknown:
        p.error(f"--only: there is no step {', '.join(sorted(unknown))}; the steps are {', '.join(s.name for s in steps)}")
    a.steps = [s for s in steps if not only or s.name in only]
    if not os.path.isdir(a.bundle):
        p.error(f"{a.bundle} is not a directory")
    try:
        a.plans = plans_in(a.plans) if a.plans else None
    except (OSError, ValueError, KeyError, TypeError) as e:
        p.error(f"--plans: {a.plans} is not the gate.json of a gate that has chosen plans ({e!r})")
    return a


def plans_in(path):
    """The plans in the results of another run, as (name, text)."""
    with open(path, encoding="utf-8") as f:
        plans = json.load(f)["plans"]
    return os.path.basename(plans["name"]), plans["text"]


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
    """The plans of another run, and permissions that a copy may have lost."""
    if a.plans:
        name, text = a.plans
        os.makedirs(plans_of(work))
        with open(os.path.join(plans_of(work), name), "w", encoding="utf-8") as f:
            f.write(text)
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
    if a.peers and a.dry:
        env.update(SOFT_GPU_DEVICES="2", SOFT_NCCL_VERSION="23007")
    elif not a.peers:
        env.setdefault("CUDA_VISIBLE_DEVICES", "0")  # the tests expect one device
    return {**env, "GATE_BUNDLE": a.bundle, "GATE_WORK": work, "GATE_DRY": "1" if a.dry else "0",
            "GATE_PEERS": "1" if a.peers else "0",
            "GATE_SCALE": str(a.scale), "GATE_PYTHON": python, "GATE_MISSING": " ".join(missing), "GATE_SEARCHED": ":".join(cuda),
            "CTRAIN_CUDA_LIBS": ":".join(cuda), "GATE_LIBRARIES": ":".join(libraries), "XDG_CACHE_HOME": os.path.join(work, "cache"),
            "PYTHONUNBUFFERED": "1"}


class Stopped(Exception):
    """A signal asks the gate to end."""


def stop(number, _frame):
    raise Stopped(signal.Signals(number).name)


class Gate:
    def __init__(self, a, work):
        self.a, self.work, self.lock = a, work, threading.Lock()
        with open(os.path.join(a.bundle, "VERSION"), encoding="utf-8") as f:
            commit = f.read().strip()
        self.results = report.Results(os.path.join(a.out, "gate.json"), [s.name for s in a.steps],
                                      PEERS_REQUIRED if a.peers else REQUIRED, commit=commit, peers=a.peers, dry=a.dry, options=sys.argv[1:])
        log = os.path.join(a.out, "gate.log")
        if os.path.exists(log):
            os.remove(log)
        self.log = open(log, "ab", buffering=0)  # the steps append to it, too

    def left(self):
        return self.a.budget - self.results.seconds()

    def store(self, step, entry):
        with self.lock:
            r = self.results.add(step, entry)
        value = "" if r.get("value") is None else f" {r['value']} {r.get('unit', '')}"
        print(f"{r['at']:7.1f} s  {step:10}  {r['status']:13}  {r['check']}{value}  {r.get('note', '')}".rstrip(), flush=True)

    def collect(self, step, stream):
        """Stores the rows of a step as they arrive. Lines that are no rows go to the log."""
        for line in stream:
            try:
                entry = json.loads(line)
                if "about" in entry:
                    with self.lock:
                        self.results.about.update(entry["about"])
                else:
                    self.store(step, {"check": entry["check"], "status": entry["status"], **entry})
            except (ValueError, KeyError, TypeError):
                self.log.write(line)

    def run(self, step, env):
        full = step.seconds * self.a.scale
        limit = min(full, self.left())
        if limit < step.least * self.a.scale:
            self.store(step.name, {"check": step.name, "status": "skipped", "note": f"not run: out of time ({max(self.left(), 0):.0f} s are left, and "
                                   f"it needs {step.least * self.a.scale:.0f})"})
            return
        self.log.write(f"\n== {step.name} (limit {limit:.0f} s)\n".encode())
        begin, start = time.monotonic(), self.log.tell()
        state = self.results.steps[step.name]
        state["state"] = "running"
        code = self.wait(step, limit, {**env, "GATE_DEADLINE": str(begin + limit)})
        if code is None and limit < full:
            self.store(step.name, {"check": step.name, "status": "skipped", "note": f"stopped after {limit:.0f} s: the gate was out of time"})
        elif code is None:
            self.store(step.name, {"check": step.name, "status": "timeout", "note": f"stopped after {limit:.0f} s"})
        elif code != 0:
            self.store(step.name, {"check": step.name, "status": "error", "note": f"the step ended with {code}: see gate.log"})
        seconds = time.monotonic() - begin
        state.update(state="stopped" if code is None else "done", seconds=round(seconds, 1))
        if self.results.bad(step.name):
            state["log"] = self.end_of_log(start)
        self.log.write(f"== {step.name}: {seconds:.1f} s\n".encode())

    def wait(self, step, limit, env):
        """Returns the exit status of the step, or None if it had to be stopped."""
        command = [sys.executable, "-B", os.path.join(HERE, "step.py"), step.name]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, env=env, start_new_session=True)
        reader = threading.Thread(target=self.collect, args=(step.name, child.stdout), daemon=True)
        reader.start()
        code = None
        try:
            code = child.wait(limit)
        except subprocess.TimeoutExpired:
            pass
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)  # also what the step has left running
            except ProcessLookupError:
                pass
            child.wait()
            reader.join(5)
        return code

    def end_of_log(self, start):
        with open(self.log.name, "rb") as f:
            f.seek(max(start, os.path.getsize(f.name) - MOST_LOG))
            return f.read().decode(errors="replace")

    def keep_plans(self):
        for path in glob.glob(os.path.join(glob.escape(plans_of(self.work)), "*.txt"))[:1]:
            with open(path, encoding="utf-8") as f:
                self.results.about["plans"] = {"name": os.path.basename(path), "text": f.read()}

    def run_all(self, env):
        """Returns whether nothing has stopped the gate."""
        try:
            for step in self.a.steps:
                self.run(step, env)
                self.keep_plans()
                if self.a.peers and step.name == "start" and self.results.bad("start"):
                    raise Stopped("the step start has failed")
            return True
        except Stopped as e:
            for name, state in self.results.steps.items():
                if state["state"] == "running":
                    state["state"] = "stopped"
                if state["state"] != "done" and not any(r["step"] == name and r["check"] == name for r in self.results.rows):
                    self.store(name, {"check": name, "status": "skipped", "note": f"{state['state']}: {e}"})
            return False

    def close(self, complete):
        """Returns the verdict."""
        self.log.close()
        return self.results.write(complete)


def main():
    a = arguments()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    os.makedirs(a.out, exist_ok=True)
    work = work_directory(a)
    try:
        prepare(a, work)
        gate = Gate(a, work)
        verdict = gate.close(gate.run_all(environment(a, work)))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{verdict}: {len(gate.results.rows)} rows, {len(gate.results.bad())} bad; the results are in {gate.results.path}")
    sys.exit(STATUS[verdict])


if __name__ == "__main__":
    main()
