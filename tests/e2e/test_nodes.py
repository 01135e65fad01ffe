"""How nodes find each other: what the launcher shows while it waits, and mistakes in commands that it refuses. The names of the cases
are those of the rows in docs/FEATURES.md; hosts are namespaces (hosts.py)."""

import os
import pty
import re
import signal
import socket
import sys
import threading
import unittest

from harness import COMM, DATA, SLOW, TINY, USAGE, Case, main, read_text
from hosts import ADDRESS, HOST, PORT, HostsCase, why_not

NO_HOSTS = why_not() if __name__ == "__main__" else None
FORWARDER = """
import socket, sys, threading
def copy(a, b):
    while data := a.recv(65536):
        b.sendall(data)
    b.shutdown(socket.SHUT_WR)
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    a = listener.accept()[0]
    try:
        b = socket.create_connection((sys.argv[3], int(sys.argv[2])))
    except OSError:
        a.close()
        continue
    threading.Thread(target=copy, args=(a, b), daemon=True).start()
    threading.Thread(target=copy, args=(b, a), daemon=True).start()
"""
LONG = "dist.rendezvous_timeout=120"  # nothing here waits for it
SHORT = f"dist.rendezvous_timeout={3 * SLOW:g}"  # for node 0, after the other nodes have started their ranks


class Terminal:
    """A terminal that keeps what is written to it."""

    def __init__(self, case):
        self.master, self.slave = pty.openpty()
        self.text = ""
        threading.Thread(target=self.read, daemon=True).start()
        case.addCleanup(os.close, self.slave)

    def read(self):
        while True:
            try:
                data = os.read(self.master, 4096)
            except OSError:
                return
            self.text += data.decode(errors="replace")


@unittest.skipIf(NO_HOSTS, NO_HOSTS)
class Refused(HostsCase):
    """Every node ends long before its deadline, and knows both hosts."""

    def all_refused(self, nodes, *words):
        results = [n.wait() for n in nodes]
        for r in results:
            self.assert_code(r, USAGE)
            self.assertLess(r.seconds, 30 * SLOW, "waited for nodes that never come" + r.describe())
            self.assert_last_says(r, *words)
        self.assertEqual(self.marked(), {})
        return results

    def until_serving(self, node):
        self.until(lambda: self.rank_pid(0), "node 0 had started its ranks", node)

    def test_row_27_master_address_not_local(self):
        r = self.node(0, LONG, on=1).wait()
        self.assert_code(r, USAGE)
        self.assertLess(r.seconds, 30 * SLOW)
        self.assert_last_says(r, r"node rank 0 must run on the host of --master-addr, ctnodea \(10\.77\.0\.1\)", "not an address of this host, ctnodeb",
                              r"10\.77\.0\.2 \(eth0\)", "hint:.*--node-rank")

    def test_row_27_master_address_of_rank_0_not_local(self):
        env = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": ADDRESS[0], "MASTER_PORT": str(PORT), "CTRAIN_TOKEN": "x"}
        r = self.start_training(LONG, prefix=self.hosts[1].prefix, env=env).wait()
        self.assert_code(r, USAGE)
        self.assert_last_says(r, "rank 0 must run on the host of MASTER_ADDR", r"10\.77\.0\.1, but", r"10\.77\.0\.2 \(eth0\)")

    def test_row_27_forwarded_address(self):
        """An address that is not local, but leads here: a forwarded port or a service of Kubernetes."""
        forwarder = self.start("-c", FORWARDER, ADDRESS[1], PORT, ADDRESS[0], prefix=self.hosts[1].prefix, program=sys.executable, env={"E2E_HOST": "9"})
        self.addCleanup(forwarder.popen.kill)
        self.finish([self.node(k, "--master-addr", ADDRESS[1], procs=1) for k in (0, 1)])
        self.assertEqual(self.metrics(kind="run")[0]["world_size"], 2)

    def test_T1_both_nodes_with_node_rank_0(self):
        first = self.node(0, LONG)
        self.until_serving(first)
        self.all_refused([first, self.node(0, LONG, on=1)], "node rank 0", HOST[0], HOST[1], "hint:.*--node-rank")

    def test_T1_without_a_common_secret(self):
        env = {"CTRAIN_TOKEN": "", "HOME": self.path("nobody")}
        first = self.node(0, "dist.rendezvous_timeout=2", env=env)
        self.until_serving(first)
        r = self.node(0, LONG, on=1, run="elsewhere", env=env).wait()
        self.assert_code(r, USAGE)
        self.assert_last_says(r, "node rank 0 must run on the host of --master-addr", r"10\.77\.0\.2 \(eth0\)")
        self.assert_code(first.wait(), COMM)

    def test_row_03_duplicate_node_rank(self):
        first = self.node(0, LONG, nodes=3)
        second = self.node(1, LONG, nodes=3)
        self.until(lambda: "joined 2/3" in first.err, "node 0 had seen node 1", first)
        self.all_refused([first, second, self.node(1, LONG, nodes=3, on=0)], r"node rank 1, which the launcher .*already has|rank [23] is taken",
                         HOST[0], HOST[1], "hint:.*different --node-rank")

    def by_hand(self, on, rank, world, run="run"):
        env = {"RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": HOST[0], "MASTER_PORT": PORT, "CTRAIN_TOKEN": "x"}
        return self.start_training(LONG, prefix=self.hosts[on].prefix, run=run, env={k: str(v) for k, v in env.items()})

    def test_row_03_duplicate_rank(self):
        some = [self.by_hand(0, 0, 4), self.by_hand(1, 1, 4)]
        self.until(lambda: re.search(r"joined 2/4 ranks: ctnodea\(0\), ctnodeb\(1\); missing rank 2-3", some[0].err), "rank 0 listed the ranks", some[0])
        self.all_refused([*some, self.by_hand(0, 1, 4)], r"rank 1 is taken by pid \d+ on host ctnodeb", "rank 1 .*on host ctnodea", "hint:.*LOCAL_RANK")

    def test_T4_local_rank_as_rank(self):
        """Both hosts start ranks 0 and 1 of 4."""
        some = [self.by_hand(0, 0, 4), self.by_hand(0, 1, 4)]
        self.until(lambda: "joined 2/4" in some[0].err, "rank 0 listed the ranks", some[0])
        self.all_refused([*some, self.by_hand(1, 0, 4, run="elsewhere")], r"rank 0 is taken by pid \d+ on host ctnodea", "ctnodeb")

    def test_row_111_interface_that_one_host_lacks(self):
        """Both nodes print what node 1 lacks, although its ranks end before they have a communicator."""
        for command in (("eth0", "down"), ("eth0", "name", "en5"), ("en5", "up")):
            self.hosts[1].run("ip", "link", "set", *command)
        results = [n.wait() for n in self.both(LONG, "dist.iface=eth0", "dist.backend=gloo")]
        for r in results:
            self.assertIn(r.code, (USAGE, COMM), r.describe())
            self.assert_last_says(r, "rank [23]", 'dist.iface: this host has no .*"eth0"; its usable interfaces are .*en5', "hint:")
        self.assert_last_says(results[0], HOST[1])

    def test_row_04_other_number_of_nodes(self):
        """The same number of ranks on other numbers of nodes. A rank of node 1 may be refused before its launcher."""
        self.all_refused([self.node(0, LONG, nodes=2, procs=2), self.node(1, LONG, nodes=4, procs=1)],
                         r"4 ranks on 4 nodes, but .* for 4 on 2 nodes|rank 1\b", HOST[1])

    def test_row_04_other_world_size(self):
        some = [self.by_hand(0, 0, 2), self.by_hand(1, 1, 3)]
        self.all_refused(some, "world of 3 ranks, but .* for 2", HOST[1])


@unittest.skipIf(NO_HOSTS, NO_HOSTS)
class FailsEarly(HostsCase):
    """A node that cannot start its ranks; the others do not wait for it."""

    def check(self, failing, *sets, words, config=None, code=USAGE):
        waiting = 1 - failing
        other = self.node(waiting, LONG)
        self.until(lambda: self.rank_pid(2 * waiting), "the other node had started its ranks", other)
        bad = self.node(failing, LONG, *sets, config=config).wait()
        self.assert_code(bad, code)
        self.assert_last_says(bad, *words)
        r = other.wait()
        self.assertLess(r.seconds, 30 * SLOW, "waited for a node that has failed" + r.describe())
        self.assertNotEqual(r.code, 0)
        self.assert_last_says(r, HOST[failing], f"node rank {failing}", *words)
        self.assertEqual(self.marked(), {})

    def test_no_config(self):
        for failing in (0, 1):
            with self.subTest(node=failing):
                self.check(failing, config=self.path("missing", "tiny.yaml"), words=["missing/tiny.yaml"])

    def test_wrong_key(self):
        self.check(1, "optim.lrr=1", words=["optim.lrr"])

    def test_wrong_batch(self):
        self.check(0, "batch.global=47", words=["batch.global", "47"])

    def test_no_data(self):
        self.run_ctrain("data", "digits", "--out", self.path("data"), "--train", 300, "--test", 50)
        self.check(1, "data.name=mnist", f"data.dir={self.path('nowhere')}", words=["nowhere"], code=DATA)


@unittest.skipIf(NO_HOSTS, NO_HOSTS)
class Waiting(HostsCase):
    n_hosts = 4

    def test_row_27_waiting_screen(self):
        """Nodes join in any order; all of them show who is missing."""
        late = [self.node(k, LONG, procs=1) for k in (2, 1)]
        self.until(lambda: "waiting for node rank 0 at ctnodea port 29871: cannot connect" in late[0].err, "node 2 said what it waits for", late[0])
        nodes = [self.node(0, LONG, procs=1, env={"CTRAIN_FAILPOINT": "step:9@0=stop"}), *late]
        text = "joined 3/4: ctnodea(0), ctnodeb(1), ctnodec(2); missing node rank 3"
        for n in nodes:
            self.until(lambda n=n: text in n.err, "the node listed the others", n)
        nodes.append(self.node(3, LONG, procs=1))
        pid = self.until_stopped(0, nodes[0])
        for n in nodes[:3]:
            self.until(lambda n=n: "all 4 nodes have joined" in n.err, "the node said that it waits no longer", n)
        os.kill(pid, signal.SIGCONT)
        self.finish(nodes)
        self.assertEqual(self.metrics(kind="run")[0]["world_size"], 4)

    def test_row_118_deadline(self):
        nodes = [self.node(k, LONG, procs=2) for k in (1, 3)]
        self.until(lambda: all(self.rank_pid(r) for r in (2, 3, 6, 7)), "the other nodes had started their ranks", nodes[0])
        nodes.append(self.node(0, SHORT, procs=2))
        for r in self.finish(nodes, COMM):
            self.assert_last_says(r, "2 of 8 ranks are missing: 4, 5", r"joined 3/4: ctnodea\(0\), ctnodeb\(1\), ctnoded\(3\); missing node rank 2",
                                  "rank 4 +MISSING", "hint:")

    def test_row_11_uneven_nodes(self):
        nodes = [self.node(1, LONG, nodes=3, procs="1, 2,1")]
        self.until(lambda: all(self.rank_pid(r) for r in (1, 2)), "the other node had started its ranks", nodes[0])
        nodes.append(self.node(0, SHORT, nodes=3, procs="1, 2,1"))
        for r in self.finish(nodes, COMM):
            self.assert_last_says(r, r"joined 2/3: ctnodea\(0\), ctnodeb\(1\); missing node rank 2")
        self.finish([self.node(k, nodes=3, procs="1, 2,1", run="whole") for k in (0, 1, 2)])
        self.assertEqual(self.metrics("whole", "run")[0]["world_size"], 4)

    def test_row_27_on_a_terminal(self):
        """One line, which is updated, and which disappears."""
        screen = Terminal(self)
        node = self.node(0, LONG, nodes=2, procs=1, stderr=screen.slave, env={"TERM": "xterm"})
        self.until(lambda: "joined 1/2: ctnodea(0); missing node rank 1" in screen.text, "the line was drawn", node)
        line = next(part for part in screen.text.split("\r") if "joined 1/2" in part)
        self.assertTrue(line.startswith("\033[J"), repr(line))
        self.assertNotIn("\n", line)
        self.finish([node, self.node(1, LONG, nodes=2, procs=1)])

    def test_row_09_node_rank_of_the_environment(self):
        def node(k, *sets):
            env = {"NODE_RANK": k, "MASTER_ADDR": HOST[0], "MASTER_PORT": PORT, "CTRAIN_TOKEN": "x"}
            return self.start_training("--nnodes", 2, "--nproc_per_node", 1, *sets, prefix=self.hosts[k].prefix,
                                       env={n: str(v) for n, v in env.items()})
        self.finish([node(k) for k in (0, 1)])
        self.assertEqual(self.metrics(kind="run")[0]["world_size"], 2)

    def test_row_07_address_and_interface(self):
        nodes = [self.node(k, nodes=2, procs=1) for k in (0, 1)]
        self.finish(nodes)
        self.assertIn("node 1 has reached the store at ctnodea (10.77.0.1) port 29871, through eth0 (10.77.0.2)", nodes[1].err)
        env = {"WORLD_SIZE": "2", "MASTER_ADDR": ADDRESS[0], "MASTER_PORT": str(PORT), "CTRAIN_TOKEN": "x"}
        ranks = [self.start_training(run="by-hand", prefix=self.hosts[k].prefix, env={**env, "RANK": str(k)}) for k in (0, 1)]
        self.finish(ranks)
        self.assertIn("rank 1 has reached rank 0 at 10.77.0.1 port 29871, through eth0 (10.77.0.2)", read_text(self.path("by-hand", "log", "rank-00001.log")))

    def test_row_43_two_nodes_as_with_torchrun(self):
        args = ("--nproc-per-node=2", "--nnodes=2", f"--master_addr={ADDRESS[0]}", f"--master-port={PORT}")
        self.finish([self.start_training(*args, f"--node_rank={k}", prefix=self.hosts[k].prefix, env={"CTRAIN_TOKEN": "x"}) for k in (0, 1)])
        self.assertEqual(self.metrics(kind="run")[0]["world_size"], 4)

    def test_row_50_uneven_nodes_of_the_tutorial(self):
        args = ("-n", 2, "-g", "2, 1", "--epochs", 1, "--master-addr", HOST[0])
        self.finish([self.start_training(*args, "-i", k, prefix=self.hosts[k].prefix, env={"CTRAIN_TOKEN": "x"}) for k in (0, 1)])
        self.assertEqual(self.metrics(kind="run")[0]["world_size"], 3)
        self.assertEqual(len(self.metrics(kind="epoch")), 1)


class OneHost(Case):
    def test_row_26_address_in_a_config(self):
        """The addresses of the tutorials; 192.0.2.0/24 is for documentation."""
        for launch, says in (("master_addr: 192.0.2.164", r'launch.master_addr is "192.0.2.164", which is not an address of this host;.*--master-addr'),
                             ("master_addr: 127.0.0.1", r'launch.master_addr is "127.0.0.1"; remove it'),
                             ("init: tcp://192.0.2.20:23456", r'launch.init is "tcp://192.0.2.20:23456"; remove it.*--init')):
            with self.subTest(launch=launch):
                config = self.write("c.yaml", TINY.replace("launch: {", "launch: {" + launch + ", "))
                r = self.run_ctrain("check", config)
                self.assert_says(r, r"c\.yaml:\d+:\d+: " + says)
                self.assertIn("ok: run", r.out)
        for own in (("--master-addr", "192.0.2.164"), ("launch.init=env://",)):
            self.assert_quiet(self.run_ctrain("check", self.config(), *own))

    def test_row_03_rank_of_the_command_line(self):
        port = self.free_port()
        env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "7"}
        workers = [self.start_training("--rank", r, "--world-size", 2, "launch.procs=auto", env=env) for r in (1, 0)]
        for w in workers:
            self.assert_code(w.wait(), 0)
        self.assertEqual(self.metrics(kind="run")[0]["world_size"], 2)
        r = self.train("--rank", 2, "--world-size", 2, env=env, expect=USAGE)
        self.assert_last_says(r, "RANK=2 and WORLD_SIZE=2")

    def test_row_42_local_rank_of_the_command_line(self):
        """torch.distributed.launch passes it in addition to the environment."""
        env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.free_port()), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        workers = [self.start_training(f"--local{mark}rank={r}", env={**env, "RANK": str(r), "LOCAL_RANK": str(r)}) for r, mark in ((0, "_"), (1, "-"))]
        for w in workers:
            self.assert_code(w.wait(), 0)
        self.assert_last_says(self.train("--local-rank", 0, expect=USAGE), "RANK and WORLD_SIZE are not set")

    def test_row_12_and_47_spellings(self):
        self.train("-n", 1, "-g", 2, "-i", 0, "--epochs", 1)
        self.assertEqual(len(self.metrics(kind="epoch")), 1)
        self.train("--nnode", 1, "--standalone", "--", "train.epochs=1", run="other")

    def test_row_10_table_of_ranks(self):
        r = self.run_ctrain("plan", self.config(), "--nodes", 2, "--procs", 4, "--node-rank", 1, "--master-addr", "a")
        self.assertRegex(r.out, r"ranks +8 on 2 nodes, 4 here")
        self.assertRegex(r.out, r"node 0 +ranks 0 to 3\n +node 1 +ranks 4 to 7 \(this node\)")
        r = self.run_ctrain("plan", self.config(), "-n", 2, "-g", "8,4", "-i", 1, "--master-addr", "a")
        self.assertRegex(r.out, r"node 0 +ranks 0 to 7\n +node 1 +ranks 8 to 11 \(this node\)")

    def test_row_21_missing_variables_together(self):
        r = self.train(env={"RANK": "0"}, expect=USAGE)
        self.assert_last_says(r, "RANK is set, but WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not")
        r = self.train("--init", "env://", env={"RANK": "0"}, expect=USAGE)
        self.assert_last_says(r, "RANK is set, but WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not")

    def test_row_31_precedence(self):
        env = {"MASTER_PORT": "5000", "NODE_RANK": "1"}
        sets = ("--nodes", 2, "--master-addr", "a")
        text = self.run_ctrain("config", "dump", self.config(), "--origins", *sets, env=env).out
        self.assertRegex(text, r"master_port: 5000.*environment MASTER_PORT")
        self.assertRegex(text, r"node_rank: 1.*environment NODE_RANK")
        text = self.run_ctrain("config", "dump", self.config(), "--origins", *sets, "--node-rank", 0, "--master-port", 6000, env=env).out
        self.assertRegex(text, r"master_port: 6000.*--master-port")
        self.assertNotIn("environment NODE_RANK", text)

    def test_row_09_node_rank_with_one_node(self):
        self.train(env={"NODE_RANK": "3"})

    def test_T2_node_rank_is_a_number(self):
        self.assert_last_says(self.train("--node-rank", "$i", expect=USAGE), "node-rank|node_rank", r"\$i")
        self.assert_last_says(self.train("--nodes", 2, "--node-rank", 2, "--master-addr", "a", expect=USAGE), "must be from 0 to 1")

    def test_T3_similar_names(self):
        r = self.train(env={"MASTER_IP": "10.0.0.1", "CUDA_VISIBLE_DEVICE": "0"})
        for name, meant in (("MASTER_IP", "MASTER_ADDR"), ("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES")):
            self.assertEqual(len(re.findall(rf"variable {name} is set, but nothing reads it; did you mean {meant}\?", r.err)), 1, r.describe())

    def test_T6_node_rank_that_is_not_exported(self):
        for args in (("--node-rank", ""), ("--node_rank=",)):
            r = self.train("--nodes", 2, "--master-addr", "a", *args, expect=USAGE)
            self.assert_last_says(r, "the value of --node.rank is empty", "hint:.*export")

    def two_stores(self):
        """Sockets that listen on successive ports."""
        while True:
            pair = [socket.socket(), socket.socket()]
            for s in pair:
                self.addCleanup(s.close)
            pair[0].bind(("127.0.0.1", 0))
            try:
                pair[1].bind(("127.0.0.1", pair[0].getsockname()[1] + 1))
            except (OSError, OverflowError):
                continue
            for s in pair:
                s.listen()
            return pair

    def test_row_44_torchrun_jobs_on_successive_ports(self):
        """The stores of both torchruns listen on successive ports. Neither job takes the port of the other's torchrun."""
        stores = self.two_stores()
        port = stores[0].getsockname()[1]
        jobs = []
        for k in range(2):
            env = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1,
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port + k}
            jobs.append([self.start_training(run=f"job{k}", env={n: str(v) for n, v in {**env, "RANK": r, "LOCAL_RANK": r}.items()}) for r in range(2)])
        for w in jobs[0] + jobs[1]:
            self.assert_code(w.wait(), 0)


if __name__ == "__main__":
    if NO_HOSTS:
        print(f"  {NO_HOSTS}", file=sys.stderr)
    main()
