#!/usr/bin/env python3
"""Measures the store with many ranks on several hosts.

usage: bench/store_scale.py BUILD [--ranks 2048] [--hosts 4] [--procs 2] [--strangers 0] [--json]

BUILD is the build directory, with bench/store_clients. The hosts are network namespaces, joined by a bridge in another one; they end with
this program. Without root, or with --hosts 1, all ranks are on this host and its loopback interface. Each rank is a thread with the
connections that a real rank has. --strangers: this many connections per second from another namespace that send nothing, noise, or
requests of HTTP, or that read slowly.

Prints, for each phase, the seconds from its start to its end on the last rank, and the bytes that the host of the store has sent and received
(with the headers of packets). join: ct_world_join, until each rank has the list of all ranks. aux: the second connection of each rank. agree:
ct_world_agree, a barrier with a comparison. failure: from the moment at which a rank is lost until the last rank knows it. Rank 0 runs
the store here; a launcher's store would wait 100 ms longer, for the launcher that knows the reason."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time

import host

PORT = 29733
UNSHARE = ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
STRANGER = """
import os, random, socket, sys, time
address, rate = (sys.argv[1], int(sys.argv[2])), float(sys.argv[3])
sends = (b"", b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", os.urandom(300), b"CTSTORE4", b"CTSTORE4" + bytes(16), b"CTSTORE3")
held, n = [], 0
while True:
    try:
        s = socket.create_connection(address, 1)
        s.sendall(sends[n % len(sends)])
        held.append(s)
    except OSError:
        pass
    n += 1
    while len(held) > 300:
        held.pop(0).close()
    time.sleep(1 / rate)
"""


def run(*argv):
    r = subprocess.run([str(a) for a in argv], capture_output=True, text=True)
    if r.returncode != 0:
        sys.exit(f"{' '.join(map(str, argv))}: {r.stderr.strip()}")


class Host:
    """A network namespace that ends with its first process."""

    def __init__(self, name):
        self.holder = subprocess.Popen([*UNSHARE, "sh", "-c", "echo ready; exec sleep 3600"], stdout=subprocess.PIPE)
        self.holder.stdout.readline()
        with open(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children", encoding="ascii") as f:
            self.init = f.read().split()[0]
        self.prefix = ["nsenter", f"--target={self.init}", "--net", "--mount", "--uts", "--pid"]
        self.do("hostname", name)
        self.do("ip", "link", "set", "lo", "up")

    def do(self, *argv):
        run(*self.prefix, *argv)

    def end(self):
        self.holder.kill()
        self.holder.wait()


class Here:
    """This host, when there are no namespaces."""
    prefix = []

    def end(self):
        pass


def connect(switch, hosts):
    """A cable from each host to a bridge."""
    switch.do("ip", "link", "add", "br0", "type", "bridge")
    switch.do("ip", "link", "set", "br0", "up")
    for k, host in enumerate(hosts):
        # With the network of the switch and the processes of this host.
        run("nsenter", f"--target={switch.init}", "--net", "ip", "link", "add", f"p{k}", "type", "veth", "peer", "name", "eth0", "netns", host.init)
        switch.do("ip", "link", "set", f"p{k}", "master", "br0", "up")
        host.do("ip", "addr", "add", f"10.78.{k // 200}.{k % 200 + 1}/16", "dev", "eth0")
        host.do("ip", "link", "set", "eth0", "up")


def counters(host, interface):
    text = subprocess.run([*host.prefix, "cat", "/proc/net/dev"], capture_output=True, text=True, check=True).stdout
    fields = next(line for line in text.splitlines() if line.strip().startswith(interface + ":")).partition(":")[2].split()
    return int(fields[0]), int(fields[8])


class Clients:
    def __init__(self, a, host, address, first, count):
        argv = [*host.prefix, os.path.join(a.build, "bench", "store_clients"), address, str(PORT), str(a.ranks), str(first), str(count)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("store_clients ended")
        return json.loads(line)


def phase(all_clients, command):
    for c in all_clients:
        c.send(command)
    return [c.answer() for c in all_clients]


def fail_one(all_clients):
    """The last rank is lost. Returns when that was, and when the last of the others has learned it."""
    *others, last = all_clients
    for c in others:
        c.send("watch")
    last.send("watch but last")
    for c in all_clients:
        c.answer()
    last.send("drop")
    start = last.answer()["start"]
    return start, phase(all_clients, "collect")


def measure(a, all_clients, counted, interface):
    results = []
    for name in ("join", "aux", "agree", "failure"):
        before = counters(counted, interface)
        if name == "failure":
            start, lines = fail_one(all_clients)
        else:
            start = time.monotonic()
            lines = phase(all_clients, name)
        after = counters(counted, interface)
        results.append({"phase": name, "seconds": round(max(line["last"] for line in lines) - start, 4),
                        "first_s": round(min(line["first"] for line in lines) - start, 4), "received_bytes": after[0] - before[0],
                        "sent_bytes": after[1] - before[1]})
        if not a.json:
            r = results[-1]
            print(f"{name:8} {r['seconds']:9.3f} s   received {r['received_bytes'] / 1e6:9.3f} MB   sent {r['sent_bytes'] / 1e6:9.3f} MB", flush=True)
    phase(all_clients, "leave")
    return results


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build")
    p.add_argument("--ranks", type=int, default=2048)
    p.add_argument("--hosts", type=int, default=4)
    p.add_argument("--procs", type=int, default=2, help="processes of each host, among which its ranks are divided")
    p.add_argument("--strangers", type=float, default=0, help="foreign connections per second")
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    a.build = os.path.abspath(a.build)
    if os.geteuid() != 0 or not shutil.which("ip"):
        a.hosts = 1
    hosts, more, all_clients, strangers = [Here()], [], [], None
    address, interface = "127.0.0.1", "lo"
    try:
        if a.hosts > 1:
            hosts = [Host(f"scale{k}") for k in range(a.hosts)]
            more = [Host("scalesw"), Host("stranger")]
            connect(more[0], [*hosts, more[1]])
            address, interface = "10.78.0.1", "eth0"
        n = len(hosts) * a.procs
        cut = [a.ranks * i // n for i in range(n + 1)]
        all_clients = [Clients(a, hosts[i // a.procs], address, cut[i], cut[i + 1] - cut[i]) for i in range(n) if cut[i] < cut[i + 1]]
        if a.strangers:
            prefix = more[1].prefix if more else []
            strangers = subprocess.Popen([*prefix, sys.executable, "-c", STRANGER, address, str(PORT), str(a.strangers)])
        results = measure(a, all_clients, hosts[0], interface)
    finally:
        for p in [c.process for c in all_clients] + ([strangers] if strangers else []):
            p.kill()
            p.wait()
        for h in [*hosts, *more]:
            h.end()
    if a.json:
        print(json.dumps({"machine": host.describe(os.path.join(a.build, "ctrain")), "ranks": a.ranks, "hosts": a.hosts,
                          "strangers_per_second": a.strangers, "phases": results}))


if __name__ == "__main__":
    main()
