"""What a result of bench/ states about the machine."""

import json
import os
import subprocess

# Those that decide which kernels are used, on x86-64 and aarch64.
FEATURES = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8", "asimd", "sve", "bf16", "i8mm")
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
