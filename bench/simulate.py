#!/usr/bin/env python3
"""Compares the step times that `ctrain plan --simulate` predicts with measured ones, for 1 to 4 ranks with gloo.

    sudo bench/simulate.py [--config bench/configs/scaling.yaml] [--rate 1gbit] [--ranks 4] [--rounds 3] [--json FILE] [KEY=VALUE ...]

Each rank runs in a network namespace of its own. The namespaces are joined by a bridge, and `tc` limits the rate of each in both directions.
They have no names and end with this script. The link is measured by `ctrain bench comm` between two namespaces: the line through the times
of all-reduces of 1 MiB and 8 MiB has the latency 2 alpha, and its slope is the inverse of the bandwidth. The step of a rank is measured by `ctrain bench step` while the other ranks run
the same, because ranks share the CPUs of this machine: rank i runs on CPU i modulo the number of CPUs. The slowest rank counts. Nothing is
fitted to the step times of training. Times are medians, over steps or all-reduces; of the rounds, that with the smallest median counts, for
all figures. Measure on a quiet machine."""

import argparse
import ctypes
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile

import host

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))
PORT = 29877
PR_SET_PDEATHSIG = 1
SMALL, LARGE = 1 << 20, 1 << 23


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def sh(*argv):
    subprocess.run([str(a) for a in argv], check=True)


class Namespace:
    def __init__(self):
        # The shell writes a line when the namespace exists, and is then replaced by the process that holds it.
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE,
                                       preexec_fn=die_with_parent)
        if not self.holder.stdout.readline():
            sys.exit("simulate: network namespaces need root")
        self.prefix = ["nsenter", f"--target={self.holder.pid}", "--net"]
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *argv):
        sh(*self.prefix, *argv)


def limit(where, device, rate):
    # The burst holds the largest packet that TCP hands to a device: 64 KiB and headers. With a smaller burst, the kernel splits these packets.
    # This takes CPU time from the ranks; with a real network card, the card does it.
    where.run("tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "66kb", "latency", "50ms")


def connect(hub, nodes, rate):
    hub.run("ip", "link", "add", "ctbridge", "type", "bridge")
    hub.run("ip", "link", "set", "ctbridge", "up")
    for k, node in enumerate(nodes):
        hub.run("ip", "link", "add", f"port{k}", "type", "veth", "peer", "name", "eth0", "netns", str(node.holder.pid))
        hub.run("ip", "link", "set", f"port{k}", "mtu", "9000", "master", "ctbridge", "up")
        node.run("ip", "addr", "add", f"10.78.0.{k + 1}/24", "dev", "eth0")
        node.run("ip", "link", "set", "eth0", "mtu", "9000", "up")
        limit(hub, f"port{k}", rate)
        limit(node, "eth0", rate)


class Bench:
    def __init__(self, a, nodes, tmp):
        self.a, self.nodes, self.tmp = a, nodes, tmp
        self.cpus = sorted(os.sched_getaffinity(0))
        self.runs = 0

    def start(self, rank, *argv):
        cpu = self.cpus[rank % len(self.cpus)]
        argv = [*self.nodes[rank].prefix, "taskset", "-c", str(cpu), self.a.ctrain, *map(str, argv)]
        env = {**os.environ, "CTRAIN_TOKEN": "of this benchmark", "CTRAIN_LOG": "error"}
        return subprocess.Popen(argv, env=env, cwd=self.tmp, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)

    def finish(self, processes):
        out = [p.communicate()[0] for p in processes]
        if any(p.returncode for p in processes):
            sys.exit(f"simulate: {' '.join(processes[0].args)} ended with {[p.returncode for p in processes]}")
        return out

    def sets(self):
        return [self.a.config, "device=cpu", "dist.backend=gloo", "launch.threads=1", *self.a.sets]

    def together(self, n, *argv):
        """Runs one command as n ranks on n nodes, and returns what rank 0 prints."""
        where = ("--nodes", n, "--procs", 1, "--master-addr", "10.78.0.1", "--master-port", PORT)
        return self.finish([self.start(r, *argv, "--node-rank", r, *where) for r in range(n)])[0]

    def link(self):
        best = {SMALL: float("inf"), LARGE: float("inf")}
        for _ in range(2 * self.a.rounds):
            text = self.together(2, "bench", "comm", *self.sets(), "--op", "allreduce", "--min", SMALL, "--max", LARGE, "--factor", LARGE // SMALL,
                                 "--json")
            for row in json.loads(text)["rows"]:
                best[row["bytes"]] = min(best[row["bytes"]], row["us"])
        us_per_byte = (best[LARGE] - best[SMALL]) / (LARGE - SMALL)
        return max(0, best[SMALL] - us_per_byte * SMALL) / 2, 1e-3 / us_per_byte

    def step_ms(self, n):
        """Forward pass, backward pass and update of the slowest of n ranks that compute at the same time."""
        argv = ("bench", "step", *self.sets(), "--steps", self.a.steps, "--json")
        texts = self.finish([self.start(r, *argv) for r in range(n)])
        slowest = max((json.loads(t) for t in texts), key=lambda j: j["step_ms_median"])
        return [slowest["step_ms_median"] * slowest[k] / sum(slowest[m] for m in ("data_ms", "forward_ms", "backward_ms", "optim_ms"))
                for k in ("forward_ms", "backward_ms", "optim_ms")] + [slowest["step_ms_median"]]

    def predict(self, n, step, link):
        forward, backward, update, whole = step
        times = f"{whole - backward - update},{backward},{update}"
        text = self.finish([self.start(0, "plan", *self.sets(), "--simulate", f"{n}x1", "--step-ms", times, "--link-inter",
                                       f"{link[0]},{link[1]}", "--json")])[0]
        return json.loads(text)["rows"][0]

    def measure(self, n):
        """Median step and exposed communication of a training run."""
        self.runs += 1
        run = os.path.join(self.tmp, f"run-{self.runs}")
        self.together(n, *self.sets(), f"run.dir={run}", f"train.max_steps={self.a.steps}", "train.resume=never", "log.every=1", "log.console=off")
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as f:
            lines = [j for j in map(json.loads, f) if j["kind"] == "step"][3:]
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as f:
            batch = next(j["global_batch"] for j in map(json.loads, f) if j["kind"] == "run")
        return (statistics.median(batch / j["images_per_sec"] * 1000 for j in lines), statistics.median(j["exposed_comm_ms"] for j in lines))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--config", default=os.path.join(ROOT, "bench", "configs", "scaling.yaml"))
    p.add_argument("--rate", default="1gbit", help="of each network interface, for tc")
    p.add_argument("--ranks", type=int, default=4)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--ctrain", default=os.path.join(ROOT, "build", "release", "ctrain"))
    p.add_argument("--json", help="file for the results")
    p.add_argument("sets", nargs="*", metavar="KEY=VALUE")
    a = p.parse_args()
    a.config, a.ctrain = os.path.abspath(a.config), os.path.abspath(a.ctrain)
    hub, nodes = Namespace(), [Namespace() for _ in range(a.ranks)]
    connect(hub, nodes, a.rate)
    rows = []
    with tempfile.TemporaryDirectory(prefix="ctrain-simulate-") as tmp:
        bench = Bench(a, nodes, tmp)
        link = bench.link()
        print(f"link: {link[0]:.1f} us, {link[1]:.4f} GB/s")
        print(f"{'ranks':>5} {'compute ms':>11} {'predicted ms':>13} {'measured ms':>12} {'error':>8} {'exposed: predicted':>19} {'measured':>9}")
        for n in range(1, a.ranks + 1):
            pairs = [(bench.step_ms(n), bench.measure(n)) for _ in range(a.rounds)]
            step = min((s for s, _ in pairs), key=lambda s: s[3])
            measured, exposed = min(m for _, m in pairs)
            row = bench.predict(n, step, link)
            error = row["step_ms"] / measured - 1
            print(f"{n:>5} {step[3]:>11.2f} {row['step_ms']:>13.2f} {measured:>12.2f} {error:>+8.1%} {row['exposed_comm_ms']:>19.2f} {exposed:>9.2f}",
                  flush=True)
            rows.append({"ranks": n, "compute_ms": step[3], "predicted_ms": row["step_ms"], "measured_ms": measured, "error": error,
                         "predicted_exposed_ms": row["exposed_comm_ms"], "measured_exposed_ms": exposed})
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"machine": host.describe(a.ctrain), "config": os.path.relpath(a.config, ROOT), "rate": a.rate, "sets": a.sets,
                       "rounds": a.rounds, "alpha_us": link[0], "gbps": link[1], "rows": rows}, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
