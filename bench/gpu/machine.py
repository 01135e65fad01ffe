"""Steps that look at the machine and the bundle: start, facts, tests."""
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

from common import DRY, ERROR, FAIL, MEASURED, PASS, PEERS, PROGRAM_ENV, SKIPPED, TIMEOUT, UNAVAILABLE, WORK, bundle, describe, judge, left, program, row

AT_ONCE = 4  # test programs: most of their time, they compute on one CPU what the GPU has to compute
LEAST_SECONDS = 4  # a test program does not begin if less of the step's time is left


def check_manifest():
    """Every file that the bundle was made with is there, unchanged."""
    bad, n = [], 0
    with open(bundle("MANIFEST"), encoding="utf-8") as f:
        for line in f:
            want, _, name = line.rstrip("\n").partition("  ")
            n += 1
            try:
                with open(bundle(name), "rb") as g:
                    if hashlib.sha256(g.read()).hexdigest() != want:
                        bad.append(name + " has changed")
            except OSError as e:
                bad.append(f"{name}: {e.strerror}")
    judge("files of the bundle", n > 0 and not bad, n, "files", "; ".join(bad[:5]))


def step_start():
    check_manifest()
    row("machine", MEASURED, f"{platform.machine()}, {os.cpu_count()} CPUs, {' '.join(platform.libc_ver())}, kernel {platform.release()}")
    missing = os.environ.get("GATE_MISSING")
    judge("CUDA libraries", not missing, note=f"missing: {missing}; searched: {os.environ['GATE_SEARCHED']}" if missing else "")
    if not DRY and shutil.which("nvidia-smi"):
        out = program(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,pcie.link.gen.current", "--format=csv,noheader"])
        row("nvidia-smi", MEASURED if out.returncode == 0 else UNAVAILABLE, out.stdout.strip())
    out = program([bundle("bin", "ctrain"), "info", "--json"])
    if out.returncode != 0:
        judge("ctrain info", False, note=out.stderr.strip()[-300:])
        return
    info = json.loads(out.stdout)
    cuda = info.get("cuda", {})  # missing if the module cannot be opened
    describe(libraries=cuda.get("libraries"), devices=cuda.get("devices"), settings=info["settings"])
    for what in ("devices", "engines"):
        entry = next((e for e in info[what] if e["name"] == "cuda"), {"available": False, "why": "ctrain info does not list it"})
        judge(f"cuda in {what}", entry["available"], note=entry.get("why", ""))
    if PEERS:
        cards = next((e["count"] for e in info["devices"] if e["name"] == "cuda"), 0)
        nccl = next((e for e in info["communicators"] if e["name"] == "nccl"), {"available": False, "why": "this ctrain has no communicator nccl"})
        judge("GPUs", cards > 1, cards, note="" if cards > 1 else "--peers needs two or more")
        judge("NCCL", nccl["available"], note=nccl.get("why", nccl.get("library", "")))


def step_facts():
    """bench/gpu_facts.c prints rows; the JSON of the device goes to a file for cuDNN's queries without a GPU."""
    child = subprocess.Popen([bundle("bin", "gpu_facts"), *(["--quick"] if DRY else [])], stdout=subprocess.PIPE, env=PROGRAM_ENV)
    for line in child.stdout:
        fact = json.loads(line)
        if fact["check"] == "device json" and fact["status"] == MEASURED:
            with open(os.path.join(WORK, "device.json"), "w", encoding="utf-8") as f:
                f.write(fact["value"] + "\n")
            describe(device_json=fact["value"])
            fact["value"] = len(fact["value"])
            fact["unit"] = "bytes"
        row(fact.pop("check"), fact.pop("status"), **fact)
    code = child.wait()
    judge("gpu_facts", code == 0, note=f"ended with {code}: see gate.log" if code else "")


def run_test(name):
    """Runs one program. Its rows are printed when it ends, so that one that hangs does not hide the others."""
    seconds = left()
    if seconds < LEAST_SECONDS:
        row(name, SKIPPED, note=f"not run: out of time ({max(seconds, 0):.0f} s of the step's time are left, and it needs at least {LEAST_SECONDS})")
        return
    try:
        out = program([bundle("tests", name)], timeout=seconds - 2)
    except subprocess.TimeoutExpired:
        row(name, TIMEOUT, note=f"did not end within {seconds - 2:.0f} s")
        return
    except OSError as e:
        row(name, ERROR, note=str(e)[:200])
        return
    said = out.stdout + out.stderr
    passed = re.search(r"\[  PASSED  \] (\d+) test", said)
    if out.returncode == 77:
        row(name, UNAVAILABLE, note=said.strip().splitlines()[-1] if said.strip() else "")
        return
    if out.returncode == 0 and passed:
        skipped = len(set(re.findall(r"\[  SKIPPED \] (test_\w+)", said)))
        row(name, PASS, int(passed[1]), "tests", f"{skipped} for the software GPU only" if skipped else "")
        return
    failed = sorted(set(re.findall(r"\[  FAILED  \] (test_\w+)", said)))
    row(name, FAIL, int(passed[1]) if passed else 0, "tests", f"ended with {out.returncode}: {', '.join(failed) or said.strip()[-200:]}")


def step_tests():
    """The programs in tests/ of the bundle, which are linked to the CUDA libraries (in a dry run, to the software GPU)."""
    with ThreadPoolExecutor(min(AT_ONCE, os.cpu_count() or 1)) as pool:
        list(pool.map(run_test, sorted(os.listdir(bundle("tests")))))
