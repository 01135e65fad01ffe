"""What a result of bench/ states about the machine, and how much of its CPUs other processes used during a run."""

import json
import os
import resource
import subprocess
import sys
import time

# Those that decide which kernels are used, on x86-64 and aarch64.
FEATURES = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8", "asimd", "sve", "bf16", "i8mm")
DISTURBED = 0.05
CONTEXT = {**os.environ, "LC_ALL": "C"}


def onednn_of(program):
    """The version of oneDNN that a build of ctrain uses and the instructions, such as "2.6.3 avx512_core_bf16". None: the build does not name it."""
    info = json.loads(subprocess.run([program, "info", "--json"], env=CONTEXT, stdout=subprocess.PIPE, text=True, check=True).stdout)
    versions = [e.get("library") for e in info["engines"] if e["name"] == "onednn" and e["available"]]
    return versions[0].replace("oneDNN ", "", 1) if versions and versions[0] else None


def describe(*programs):
    """The processor, the CPUs of this process, and the versions of oneDNN of these builds of ctrain."""
    text = subprocess.run(["lscpu"], env=CONTEXT, stdout=subprocess.PIPE, text=True, check=True).stdout
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
    flags = fields.get("Flags", "").split()
    return {"processor": fields.get("Model name", "unknown"), "family": fields.get("CPU family", "unknown"), "model": fields.get("Model", "unknown"),
            "features": " ".join(f for f in FEATURES if f in flags), "cpus": len(os.sched_getaffinity(0)),
            "onednn": ", ".join(sorted({onednn_of(p) or "unknown" for p in programs}))}


def busy_seconds(stat, cpus):
    """CPU time of all processes, and of other virtual machines, on these CPUs. stat: the text of /proc/stat."""
    ticks = 0
    for line in stat.splitlines():
        name, *values = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cpus:
            user, nice, system, _, _, irq, softirq, steal = map(int, values[:8])
            ticks += user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK")


def own_seconds():
    """CPU time of this process and of those of its children, and their children, that have ended."""
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


class Watch:
    """`with Watch(name) as watch:` sets watch.others to the share of the CPUs that other processes used, and warns if it is more than 5 %."""

    def __init__(self, name):
        self.name, self.cpus = name, os.sched_getaffinity(0)

    def times(self):
        with open("/proc/stat", encoding="ascii") as f:
            return busy_seconds(f.read(), self.cpus), own_seconds(), time.monotonic()

    def __enter__(self):
        self.before = self.times()
        return self

    def __exit__(self, *error):
        busy, own, passed = (after - before for before, after in zip(self.before, self.times()))
        self.others = round(max((busy - own) / (passed * len(self.cpus)), 0), 3)
        if self.others > DISTURBED:
            print(f"warning: other processes used {self.others:.0%} of the CPUs during a run of {self.name}", file=sys.stderr)
