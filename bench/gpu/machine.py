"""Steps that look at the machine and the bundle: start, facts, tests."""
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess

from common import DRY, ERROR, FAIL, MEASURED, PASS, PROGRAM_ENV, SKIPPED, bundle, judge, program, row

LONGEST_TEST = 40  # seconds


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
    with open(bundle("VERSION"), encoding="utf-8") as f:
        row("version", MEASURED, f.read().strip())
    row("machine", MEASURED, f"{platform.machine()}, {os.cpu_count()} CPUs, {' '.join(platform.libc_ver())}, kernel {platform.release()}")
    missing = os.environ.get("GATE_MISSING")
    judge("CUDA libraries", not missing, note=f"missing: {missing}; searched: {os.environ['GATE_SEARCHED']}" if missing else "")
    if not DRY and shutil.which("nvidia-smi"):
        out = program(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,pcie.link.gen.current", "--format=csv,noheader"])
        row("nvidia-smi", MEASURED if out.returncode == 0 else ERROR, out.stdout.strip())
    out = program([bundle("bin", "ctrain"), "info", "--json"])
    if out.returncode != 0:
        judge("ctrain info", False, note=out.stderr.strip()[-300:])
        return
    info = json.loads(out.stdout)
    for what in ("devices", "engines"):
        entry = next((e for e in info[what] if e["name"] == "cuda"), {"available": False, "why": "ctrain info does not list it"})
        judge(f"cuda in {what}", entry["available"], note=entry.get("why", ""))


def step_facts():
    """bench/gpu_facts.c prints rows; the JSON of the device goes to a file for cuDNN's queries without a GPU."""
    child = subprocess.Popen([bundle("bin", "gpu_facts"), *(["--quick"] if DRY else [])], stdout=subprocess.PIPE, env=PROGRAM_ENV)
    for line in child.stdout:
        fact = json.loads(line)
        if fact["check"] == "device json" and fact["status"] == MEASURED:
            with open(os.path.join(os.environ["GATE_OUT"], "device.json"), "w", encoding="utf-8") as f:
                f.write(fact["value"] + "\n")
            fact["value"] = len(fact["value"])
            fact["unit"] = "bytes in device.json"
        row(fact.pop("check"), fact.pop("status"), **fact)
    code = child.wait()
    judge("gpu_facts", code == 0, note=f"ended with {code}: see gate.log" if code else "")


def step_tests():
    """The programs in tests/ of the bundle, which are linked to the CUDA libraries (in a dry run, to the software GPU)."""
    for name in sorted(os.listdir(bundle("tests"))):
        try:
            out = program([bundle("tests", name)], timeout=LONGEST_TEST)
        except Exception as e:  # one program that hangs must not hide the others
            row(name, FAIL, note=str(e)[:200])
            continue
        said = out.stdout + out.stderr
        passed = re.search(r"\[  PASSED  \] (\d+) test", said)
        if out.returncode == 77:
            row(name, SKIPPED, note=said.strip().splitlines()[-1] if said.strip() else "")
        else:
            failed = re.findall(r"\[  FAILED  \] (test_\w+)", said)
            row(name, PASS if out.returncode == 0 and passed else FAIL, int(passed[1]) if passed else 0, "tests",
                "" if out.returncode == 0 else f"ended with {out.returncode}: {', '.join(sorted(set(failed))) or said.strip()[-200:]}")
