"""Steps that use NVIDIA's tools, where the machine has them: sanitizer, profile; and questions to cuDNN: norms."""
import csv
import json
import os
import re
import shutil
import subprocess
import threading

from cases import sets_of
from common import CACHED, DEVICE, DRY, FAIL, MEASURED, PROGRAM_ENV, QUIET, SKIPPED, UNAVAILABLE, WORK, Pace, bundle, judge, left, program, row
from speed import IMAGES, SMALL

# Kernels on small shapes; initcheck and synccheck are quick, racecheck is about shared memory.
CHECKS = (("memcheck", "test_cuda_layer_kernels"), ("racecheck", "test_cuda_layer_kernels"), ("memcheck", "test_cuda_kernels"),
          ("racecheck", "test_cuda_kernels"), ("memcheck", "test_cuda_update_kernels"), ("racecheck", "test_cuda_update_kernels"),
          ("synccheck", "test_cuda_layer_kernels"), ("initcheck", "test_cuda_layer_kernels"))
# ncu writes one of these units, depending on its version.
NANOSECONDS = {"nsecond": 1, "ns": 1, "usecond": 1e3, "us": 1e3, "msecond": 1e6, "ms": 1e6}
METRICS = {"gpu__time_duration.sum": "time", "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram",
           "sm__throughput.avg.pct_of_peak_sustained_elapsed": "sm"}
LAUNCHES, SKIPPED_LAUNCHES, LONGEST = 450, 3000, 12  # about one step, after several
# One process without a launcher, which the tools would also watch.
ONE_RANK = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29400"}


def sanitize(pace, tool, name, command, seconds, env=None):
    check = f"{tool} {name}"
    if not pace.allows(check):
        return
    seconds = max(min(seconds, left() - 2), 1)
    try:
        with pace:
            out = program(["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", *command], timeout=seconds, env=env)
    except subprocess.TimeoutExpired:
        row(check, UNAVAILABLE, note=f"did not end within {seconds:.0f} s")
        return
    said = out.stdout + out.stderr
    if "Device not supported" in said:  # for example, a machine under gVisor
        row(check, UNAVAILABLE, note="compute-sanitizer does not support this machine: Device not supported")
        return
    summary = re.search(r"(ERROR|RACECHECK) SUMMARY: (.*)", said)
    if not summary:
        row(check, UNAVAILABLE, note=(said.strip().splitlines() or ["no output"])[-1][:200])
        return
    n = int(re.match(r"\d+", summary[2])[0])
    judge(check, n == 0 and out.returncode == 0, n, "errors", summary[2] if n or out.returncode == 0 else f"ended with {out.returncode}")


def step_sanitizer():
    if not shutil.which("compute-sanitizer"):
        row("compute-sanitizer", UNAVAILABLE, note="compute-sanitizer is not installed")
        return
    pace = Pace(5)
    for tool, name in CHECKS[:2] if DRY else CHECKS:
        sanitize(pace, tool, name, [bundle("tests", name)], 15)
    config, sets = sets_of("bottleneck", bundle("data"), 2, DRY)
    sanitize(pace, "memcheck", "training step", [bundle("bin", "ctrain"), bundle("configs", config), *DEVICE, *QUIET, *sets, CACHED,
                                                 "train.cuda_graph=off", "run.dir=" + os.path.join(WORK, "sanitized")], 40, ONE_RANK)


def resnet50(*more):
    sets = SMALL if DRY else (*IMAGES, "batch.per_rank=256")
    return [bundle("configs", "bench", "resnet50.yaml"), *DEVICE, "precision=bf16", *sets, *more]


def own_times():
    """The times of a step and, if the engine measures them, of its layers."""
    out = program([bundle("bin", "ctrain"), "bench", "step", *resnet50(), "--steps", "2" if DRY else "20", "--json"])
    if out.returncode != 0:
        row("bench step", FAIL, note=out.stderr.strip()[-300:])
        return
    j = json.loads(out.stdout)
    phases = ", ".join(f"{k[:-3]} {j[k]:.2f} ms" for k in ("data_ms", "forward_ms", "backward_ms", "optim_ms"))
    row("bench step", MEASURED, j["step_ms_median"], "ms", phases)
    times = sorted(((n["forward_ms"] + n["backward_ms"], n) for n in j["nodes"]), key=lambda pair: -pair[0])
    layers = [pair for pair in times if pair[0] > 0][:LONGEST]
    for ms, n in layers:
        row(f"layer {n['name']} ({n['op']})", MEASURED, ms, "ms", f"forward {n['forward_ms']:.3f} ms")
    if not layers:
        row("times of layers", UNAVAILABLE, note="this engine does not measure them")


def read_kernels(path):
    """{kernel: {metric: [value of each launch]}} from ncu's table, times in microseconds."""
    kernels = {}
    with open(path, encoding="utf-8", errors="replace", newline="") as f:
        lines = [line for line in f if not line.startswith("==")]
    for r in csv.DictReader(lines):
        metric = METRICS.get(r.get("Metric Name", ""))
        if metric:
            value = float(r["Metric Value"].replace(",", ""))
            value *= NANOSECONDS.get(r["Metric Unit"], 1) / 1e3 if metric == "time" else 1
            name = r["Kernel Name"].replace("(anonymous namespace)::", "").split("(")[0][:90]
            kernels.setdefault(name[:90], {}).setdefault(metric, []).append(value)
    return kernels


def step_profile():
    own_times()
    if not shutil.which("ncu"):
        row("longest kernels", UNAVAILABLE, note="ncu is not installed")
        return
    table = os.path.join(WORK, "ncu.csv")
    skip, count = (0, 20) if DRY else (SKIPPED_LAUNCHES, LAUNCHES)
    command = ["ncu", "--target-processes", "all", "--clock-control", "none", "--metrics", ",".join(METRICS), "--launch-skip", str(skip),
               "--launch-count", str(count), "--kill", "yes", "--csv", "--log-file", table, bundle("bin", "ctrain"),
               *resnet50(*QUIET, "train.cuda_graph=off", "data.val=none", "train.max_steps=%d" % (2 if DRY else 12),
                         "run.dir=" + os.path.join(WORK, "profiled"))]
    try:
        ended = f"ended with {program(command, ONE_RANK, timeout=max(left() - 2, 1)).returncode}"
    except subprocess.TimeoutExpired:
        ended = "did not end in time"
    kernels = read_kernels(table) if os.path.exists(table) else {}
    total = sum(sum(k.get("time", [])) for k in kernels.values())
    if not total:
        row("longest kernels", UNAVAILABLE, note=f"ncu {ended} and measured nothing: see gate.log")
        return
    n = sum(len(k.get("time", [])) for k in kernels.values())
    row("profiled kernels", MEASURED, total, "us", f"{n} launches; each kernel alone, so their sum is an upper bound of their share of a step")
    for name, k in sorted(kernels.items(), key=lambda item: -sum(item[1].get("time", [])))[:LONGEST]:
        times = k["time"]
        mean = {m: sum(k[m]) / len(k[m]) for m in ("dram", "sm") if m in k}
        row(f"kernel {name}", MEASURED, 100 * sum(times) / total, "%", f"{len(times)} launches, {sum(times) / len(times):.1f} us each" +
            "".join(f", {m} {v:.0f} %" for m, v in mean.items()))


def step_norms():
    """How many plans cuDNN can make of each graph that bench/cudnn_norms.c asks about (docs/DECISIONS.md, decision 24)."""
    path, device = bundle("bin", "cudnn_norms"), os.path.join(WORK, "device.json")
    if not os.path.exists(path):
        row("NORM graphs", UNAVAILABLE, note="the bundle has no cudnn_norms")
        return
    if not os.path.exists(device):
        row("NORM graphs", SKIPPED, note="the step facts has not written device.json")
        return
    child = subprocess.Popen([path, device], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=PROGRAM_ENV, universal_newlines=True)
    timer = threading.Timer(max(left() - 2, 1), child.kill)
    timer.start()
    for line in child.stdout:
        cells = line.rstrip("\n").split("\t")
        if len(cells) == 7 and cells[2].isdigit():
            graph, precision, _, engines, compiled, finalized, reason = cells
            row(f"{graph}, {precision}", MEASURED, int(finalized), "plans", f"{engines.count(',')} engines, {compiled} of them compiled at run time" +
                (f"; {reason}" if reason else ""))
    code = child.wait()
    timer.cancel()
    if code != 0:
        row("NORM graphs", UNAVAILABLE, note=f"cudnn_norms ended with {code}: see gate.log")
