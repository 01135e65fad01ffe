"""What the steps of the gate share: the bundle, runs of ctrain, and rows of results (gate.py describes both)."""
import json
import os
import signal
import statistics
import subprocess
import sys
import time

# When the gate stops this step, on the clock of time.monotonic().
DEADLINE = float(os.environ.get("GATE_DEADLINE", "inf"))
BUNDLE = os.environ.get("GATE_BUNDLE", "")
WORK = os.environ.get("GATE_WORK", "")
DRY = os.environ.get("GATE_DRY") == "1"
PEERS = os.environ.get("GATE_PEERS") == "1"
DEVICE = ("device=cuda", "launch.procs=1")
CACHED = "train.autotune=cached"  # a start takes a known time: only the step tune measures plans (speed.first_start)
QUIET = ("log.tensorboard=false", "train.resume=never", "checkpoint.every_epochs=0", "checkpoint.best=false")
# For programs of the bundle; Python and the tools of the machine use their own libraries.
PROGRAM_ENV = {**os.environ, "LD_LIBRARY_PATH": os.environ.get("GATE_LIBRARIES", "")}
USAGE, COMM, STOPPED = 2, 5, 75
PASS, FAIL, MEASURED, UNAVAILABLE, SKIPPED, TIMEOUT, ERROR = "pass", "fail", "measured", "not available", "skipped", "timeout", "error"


def row(check, status, value=None, unit="", note="", **more):
    """Prints a row at once: the gate stores it even if this step fails or hangs later."""
    # One call, because several threads may do this.
    sys.stdout.write(json.dumps({"check": check, "status": status, "value": value, "unit": unit, "note": note, **more}) + "\n")
    sys.stdout.flush()


def describe(**about):
    """Adds to the description of the run in the results."""
    sys.stdout.write(json.dumps({"about": about}) + "\n")
    sys.stdout.flush()


def judge(check, good, value=None, unit="", note="", **more):
    row(check, PASS if good else FAIL, value, unit, note, **more)


def left():
    """The seconds until the gate stops this step."""
    return DEADLINE - time.monotonic()


class Pace:
    """Whether there is time for the next of several similar checks, which takes as long as the longest one so far.

    if pace.allows(check):
        with pace: ...
    """

    def __init__(self, seconds):
        self.longest = 0 if DRY else seconds  # a guess for the first one

    def allows(self, check):
        """Prints a row if there is too little time."""
        if left() > self.longest:
            return True
        row(check, SKIPPED, note=f"not run: out of time ({max(left(), 0):.0f} s of the step's time are left, and it needs about {self.longest:.0f})")
        return False

    def __enter__(self):
        self.begin = time.monotonic()

    def __exit__(self, *error):
        self.longest = max(self.longest, time.monotonic() - self.begin)


def bundle(*parts):
    return os.path.join(BUNDLE, *parts)


def program(command, env=None, **more):
    """Runs a program of the bundle to its end; its standard error also goes to the log."""
    out = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**PROGRAM_ENV, **(env or {})},
                         universal_newlines=True, errors="replace", **more)
    sys.stderr.write(f"$ {' '.join(map(str, command))}\n{out.stderr}")
    return out


class Failed(Exception):
    """A run of ctrain that did not end as expected."""

    def __init__(self, code, errors):
        lines = [line for line in errors.strip().splitlines() if line.strip()]
        self.code = code
        self.message = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "no message")
        super().__init__(f"ctrain ended with {code}: {self.message}")


class Run:
    """A run of ctrain in a run directory below WORK; keeps its metrics only."""

    def __init__(self, name, config, *sets, env=None):
        self.name, self.folder = name, os.path.join(WORK, name)
        self.log = os.path.join(WORK, name + ".err")
        self.config = " ".join([config, *sets])
        self.command = [bundle("bin", "ctrain"), bundle("configs", config), *DEVICE, "run.dir=" + self.folder, *sets]
        with open(self.log, "ab") as err:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err,
                                            env={**PROGRAM_ENV, **(env or {})})

    def wait(self, expect=0):
        code = self.process.wait()
        errors = self.errors()
        sys.stderr.write(f"$ {' '.join(self.command)}\n{errors}\n")
        if code != expect:
            raise Failed(code, errors)
        return self

    def errors(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def metrics(self, kind):
        """The complete lines of this kind so far."""
        try:
            with open(os.path.join(self.folder, "metrics.jsonl"), encoding="utf-8") as f:
                rows = [json.loads(line) for line in f if line.endswith("\n")]
        except FileNotFoundError:
            return []
        return [r for r in rows if r["kind"] == kind]

    def losses(self):
        by_step = {r["step"]: r["loss"] for r in self.metrics("step")}
        return [by_step[s] for s in sorted(by_step)]

    def digest(self):
        return self.metrics("end")[-1]["weights_digest"]


def train(name, config, *sets, env=None, expect=0):
    """Trains to the end. Raises Failed."""
    return Run(name, config, *sets, env=env).wait(expect)


def rate_of(run):
    """The median rate of the later steps of a run that has ended, and its config."""
    steps = run.metrics("step")
    rates = [r["images_per_sec"] for r in steps[len(steps) // 5:]]
    if not rates:
        raise Failed(run.process.returncode, "error: the run has no step lines")
    return {"images_per_sec": statistics.median(rates), "low": min(rates), "high": max(rates), "steps": steps[-1]["step"],
            "startup_seconds": run.metrics("end")[-1]["startup_seconds"], "precision": run.metrics("run")[-1]["precision"], "config": run.config}


def speed(name, config, *sets, seconds=5.0, every=10, env=None):
    """Trains until `seconds` after the first steps, or for 4 steps in a dry run. Returns the median rate of the later steps."""
    every = 1 if DRY else every
    sets = (*QUIET, *sets, "data.val=none", f"log.every={every}", *(["train.max_steps=4"] if DRY else []))
    run = Run(name, config, *sets, env=env)
    begin = None
    while run.process.poll() is None:
        steps = len(run.metrics("step"))
        begin = time.monotonic() if begin is None and steps >= 2 else begin
        if begin is not None and time.monotonic() - begin > seconds and steps >= 5:
            run.process.send_signal(signal.SIGTERM)
            break
        time.sleep(0.05)
    run.process.wait()
    run.wait(expect=run.process.returncode if run.process.returncode in (0, STOPPED) else 0)
    return rate_of(run)
