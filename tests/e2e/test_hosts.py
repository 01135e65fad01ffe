"""Two hosts (hosts.py): communicators, failures and secrets of runs on several hosts."""

import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

from harness import COMM, IO, OK, SLOW, STOPPED, USAGE, main, read_text
from hosts import ADDRESS, HOST, PORT, HostsCase, why_not

NO_HOSTS = why_not() if __name__ == "__main__" else None


# A handshake with the store at argv 1:2, with the secret argv[3] and the body argv[4]; prints the server's last frame.
STRANGER = """
import hashlib, hmac, socket, struct, sys
token, body, then = map(bytes.fromhex, sys.argv[3:6])
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
s.settimeout(5)
def read(n):
    b = b""
    while len(b) < n:
        d = s.recv(n - len(b))
        if not d:
            sys.exit("closed after " + b.hex())
        b += d
    return b
def frame():
    head = read(16)
    return head + read(int.from_bytes(head[:4], "little"))
def send(op, body):
    s.sendall(struct.pack("<IHhQ", len(body), op, 0, 0) + body)
nonce = b"c" * 32
s.sendall(b"CTSTORE4")
send(14, nonce)
assert read(8) == b"CTSTORE4"
challenge = frame()
proof = hmac.new(token, b"ctrain store client\\0" + nonce + challenge[16:] + body, hashlib.sha256).digest()
send(1, body + proof)
s.sendall(then)
print(frame().hex())
"""


@unittest.skipIf(NO_HOSTS, NO_HOSTS)
class TwoHosts(HostsCase):
    def assert_reference(self, run="run"):
        losses, _ = self.reference()
        mine = self.losses(run)
        self.assertEqual(sorted(mine), sorted(losses))
        for step, loss in mine.items():
            self.assertAlmostEqual(loss / losses[step], 1, delta=1e-6, msg=f"step {step}")

    def test_hierarchy(self):
        self.finish(self.both("dist.backend=hier"))
        run = self.metrics(kind="run")[0]
        self.assertEqual((run["world_size"], run["ranks_per_node"], run["backend"], run["host"]), (4, 2, "hier", HOST[0]))
        self.assert_reference()
        digest = self.digest()
        self.finish(self.both("dist.backend=hier", run="again"))
        self.assertEqual(self.digest("again"), digest)

    def test_row_29_automatic_backend(self):
        self.finish(self.both())
        self.assertEqual(self.metrics(kind="run")[0]["backend"], "hier")
        self.assert_reference()

    def test_gloo_over_all(self):
        self.finish(self.both("dist.backend=gloo"))
        self.assertEqual(self.metrics(kind="run")[0]["backend"], "gloo")
        self.assert_reference()

    def test_one_rank_a_host(self):
        self.finish(self.both(procs=1))
        self.assert_reference()

    def test_row_6_and_11_uneven_hosts(self):
        self.finish([self.node(k, procs="2,1") for k in (0, 1)])
        self.assertEqual(self.metrics(kind="run")[0]["world_size"], 3)
        self.assert_reference()

    def test_second_host_first(self):
        second = self.node(1)
        self.until(lambda: self.rank_pid(2), "the second host's ranks had started", second)
        self.finish([second, self.node(0)])
        self.assert_reference()

    def test_shm_over_hosts_is_refused(self):
        nodes = self.both("dist.backend=shm")
        results = [n.wait() for n in nodes]
        # Every rank sees it for itself or hears of it from another.
        self.assertLessEqual({r.code for r in results}, {USAGE, COMM}, results[0].describe() + results[1].describe())
        self.assertIn(USAGE, [r.code for r in results])
        for r in results:
            self.assert_last_says(r, 'communicator "shm" needs all ranks on one host', "dist.backend=auto")

    def test_row_17_workers_by_hand(self):
        def rank(r):
            env = {"RANK": r, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": HOST[0], "MASTER_PORT": PORT}
            return self.start_training(prefix=self.hosts[r].prefix, env={k: str(v) for k, v in env.items()})
        self.finish([rank(0), rank(1)])
        self.assert_reference()

    def kill(self, k, victim, *sets):
        """Kills the launcher of host k, or the given rank, in a step; both hosts must be empty within seconds."""
        nodes = [self.node(n, "checkpoint.every_steps=4", *sets, env={"CTRAIN_FAILPOINT": "step:9@0=stop"}) for n in (0, 1)]
        self.until_stopped(0, nodes[0])
        pid = self.launcher(k) if victim == "launcher" else self.rank_pid(victim)
        name = self.inner(pid)
        since = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        self.assert_gone(since, nodes[1 - k], 8)
        results = [n.wait(5) for n in nodes]
        self.assert_code(results[1 - k], COMM)
        return results, name

    def test_killed_launcher(self):
        for k in (0, 1):
            with self.subTest(host=k):
                results, _ = self.kill(k, "launcher")
                self.assertEqual(results[k].code, -signal.SIGKILL)
                lost = (0, 1) if k == 0 else (2, 3)
                self.assert_last_says(results[1 - k], rf"rank ({lost[0]}|{lost[1]})\b.*{HOST[k]}|launcher.*{HOST[k]}|{HOST[k]}.*launcher")
                self.finish(self.both("checkpoint.every_steps=4"))
                self.assert_reference()
                shutil.rmtree(self.path("run"))

    def test_row_18_killed_rank(self):
        for k, victim in ((1, 3), (0, 1)):
            with self.subTest(rank=victim):
                results, pid = self.kill(k, victim)
                self.assert_code(results[k], COMM)
                for r in results:
                    self.assert_last_says(r, rf"rank {victim}\b", rf"pid {pid}\b")
                self.finish(self.both("checkpoint.every_steps=4"))
                self.assert_reference()
                shutil.rmtree(self.path("run"))

    def test_signal_to_one_host(self):
        nodes = [self.node(k, env={"CTRAIN_FAILPOINT": "step:9@2=stop"}) for k in (0, 1)]
        pid = self.until_stopped(2, nodes[1])
        os.kill(self.launcher(1), signal.SIGTERM)
        self.until(lambda: "saving" in nodes[1].err, "the launcher said that it got the signal", nodes[1])
        os.kill(pid, signal.SIGCONT)
        self.finish(nodes, STOPPED)
        self.finish(self.both())
        self.assert_reference()

    def test_missing_host(self):
        r = self.node(0, "dist.rendezvous_timeout=2").wait(20)
        self.assert_code(r, COMM)
        self.assert_last_says(r, r"rank (2|3)\b|ranks? .*2.*3|2 of 4")

    def stranger(self, port, run_id, token, role=2, rank=0xffffffff, then=b""):
        """Returns the reply of the store on host 0 to a handshake from a process on host 1 that does not belong to the run."""
        def string(s):
            return struct.pack("<I", len(s)) + s
        body = string(run_id) + struct.pack("<BII", role, rank, 4711) + string(b"stranger") + struct.pack("<III", 0, 0, 0)
        r = subprocess.run([*self.hosts[1].prefix, sys.executable, "-c", STRANGER, ADDRESS[0], str(port), token.hex(), body.hex(), then.hex()],
                           capture_output=True, text=True)
        self.assertEqual(r.returncode, 0, r.stderr)
        answer = bytes.fromhex(r.stdout)
        return struct.unpack("<H", answer[4:6])[0], answer

    def test_no_token(self):
        """README's two commands, with a run directory that both hosts see: node 0 makes the secret, and a stranger gets nothing."""
        home = {"CTRAIN_TOKEN": "", "HOME": self.path("nobody")}
        nodes = self.both("dist.run_id=of-today", env={**home, "CTRAIN_FAILPOINT": "step:9@0=stop"})
        pid = self.until_stopped(0, nodes[0])
        path = self.path("run", "token")
        self.assertEqual(os.stat(path).st_mode & 0o7777, 0o600)
        secret = read_text(path).strip()
        self.assertGreaterEqual(len(secret), 32)
        self.assertIn(path, nodes[0].err)
        self.assertNotIn(secret, nodes[0].err + nodes[1].err)  # they write to files here, not to a terminal
        for run_id, token in ((b"", b""), (b"of-today", b""), (b"of-today", secret[:-1].encode()), (b"guess", b"0" * 32)):
            for role, rank in ((2, 0xffffffff), (3, 0xfffffffe), (0, 7), (0, 3), (1, 3)):
                op, answer = self.stranger(PORT, run_id, token, role, rank, then=b"\0" * 16)
                self.assertEqual(op, 65, answer)
                self.assertNotIn(b"of-today", answer)
        # An observer that has the secret may read, and not report.
        self.assertEqual(self.stranger(PORT, b"of-today", secret.encode())[0], 64)
        os.kill(pid, signal.SIGCONT)
        self.finish(nodes)
        self.assert_reference()

    def test_no_token_and_no_shared_directory(self):
        home = {"CTRAIN_TOKEN": "", "HOME": self.path("nobody")}
        first = self.node(0, "dist.rendezvous_timeout=20", env=home)
        self.until(lambda: read_text(self.path("run", "token")), "node 0 had made the secret", first)
        r = self.node(1, "dist.rendezvous_timeout=2", run="elsewhere", env=home).wait(20)
        self.assert_code(r, COMM)
        self.assert_last_says(r, "no CTRAIN_TOKEN", "elsewhere/token", "nobody/.ctrain/token", "CTRAIN_TOKEN on all nodes", "dist.open_network=true")
        secret = read_text(self.path("run", "token")).strip()
        self.finish([first, self.node(1, env={**home, "CTRAIN_TOKEN": secret})])
        self.assert_reference()

    def test_two_run_directories(self):
        """With an exported secret, nodes that do not share the run directory meet. They refuse to train: with the directories exchanged, the
        second run would not find the checkpoint of the first one, and start again at step 0."""
        self.finish(self.both())
        before = self.checkpoints()
        results = [n.wait(40) for n in (self.node(0, run="elsewhere"), self.node(1))]
        for r, code in zip(results, (COMM, IO)):
            self.assert_code(r, code)
            self.assert_last_says(r, rf"the run directory \"\S+/run\" on {HOST[1]} is not that of rank 0 on {HOST[0]}",
                                  "hint: set run.dir to a directory of a file system that all nodes mount")
        self.assertEqual((self.checkpoints(), self.checkpoints("elsewhere")), (before, []))
        self.assertEqual([n for n in os.listdir(self.path("elsewhere")) if n.startswith(".shared-")], [])

    def test_token_of_the_home_directory(self):
        self.write("home/.ctrain/token", "of all my runs\n")
        env = {"CTRAIN_TOKEN": "", "HOME": self.path("home")}
        os.chmod(self.path("home/.ctrain/token"), 0o644)
        r = self.node(0, env=env).wait(20)
        self.assert_code(r, USAGE)
        self.assert_last_says(r, "other users have access", "chmod 600")
        os.chmod(self.path("home/.ctrain/token"), 0o600)
        self.finish(self.both(env=env))
        self.assertFalse(os.path.exists(self.path("run", "token")))
        self.assert_reference()

    def test_open_network(self):
        nodes = self.both("dist.open_network=true", env={"CTRAIN_TOKEN": "", "HOME": self.path("nobody")})
        results = self.finish(nodes)
        self.assert_says(results[0], "any program that can connect to port")
        self.assertFalse(os.path.exists(self.path("run", "token")))
        self.assert_reference()

    def test_token_of_workers_by_hand(self):
        """Started as torchrun does; no secret in the environment. Rank 0 makes it where both see it."""
        def rank(r, run):
            env = {"RANK": r, "WORLD_SIZE": 2, "MASTER_ADDR": HOST[0], "MASTER_PORT": PORT, "HOME": self.path("nobody")}
            return self.start_training("dist.rendezvous_timeout=4", run=run, prefix=self.hosts[r].prefix, env={k: str(v) for k, v in env.items()})
        self.finish([rank(0, "run"), rank(1, "run")])
        self.assertEqual(os.stat(self.path("run", "token")).st_mode & 0o7777, 0o600)
        self.assert_reference()
        lonely = [rank(0, "one"), rank(1, "two")]
        r = lonely[1].wait(20)
        self.assert_code(r, COMM)
        self.assert_last_says(r, "no CTRAIN_TOKEN", "two/token")
        self.assert_code(lonely[0].wait(20), COMM)

    def test_token_of_other_commands(self):
        """They find the secret as training does, and leave no run directory."""
        bench = ("bench", "comm", self.config(), f"run.dir={self.path('new')}", "--max", 8, "--iters", 1, "--warmup", 0, "--json")
        nobody = {"CTRAIN_TOKEN": "", "HOME": self.path("nobody")}

        def launcher(k):
            return self.start(*bench, "--nodes", 2, "--node-rank", k, "--procs", 2, "--master-addr", HOST[0], "--master-port", PORT,
                              prefix=self.hosts[k].prefix, env=nobody)

        def rank(r):
            env = {"RANK": r, "WORLD_SIZE": 2, "MASTER_ADDR": HOST[0], "MASTER_PORT": PORT}
            return self.start(*bench, prefix=self.hosts[r].prefix, env={**nobody, **{k: str(v) for k, v in env.items()}})
        for start, world in ((launcher, 4), (rank, 2)):
            r = self.finish([start(0), start(1)])[0]
            self.assertEqual((r.json()["world_size"], r.json()["hosts"]), (world, 2))
            self.assertFalse(os.path.exists(self.path("new")))

    def test_long_token(self):
        for k in (0, 1):
            r = self.node(k, "dist.rendezvous_timeout=3", env={"CTRAIN_TOKEN": "x" * 65}).wait(20)
            self.assert_code(r, USAGE)
            self.assert_last_says(r, "CTRAIN_TOKEN has 65 characters", "at most 64")

    def test_other_number_of_ranks(self):
        """Nodes that disagree on the number of ranks: both end at once, and the message names both counts."""
        for procs, words in (((1, 2), (r"launcher|rank [23]\b", "world of 4 ranks", "for 2")), ((3, 1), (r"launcher|rank [12]\b", "world of 2 ranks", "for 6"))):
            with self.subTest(procs=procs):
                nodes = [self.node(k, "dist.rendezvous_timeout=60", procs=procs[k]) for k in (0, 1)]
                began = time.monotonic()
                results = self.finish(nodes, USAGE)
                self.assertLess(time.monotonic() - began, 30 * SLOW, "both wait for ranks that never come")
                for r in results:
                    self.assert_last_says(r, *words, "--procs")

    def test_other_number_of_ranks_before_ranks_connect(self):
        """Only the launcher of node 1 connects while node 0 still runs the store: it ends its ranks with the reason for the refusal."""
        nodes = [self.node(0, "dist.rendezvous_timeout=60", procs=1),
                 self.node(1, "dist.rendezvous_timeout=60", env={"CTRAIN_FAILPOINT": "join=stop"})]
        for r in self.finish(nodes, USAGE):
            self.assert_last_says(r, f"launcher.*{HOST[1]}", "world of 4 ranks", "for 2", "--procs")

    def test_stopped_ranks_of_one_host(self):
        """All ranks of host 1 are stopped: its launcher learns of the run's failure and ends them."""
        nodes = [self.node(k, "dist.timeout=3", procs=1, env={"CTRAIN_FAILPOINT": "step:9@1=stop"}) for k in (0, 1)]
        self.until_stopped(1, nodes[1])
        since = time.monotonic()
        self.assert_gone(since, nodes[1], 25)
        for n in nodes:
            r = n.wait(5)
            self.assert_code(r, COMM)
            self.assert_last_says(r, r"rank 1\b", HOST[1])

    def test_stopped_ranks_of_the_first_host(self):
        nodes = [self.node(k, "dist.timeout=3", procs=1, env={"CTRAIN_FAILPOINT": "step:9@0=stop"}) for k in (0, 1)]
        self.until_stopped(0, nodes[0])
        since = time.monotonic()
        self.assert_gone(since, nodes[0], 25)
        for n in nodes:
            r = n.wait(5)
            self.assert_code(r, COMM)
            self.assert_last_says(r, r"rank 0\b", HOST[0])

    def test_frozen_first_host(self):
        """The store does not answer either, but its connections stay open."""
        nodes = [self.node(k, "dist.timeout=3", procs=1, env={"CTRAIN_FAILPOINT": "step:9@0=stop"}) for k in (0, 1)]
        self.until_stopped(0, nodes[0])
        os.kill(self.launcher(0), signal.SIGSTOP)
        r = nodes[1].wait(20)
        self.assert_code(r, COMM)
        self.assert_last_says(r, HOST[0], "has not answered", "stopped")

    def test_stop_while_waiting_for_ranks(self):
        """SIGTERM to either node, while the ranks of the other are missing."""
        for k in (0, 1):
            with self.subTest(node=k):
                node = self.node(k, "dist.rendezvous_timeout=120")
                pid = self.until(lambda: self.rank_pid(2 * k), "a rank had started", node)
                self.until(lambda: "ct-stop-guard" in [read_text(f"/proc/{pid}/task/{t}/comm").strip() for t in os.listdir(f"/proc/{pid}/task")],
                           "the rank was up", node)
                os.kill(self.launcher(k), signal.SIGTERM)
                self.assert_gone(time.monotonic(), node, 5)
                r = node.wait(5)
                self.assert_code(r, STOPPED)
                self.assert_last_says(r, "stopped by signal 15", "nothing to save", "run the same command again")

    def test_stop_while_waiting_for_the_secret(self):
        node = self.node(1, "dist.rendezvous_timeout=120", env={"CTRAIN_TOKEN": "", "HOME": self.path("nobody")})
        self.until(lambda: "waiting until node 0" in node.err, "the launcher said what it waits for", node)
        os.kill(self.launcher(1), signal.SIGTERM)
        r = node.wait(5)
        self.assert_code(r, STOPPED)
        self.assert_last_says(r, "stopped by signal 15", "before any rank was started")

    def test_killed_rank_of_the_other_host(self):
        """Its launcher knows the signal, and host 0 gets to know it."""
        results, pid = self.kill(1, 2)
        for r in results:
            self.assert_last_says(r, rf"rank 2 \(pid {pid}\b", r"killed by signal 9")

    def test_row_25_only_ipv6(self):
        """A host whose loopback interface has no IPv4 address."""
        self.hosts[0].run("ip", "addr", "del", "127.0.0.1/8", "dev", "lo")
        self.hosts[0].run("ip", "addr", "del", ADDRESS[0] + "/24", "dev", "eth0")
        for backend in ("shm", "gloo"):
            r = self.start_training("--procs", 2, f"dist.backend={backend}", run=backend, prefix=self.hosts[0].prefix).wait()
            self.assert_code(r, OK)
        self.assert_reference("shm")

    def test_wrong_token(self):
        nodes = [self.node(0, "dist.rendezvous_timeout=3"), self.node(1, "dist.rendezvous_timeout=3", env={"CTRAIN_TOKEN": "guessed"})]
        r = nodes[1].wait(20)
        self.assert_code(r, USAGE)
        self.assert_last_says(r, "token")
        self.assert_code(nodes[0].wait(20), COMM)

    def test_cut_cable(self):
        """Both sides notice that the other host is silent long before the collective's limit."""
        nodes = [self.node(k, env={"CTRAIN_FAILPOINT": "step:9@0=stop"}) for k in (0, 1)]
        pid = self.until_stopped(0, nodes[0])
        self.hosts[1].run("ip", "link", "set", "eth0", "down")
        os.kill(pid, signal.SIGCONT)
        since = time.monotonic()
        self.assert_gone(since, nodes[0], 25)
        for n in nodes:
            self.assert_code(n.wait(5), COMM)


if __name__ == "__main__":
    if NO_HOSTS:
        print(f"  {NO_HOSTS}", file=sys.stderr)
    main()
