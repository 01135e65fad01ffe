"""Addresses of hosts that do not work, and strangers that connect to the store of a run. The hosts are namespaces (hosts.py)."""

import json
import os
import shutil
import signal
import subprocess
import sys
import unittest

from harness import COMM, CTRAIN, Case, die_with_parent, main, read_text
from hosts import ADDRESS, HOST, PORT, HostsCase, why_not

NO_HOSTS = why_not() if __name__ == "__main__" else None
BENCH = os.path.join(os.path.dirname(CTRAIN or ""), "bench", "store_clients")
SCALE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "store_scale.py")

# Connects to the store at argv 1:2 in each way that a stranger may choose, until it is killed. Prints a line after each round.
STRANGERS = """
import os, resource, select, socket, struct, sys, time
address = (sys.argv[1], int(sys.argv[2]))
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
def frame(op, body, length=None):
    return struct.pack("<IHhQ", len(body) if length is None else length, op, 0, 0) + body
hello = b"CTSTORE4" + frame(14, b"c" * 32)
sends = [b"", b"\\0", b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", b"\\x16\\x03\\x01\\x02\\0\\x01\\0\\x01\\xfc\\x03\\x03" + os.urandom(32), os.urandom(4000),
         b"CTSTORE3", b"CTSTORE4", b"CTSTORE4" + frame(14, b"", 0xffffffff), b"CTSTORE4" + frame(14, b"c"), hello, hello + frame(1, os.urandom(90)),
         hello + frame(1, b"", 0x7fffffff), hello * 20, hello + frame(2, b"key"), hello[:-1]]
slow, held = [], []
while True:
    for data in sends:
        try:
            s = socket.create_connection(address, 1)
            s.sendall(data)
            held.append(s)
        except OSError:
            pass
    # Slow clients send one byte of a valid beginning in each round. Others end with a reset.
    try:
        slow.append([socket.create_connection(address, 1), 0])
        s = socket.create_connection(address, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.sendall(hello[:20])
        s.close()
    except OSError:
        pass
    for c in slow[:]:
        try:
            c[0].sendall(hello[c[1]:c[1] + 1])
            c[1] += 1
        except OSError:
            slow.remove(c)
    while len(held) > 1000:
        held.pop(0).close()
    print("round", flush=True)
"""

# Connects to the ports of argv 2: of a range FIRST-LAST on the hosts of argv 1, or, if there is no range, to all ports that listen on this host. It keeps
# some of the connections, sends what a rank or a stranger could send, and prints a line after each round.
STRANGERS_OF_RANKS = """
import os, resource, socket, struct, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
hello = b"CTRANK01" + struct.pack("<II", 1, 0) + os.urandom(32)
sends = [b"", b"GET / HTTP/1.1\\r\\n\\r\\n", os.urandom(300), bytes(4096), hello[:20], hello, hello + os.urandom(32)]
held, n = [], 0
def listening():
    if sys.argv[2]:
        first, last = sys.argv[2].split("-")
        return [(host, port) for host in sys.argv[1].split(",") for port in range(int(first), int(last) + 1)]
    found = []
    for line in open("/proc/net/tcp").readlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        if state == "0A":
            found.append((socket.inet_ntoa(struct.pack("<I", int(local[:8], 16))), int(local[9:], 16)))
    return found
while True:
    for address in listening():
        s = socket.socket()
        s.settimeout(0.2)
        try:
            s.connect(address)
            s.sendall(sends[n % len(sends)])
            held.append(s)
            n += 1
        except OSError:
            s.close()
    while len(held) > 500:
        held.pop(0).close()
    print("round", n, flush=True)
"""
DROPPED = r"dropped \d+ connections? to 10\.77\.0\.[12] port \d+ that gave no proof"


@unittest.skipIf(NO_HOSTS, NO_HOSTS)
class Addresses(HostsCase):
    """Host 1 resolves the name of host 0 to several addresses, or to a wrong one."""

    def name_leads_to(self, *addresses):
        lines = "".join(f"{a} {HOST[0]}\n" for a in addresses)
        hosts = self.write("hosts-wrong", f"127.0.0.1 localhost\n127.0.1.1 {HOST[1]}\n{lines}")
        self.hosts[1].run("mount", "--bind", hosts, "/etc/hosts")

    def docker0(self):
        for host in self.hosts:
            host.run("ip", "link", "add", "docker0", "type", "bridge")
            host.run("ip", "addr", "add", "172.17.0.1/16", "dev", "docker0")
            host.run("ip", "link", "set", "docker0", "up")

    def trains(self, *words):
        nodes = self.both("log.level=info")
        self.finish(nodes)
        losses, _ = self.reference()
        for step, loss in self.losses().items():
            self.assertAlmostEqual(loss / losses[step], 1, delta=1e-6, msg=f"step {step}")
        text = nodes[1].err + read_text(self.path("run", "log", "rank-00002.log"))
        for w in words:
            self.assertRegex(text, w)

    def test_row_113_dead_ipv6(self):
        """The first address is of IPv6, and no host has it: packets to it get no answer."""
        self.hosts[1].run("ip", "addr", "add", "2001:db8::2/64", "dev", "eth0", "nodad")
        self.name_leads_to("2001:db8::1", ADDRESS[0])
        self.trains(rf"reached {HOST[0]} at {ADDRESS[0]}; 2001:db8::1: no answer")

    def test_row_113_unreachable_ipv4(self):
        """There is no route to two of the addresses (errno 113)."""
        self.hosts[1].run("ip", "route", "add", "unreachable", "10.79.0.0/24")
        self.name_leads_to("10.79.0.1", "10.79.0.2", ADDRESS[0])
        self.trains()

    def test_row_113_bridge_of_every_host(self):
        """docker0 has the same address on every host: the connection reaches the own host, which refuses it."""
        self.docker0()
        self.name_leads_to("172.17.0.1", ADDRESS[0])
        self.trains()

    def test_row_111_selected_interfaces(self):
        self.docker0()
        self.finish([self.node(0, "dist.iface=^docker0"), self.node(1, "dist.iface=10.77.0.0/24,ens3")])

    def test_row_37_copied_hosts_file(self):
        """/etc/hosts was copied from host 0, where 127.0.1.1 is right."""
        self.name_leads_to("127.0.1.1")
        r = self.node(1, "dist.rendezvous_timeout=1").wait(20)
        self.assert_code(r, COMM)
        self.assert_last_says(r, "127.0.1.1", "loopback", "hint: .*/etc/hosts")
        env = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": HOST[0], "MASTER_PORT": str(PORT), "CTRAIN_TOKEN": "secret of this job"}
        r = self.start_training("dist.rendezvous_timeout=1", prefix=self.hosts[1].prefix, env=env).wait(20)
        self.assert_code(r, COMM)
        self.assert_last_says(r, "127.0.1.1", "Connection refused", rf"hint: .*resolves {HOST[0]} to 127.0.1.1, its own loopback interface", "/etc/hosts")


@unittest.skipIf(NO_HOSTS, NO_HOSTS)
class Firewall(HostsCase):
    """New connections between the hosts reach only the ports from 30000 to 30007."""

    def setUp(self):
        if not shutil.which("iptables"):
            self.skipTest("there is no program `iptables`")
        super().setUp()
        for host in self.hosts:
            host.run("iptables", "-A", "INPUT", "-i", "eth0", "-p", "tcp", "--syn", "!", "--dport", "30000:30007", "-j", "DROP")

    def nodes(self, *sets, port=(), **more):
        return [self.start_training("--nodes", 2, "--node-rank", k, "--procs", 2, "--master-addr", HOST[0], *port, "dist.rendezvous_timeout=10", *sets,
                                    prefix=self.hosts[k].prefix, env={"CTRAIN_TOKEN": "secret of this job"}, **more) for k in (0, 1)]

    def test_row_119_port_range(self):
        for backend in ("gloo", "hier"):
            self.finish(self.nodes("dist.port_range=30000-30007", f"dist.backend={backend}", run=backend))
            self.assertEqual(len(self.losses(backend)), len(self.reference()[0]))

    def test_row_119_port_of_a_file(self):
        def rank(r):
            env = {"RANK": str(r), "WORLD_SIZE": "2", "CTRAIN_TOKEN": "x"}
            return self.start_training("--init", f"file://{self.path('meet')}", "dist.port_range=30000-30007", prefix=self.hosts[r].prefix, env=env)
        self.finish([rank(0), rank(1)])

    def test_row_119_doctor(self):
        """Its measurements use the same ports as a run."""
        nodes = [self.start("doctor", self.config(), f"run.dir={self.path('run')}", "--nodes", 2, "--node-rank", k, "--procs", 1, "--master-addr",
                            ADDRESS[0], "--json", "dist.rendezvous_timeout=20", "dist.port_range=30000-30007", prefix=self.hosts[k].prefix,
                            env={"CTRAIN_TOKEN": "secret of this job"}) for k in (0, 1)]
        for n in nodes:
            report = json.loads(n.wait(40).out)
            self.assertNotIn("reachability", [f["check"] for f in report["findings"]])
            self.assertEqual([len(row) for row in report["links"]], [2, 2])
            self.assertTrue(report["links"][0][1]["reached"] and report["links"][1][0]["reached"])

    def test_row_119_without_a_range(self):
        """The store is reached, but not the other ranks: dist.rendezvous_timeout limits this phase, too."""
        nodes = self.nodes("dist.backend=gloo", port=("--master-port", 30000))
        results = [n.wait(40) for n in nodes]
        for r in results:
            self.assert_code(r, COMM)
            self.assert_last_says(r, r"rank [0-3]\b")
        self.assertRegex("".join(r.err for r in results), r"(cannot connect to|has not connected to) .* port \d+ within 10 s.*\n.*hint: .*dist\.port_range")

    def test_row_119_small_range(self):
        """The store uses one port, and each of the two ranks of node 0 listens for the ranks of node 1."""
        nodes = self.nodes("dist.port_range=30000-30001", "dist.backend=gloo")
        results = [n.wait(20) for n in nodes]
        self.assertEqual([r.code for r in results], [COMM, COMM], results[0].describe())
        self.assert_last_says(results[0], r"all ports of dist\.port_range \(30000-30001\) are in use", "hint: use a larger range")


@unittest.skipIf(NO_HOSTS, NO_HOSTS)
class Strangers(HostsCase):
    """A third host, which is no part of the run, connects to its store hundreds of times."""
    n_hosts = 3

    def strangers(self, rounds, process):
        argv = [*self.hosts[2].prefix, sys.executable, "-c", STRANGERS, ADDRESS[0], str(PORT)]
        with open(self.path("strangers"), "w", encoding="utf-8") as out:
            p = subprocess.Popen(argv, stdout=out, preexec_fn=die_with_parent)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.until(lambda: read_text(self.path("strangers")).count("\n") >= rounds, f"{rounds} rounds of strangers", process, 60)

    def nodes(self, k, *sets, **more):
        return self.node(k, *sets, nodes=2, **more)

    def test_while_the_run_forms(self):
        """More strangers wait in the handshake than the store accepts; the ranks of node 1 still join."""
        first = self.nodes(0, "dist.rendezvous_timeout=60")
        self.until(lambda: self.rank_pid(0), "rank 0 had started", first)
        self.strangers(30, first)
        second = self.nodes(1, "dist.rendezvous_timeout=60")
        self.finish([first, second])
        self.assert_equals_undisturbed()

    def test_while_the_run_trains(self):
        """From step 9 to the end. The run also reports a failure as if no stranger were there."""
        nodes = [self.nodes(k, env={"CTRAIN_FAILPOINT": "step:9@0=stop"}) for k in (0, 1)]
        pid = self.until_stopped(0, nodes[0])
        self.strangers(30, nodes[0])
        os.kill(pid, signal.SIGCONT)
        self.finish(nodes)
        self.assert_equals_undisturbed()
        self.assertRegex(nodes[0].err + read_text(self.path("run", "log", "rank-00000.log")), r"refused .*10\.77\.0\.3")
        nodes = [self.nodes(k, run="lost", env={"CTRAIN_FAILPOINT": "step:9@3=stop"}) for k in (0, 1)]
        os.kill(self.until_stopped(3, nodes[1]), signal.SIGKILL)
        for n in nodes:
            r = n.wait(20)
            self.assert_code(r, COMM)
            self.assert_last_says(r, r"rank 3\b")

    def assert_equals_undisturbed(self):
        self.finish([self.nodes(k, run="alone") for k in (0, 1)])
        self.assertEqual(self.digest(), self.digest("alone"))


@unittest.skipIf(NO_HOSTS, NO_HOSTS)
class StrangersOfRanks(HostsCase):
    """Programs that are no part of the run connect to the ports of its ranks from the start to the end, hundreds of times while the ranks wait
    for the last one."""
    n_hosts = 3

    def strangers(self, host, *argv):
        out = self.path(f"strangers{host}")
        with open(out, "w", encoding="utf-8") as f:
            p = subprocess.Popen([*self.hosts[host].prefix, sys.executable, "-c", STRANGERS_OF_RANKS, *argv], stdout=f, preexec_fn=die_with_parent)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.until(lambda: read_text(out), "the strangers had started")
        return lambda: read_text(out).count("\n")

    def disturbed(self, rounds, *sets):
        """Returns what the ranks say about the strangers."""
        text = ""
        for backend in ("gloo", "hier"):
            nodes = [self.start_training("--nodes", 2, "--node-rank", k, "--procs", 2, "--master-addr", HOST[0], "--master-port", 30000, *sets,
                                         f"dist.backend={backend}", "dist.rendezvous_timeout=60", prefix=self.hosts[k].prefix, run=backend,
                                         env={"CTRAIN_TOKEN": "secret of this job", "CTRAIN_FAILPOINT": "connect@3=stop"}) for k in (0, 1)]
            pid, before = self.until_stopped(3, nodes[1]), rounds()
            self.until(lambda n=before: rounds() >= n + 20, "20 rounds of strangers", nodes[0], 60)
            os.kill(pid, signal.SIGCONT)
            text += "".join(r.err for r in self.finish(nodes))
            for r in range(4):
                text += read_text(self.path(backend, "log", f"rank-{r:05}.log"))
            self.finish([self.node(k, f"dist.backend={backend}", nodes=2, run=f"{backend}-alone") for k in (0, 1)])
            self.assertEqual(self.digest(backend), self.digest(f"{backend}-alone"))
        return text

    def test_of_another_host(self):
        rounds = self.strangers(2, ",".join(ADDRESS[:2]), "30000-30007")
        self.assertRegex(self.disturbed(rounds, "dist.port_range=30000-30007"), DROPPED)

    def test_of_the_same_host(self):
        """Each user of a host can see which ports its ranks listen on."""
        self.assertRegex(self.disturbed(self.strangers(0, "", "")), DROPPED)


@unittest.skipUnless(os.access(BENCH, os.X_OK), "built without bench/store_clients")
class Scale(Case):
    def test_many_ranks_and_strangers(self):
        """bench/store_scale.py with few ranks: every phase ends, and each rank learns of the failure."""
        r = subprocess.run([sys.executable, SCALE, os.path.dirname(os.path.dirname(BENCH)), "--ranks", "64", "--hosts", "2", "--strangers", "200", "--json"],
                           capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(r.returncode, 0, r.stderr)
        result = json.loads(r.stdout)
        self.assertEqual(result["ranks"], 64)
        self.assertEqual([p["phase"] for p in result["phases"]], ["join", "aux", "agree", "failure"])
        for p in result["phases"]:
            self.assertGreater(p["seconds"], 0)
            self.assertGreater(p["sent_bytes"], 0)


if __name__ == "__main__":
    if NO_HOSTS:
        print(f"  {NO_HOSTS}", file=sys.stderr)
    main()
