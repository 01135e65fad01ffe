"""Starts the real program, watches its processes and reads what it leaves behind.

A test is a method of a Case. It trains with self.train(...) and looks at the Result, or starts with self.start(...) and
then watches, signals and waits. Every process a Case starts carries a mark in its environment, so that none can hide:
`marked` finds them, and the Case ends what a failing test leaves.
"""

import ctypes
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import uuid
import zlib

SOURCE = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
CTRAIN = os.environ.get("CTRAIN_BIN", "")
# Writes models with random values, inputs and outputs.
MODEL_CASES = os.path.join(os.path.dirname(CTRAIN), "tests", "infer", "model_cases")
# A factor on every limit: sanitizers, emulators, loaded machines.
SLOW = float(os.environ.get("CTRAIN_E2E_SLOW", "1"))
MARK = "E2E_MARK"
# What other programs or an outer job may have set, and what would change what a test sees.
FOREIGN = re.compile(r"^(CTRAIN_|RANK$|WORLD_SIZE$|LOCAL_RANK$|LOCAL_WORLD_SIZE$|NODE_RANK$|MASTER_|SLURM_|OMPI_|PMI|TORCHELASTIC_|PET_|JOB_COMPLETION_INDEX$|OMP_|DNNL_|HWLOC_|COLUMNS$|LINES$)")
OK, USAGE, DATA, DEVICE, COMM, NUMERIC, IO, BUG, STOPPED = 0, 2, 3, 4, 5, 6, 7, 70, 75
PR_SET_PDEATHSIG = 1

# Trains in well under a second on the reference machine: 1000 samples, 21 steps an epoch, the last one of 40 rows.
TINY = """\
model: {name: mlp, hidden: [32]}
data: {name: synthetic, n_train: 1000, n_val: 230, shape: [1, 12, 12]}
batch: {global: 48}
optim: {lr: 0.05, momentum: 0.9}
train: {epochs: 2}
launch: {procs: 2, threads: 1}
log: {every: 1}
"""
TINY_STEPS_PER_EPOCH = 21
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x00020000, 0x4000, 1 << 18  # of unshare and mount


def shared(*parts):
    """A path in the directory of real data sets, or None where that is absent."""
    for root in (os.environ.get("CTRAIN_SHARED", ""), os.path.join(SOURCE, "..", "shared")):
        path = os.path.join(root, *parts)
        if root and os.path.exists(path):
            return os.path.realpath(path)
    return None


def libc(name, *args):
    """A call that has no name in Python's library; raises OSError."""
    lib = ctypes.CDLL(None, use_errno=True)
    args = [a.encode() if isinstance(a, str) else a for a in args]
    if getattr(lib, name)(*args) != 0:
        err = ctypes.get_errno()
        raise OSError(err, f"{name}: {os.strerror(err)}")


def own_mounts():
    """Mounts of this process are seen by it and its children alone, and vanish with it. Reason why not, or None."""
    if os.geteuid() != 0:
        return "mounting needs root"
    try:
        libc("unshare", CLONE_NEWNS)
        libc("mount", "none", "/", None, MS_REC | MS_PRIVATE, None)
    except (OSError, AttributeError) as e:
        return f"no private mounts here: {e}"
    return None


def pause():
    """Of a loop that asks again and again whether something has happened. Tests do not sleep for anything else (scripts/check_style.sh)."""
    time.sleep(0.005)


def read_text(path):
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as f:
            return f.read()
    except FileNotFoundError:
        return ""


def png_file(width, height, rows):
    """An RGB image; each of the rows begins with its filter, 0."""
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def tail(text, n=60):
    lines = text.splitlines()
    return "\n".join(["    | " + line for line in ([f"... {len(lines) - n} lines"] if len(lines) > n else []) + lines[-n:]])


def state_of(pid):
    """One letter of ps, "" when the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return ""


def marked(mark):
    """{pid: environment} of the living processes with the mark; those that have ended and wait to be reaped don't count."""
    found = {}
    wanted = f"{MARK}={mark}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as f:
                items = f.read().split(b"\0")
        except OSError:
            continue
        if wanted in items and state_of(name) not in ("", "Z", "X"):
            found[int(name)] = dict(i.decode(errors="replace").partition("=")[::2] for i in items if b"=" in i)
    return found


class Result:
    """An ended run: exit code (negative: died of that signal), what it printed, how long it took."""

    def __init__(self, argv, code, out, err, seconds):
        self.argv, self.code, self.out, self.err, self.seconds = argv, code, out, err, seconds

    def describe(self):
        return (f"\n  command: {' '.join(self.argv)}\n  exit code {self.code} after {self.seconds:.2f} s\n"
                f"  stdout:\n{tail(self.out)}\n  stderr:\n{tail(self.err)}")

    def json(self):
        return json.loads(self.out)


class Process:
    """A started program whose output goes to files, so that a pipe that is not read cannot block it."""

    count = 0

    def __init__(self, case, argv, env, cwd, **popen):
        Process.count += 1
        self.case, self.argv = case, argv
        self.base = os.path.join(case.tmp, f"output-{Process.count}")
        self.began = time.monotonic()
        with open(self.base + ".out", "wb") as out, open(self.base + ".err", "wb") as err:
            popen = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, "start_new_session": True, **popen}
            self.popen = subprocess.Popen(argv, env=env, cwd=cwd, **popen)
        self.pid = self.popen.pid

    @property
    def out(self):
        return read_text(self.base + ".out")

    @property
    def err(self):
        return read_text(self.base + ".err")

    def result(self):
        return Result(self.argv, self.popen.returncode, self.out, self.err, time.monotonic() - self.began)

    def wait(self, timeout=60):
        try:
            self.popen.wait(timeout * SLOW)
        except subprocess.TimeoutExpired:
            who = self.case.processes()
            self.case.end_all()
            raise AssertionError(f"still running after {timeout * SLOW:g} s, with processes {who}" + self.result().describe()) from None
        return self.result()

    def signal(self, sig):
        os.kill(self.pid, sig)


class Case(unittest.TestCase):
    maxDiff = 2000
    always = ()  # settings of every training that the case starts

    def setUp(self):
        self.tmp = tempfile.mkdtemp(prefix="ctrain-e2e-")
        self.mark = uuid.uuid4().hex
        self.addCleanup(shutil.rmtree, self.tmp, ignore_errors=True)
        self.addCleanup(self.end_all)

    # ---- files

    def path(self, *parts):
        return os.path.join(self.tmp, *parts)

    def write(self, name, text):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w" if isinstance(text, str) else "wb") as f:
            f.write(text)
        return path

    def config(self, text=TINY, name="tiny.yaml"):
        """Written once: programs that started a moment ago may be reading it."""
        path = self.path(name)
        return path if read_text(path) == text else self.write(name, text)

    # ---- processes

    def free_port(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return s.getsockname()[1]

    def env(self, extra=None):
        env = {k: v for k, v in os.environ.items() if not FOREIGN.match(k)}
        env[MARK] = self.mark
        env["XDG_CACHE_HOME"] = self.path("cache")
        env.update(extra or {})
        return env

    def start(self, *args, env=None, prefix=(), cwd=None, program=CTRAIN, **popen):
        if args and str(args[0]).endswith(".yaml"):
            args += self.always
        return Process(self, [*prefix, program, *map(str, args)], self.env(env), cwd or self.tmp, **popen)

    def run_ctrain(self, *args, expect=OK, env=None, timeout=60, **more):
        r = self.start(*args, env=env, **more).wait(timeout)
        self.assert_code(r, expect)
        return r

    def train(self, *sets, run="run", config=None, expect=OK, **more):
        """Trains the tiny config (or another) in the directory `run` and returns the Result."""
        return self.run_ctrain(config or self.config(), f"run.dir={self.path(run)}", *sets, expect=expect, **more)

    def start_training(self, *sets, run="run", config=None, **more):
        return self.start(config or self.config(), f"run.dir={self.path(run)}", *sets, **more)

    def marked(self):
        return marked(self.mark)

    def processes(self):
        """{pid: what} of what is still alive."""
        return {pid: f"rank {e['RANK']}" if "RANK" in e else "launcher" for pid, e in self.marked().items()}

    def rank_pid(self, rank):
        """The pid of a rank, None when there is no such process (any more)."""
        return next((pid for pid, e in self.marked().items() if e.get("RANK") == str(rank) and state_of(pid)), None)

    def end_all(self):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            left = self.marked()
            if not left:
                return
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            pause()

    def until(self, condition, what, process=None, seconds=20):
        """Polls until condition() is true; returns its value. Fails when the process ends before, or after so many seconds."""
        deadline = time.monotonic() + seconds * SLOW
        while True:
            value = condition()
            if value:
                return value
            over = process is not None and process.popen.poll() is not None
            if over or time.monotonic() > deadline:
                value = condition()
                if value:
                    return value
                why = "the program ended" if over else f"{seconds * SLOW:g} s passed"
                self.fail(f"{why} before {what}" + (process.result().describe() if process else ""))
            pause()

    def until_stopped(self, rank, process, seconds=20):
        """Waits until the rank has stopped (at a failpoint =stop); returns its pid."""
        def stopped():
            return next((pid for pid, e in self.marked().items() if e.get("RANK") == str(rank) and state_of(pid) == "T"), None)
        return self.until(stopped, f"rank {rank} stopped", process, seconds)

    def kill_stopped(self, rank, process, run, others, *says):
        """Kills the rank, which stops at a failpoint. Everything ends within 5 s, and the last message names the rank. The others end by
        themselves and know the reason, so the launcher does not have to kill them."""
        pid = self.until_stopped(rank, process)
        since = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        self.assert_gone(since, process, 5)
        r = process.wait(5)
        self.assert_code(r, COMM)
        self.assert_last_says(r, rf"rank {rank} \(pid {pid}\b", "signal 9", "hint:", *says)
        for other in others:
            self.assertRegex(read_text(self.path(run, "log", f"rank-{other:05d}.log")), rf"ends with PEER_LOST: .*rank {rank} \(pid {pid}\b")

    def until_step(self, step, process, run="run", seconds=20):
        def reached():
            return any(m["step"] >= step for m in self.metrics(run, "step", partial=True))
        self.until(reached, f"step {step} was in metrics.jsonl", process, seconds)

    def assert_gone(self, since, process, seconds=5):
        """Every process of the case is gone `seconds` after the moment `since`."""
        while self.marked():
            if time.monotonic() - since > seconds * SLOW:
                left = self.processes()
                self.end_all()
                self.fail(f"{seconds * SLOW:g} s later there is still {left}" + process.result().describe())
            pause()

    # ---- what a run says and leaves

    def assert_code(self, r, code):
        if r.code != code:
            self.fail(f"expected exit code {code}, got {r.code}" + r.describe())

    def finish(self, processes, code=OK):
        """Waits for all of them; no other process may remain."""
        results = [p.wait() for p in processes]
        for r in results:
            self.assert_code(r, code)
        self.assertEqual(self.marked(), {})
        return results

    def assert_says(self, r, *patterns):
        """Each regular expression is found in standard error; letter case does not matter."""
        for p in patterns:
            if not re.search(p, r.err, re.I | re.S):
                self.fail(f"standard error does not match /{p}/" + r.describe())

    def assert_last_says(self, r, *patterns):
        """The same for the final message, which starts with `ctrain: error: ` and ends the output."""
        message = r.err[max(r.err.rfind("ctrain: error: "), 0):]
        for p in patterns:
            if not re.search(p, message, re.I | re.S):
                self.fail(f"the last message does not match /{p}/" + r.describe())

    def assert_quiet(self, r):
        """No warning, no error, no sanitizer report."""
        for p in (r"\b(warn|error) ", r"Sanitizer", r"runtime error:"):
            if re.search(p, r.err):
                self.fail(f"standard error matches /{p}/" + r.describe())

    def metrics(self, run="run", kind=None, partial=False):
        """Objects of RUN/metrics.jsonl. partial: the run is going on and the last line may be unfinished."""
        text = read_text(self.path(run, "metrics.jsonl"))
        if partial:
            text = text[:text.rfind("\n") + 1]
        elif not text.endswith("\n"):
            self.fail(f"{run}/metrics.jsonl does not end with a line feed: {text[-200:]!r}")
        objects = [json.loads(line) for line in text.splitlines()]
        return [o for o in objects if kind is None or o["kind"] == kind]

    def losses(self, run="run"):
        """{step: loss}; each step must be there once."""
        steps = self.metrics(run, "step")
        numbers = [m["step"] for m in steps]
        self.assertEqual(numbers, sorted(set(numbers)), f"steps of {run}/metrics.jsonl are not each there once and in order")
        return {m["step"]: m["loss"] for m in steps}

    def digest(self, run="run"):
        ends = self.metrics(run, "end")
        self.assertTrue(ends, f"{run}/metrics.jsonl has no `end`")
        return ends[-1]["weights_digest"]

    def checkpoints(self, run="run"):
        folder = self.path(run, "checkpoints")
        return sorted(n for n in os.listdir(folder) if n.startswith("step-")) if os.path.isdir(folder) else []

    def assert_checkpoints_whole(self, run="run", at_least=1):
        """Every checkpoint that is listed passes `ckpt verify`, and no temporary directory is left."""
        names = self.checkpoints(run)
        self.assertGreaterEqual(len(names), at_least, f"checkpoints of {run}: {names}")
        for name in names:
            self.run_ctrain("ckpt", "verify", self.path(run, "checkpoints", name))

    def reference(self, *sets):
        """Losses and digest of the uninterrupted run with these settings; computed once for each."""
        if sets not in REFERENCES:
            self.train(*sets, run="reference")
            REFERENCES[sets] = (self.losses("reference"), self.digest("reference"))
        return REFERENCES[sets]

    def assert_equals_reference(self, *sets, run="run"):
        """A run that was interrupted and resumed has the losses, steps and weights of one that was not."""
        losses, digest = self.reference(*sets)
        self.assertEqual(self.losses(run), losses)
        self.assertEqual(self.digest(run), digest)


REFERENCES = {}


def both_ways_to_save(cls):
    """Runs the cases of cls twice: as they are, with checkpoints written while training continues, and as <cls>Waiting, with training that
    waits until each checkpoint is stored. A failpoint ckpt.* is reached in the same save either way, as each save waits for the one before
    it. At a failpoint in training, the newest save is stored if training waits for it; otherwise it may still be written, and only the save
    before it is stored for certain."""
    name = cls.__name__ + "Waiting"
    waiting = type(name, (cls,), {"always": (*cls.always, "checkpoint.background=false"), "__module__": cls.__module__, "__qualname__": name})
    setattr(sys.modules[cls.__module__], name, waiting)
    return cls


def safetensors(path):
    """{name: (dtype, shape, bytes)} of a safetensors file, and its metadata."""
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, t in header.items():
        a, b = t["data_offsets"]
        tensors[name] = (t["dtype"], t["shape"], data[8 + n + a:8 + n + b])
    return tensors, metadata


def die_with_parent():
    """For preexec_fn: the helper processes of a test end with it, whatever it ends of."""
    libc("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class TimedResult(unittest.TextTestResult):
    def startTest(self, test):
        self.began = time.monotonic()
        super().startTest(test)

    def addSuccess(self, test):
        unittest.TestResult.addSuccess(self, test)
        self.stream.writeln(f"ok ({time.monotonic() - self.began:.1f} s)")
        self.stream.flush()


def main():
    """Runs the cases of the calling script; arguments select those whose names contain one of them. Exits 77 when all are skipped."""
    if not CTRAIN or not os.access(CTRAIN, os.X_OK):
        print(f"CTRAIN_BIN={CTRAIN!r} is no program: set it to the ctrain to test", file=sys.stderr)
        sys.exit(1)
    loader = unittest.TestLoader()
    if sys.argv[1:]:
        loader.testNamePatterns = [f"*{a}*" for a in sys.argv[1:]]
    suite = loader.loadTestsFromModule(sys.modules["__main__"])
    result = unittest.TextTestRunner(verbosity=2, resultclass=TimedResult).run(suite)
    # The id of a subtest is followed by a space and its parameters.
    skipped = {(test.id().partition(" ")[0], reason): None for test, reason in result.skipped}
    for test, reason in skipped:
        print(f"SKIPPED {test}: {reason}", file=sys.stderr)
    n_skipped = len({test for test, _ in skipped})
    print(f"{result.testsRun} cases, {n_skipped} skipped, {len(result.failures) + len(result.errors)} failed", file=sys.stderr)
    if not result.wasSuccessful() or result.testsRun == 0:
        sys.exit(1)
    sys.exit(77 if n_skipped == result.testsRun else 0)
