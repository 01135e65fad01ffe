"""Faults of networks and hosts: each on the host of the store and on another one, in a step of a run on three hosts. A fault ends the run on
all hosts within seconds, or within dist.timeout if a host is only silent; the message names the host; the same command resumes to the
same weights. A fault that passes does not change the weights."""

import glob
import os
import signal
import sys
import time
import unittest

from harness import COMM, CTRAIN, IO, main, read_text, state_of
from hosts import HOST, Host, HostsCase, why_not

NO_HOSTS = why_not() if __name__ == "__main__" else None
TIMEOUT = 5  # dist.timeout
AT_ONCE = 5
SILENT = TIMEOUT + 6
FAKETIME = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
DIGEST = {}


class ThreeHosts(HostsCase):
    n_hosts = 3
    own_switch = True

    def nodes(self, *sets, env=None, **more):
        sets = ("dist.backend=gloo", f"dist.timeout={TIMEOUT}", "checkpoint.every_steps=4", *sets)
        return [self.node(k, *sets, procs=1, env=env, **more) for k in range(3)]

    def undisturbed(self):
        """The weights of a run without a fault."""
        if not DIGEST:
            self.finish(self.nodes(run="undisturbed"))
            DIGEST[0] = self.digest("undisturbed")
        return DIGEST[0]

    def in_a_step(self, *sets, env=None):
        """Three nodes that stand still in step 9, with checkpoints of the steps 4 and 8."""
        nodes = self.nodes(*sets, env={"CTRAIN_FAILPOINT": "step:9@2=stop", **(env or {})})
        self.stopped = self.until_stopped(2, nodes[2])
        self.until(lambda: "step-000000000008" in self.checkpoints(), "step 8 was saved", nodes[0])
        return nodes

    def go_on(self):
        try:
            os.kill(self.stopped, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def resumes(self):
        self.finish(self.nodes())
        self.assertEqual(self.digest(), self.undisturbed())

    # ---- faults

    def of_host(self, k):
        """The launcher and the rank of node k, and not nsenter."""
        return [pid for pid, e in self.marked().items() if e.get("E2E_NODE") == str(k) and read_text(f"/proc/{pid}/cmdline").startswith(CTRAIN)]

    def signal_ranks(self, k, sig):
        for pid in self.of_host(k):
            if pid == self.rank_pid(k):
                os.kill(pid, sig)

    def cut(self, k):
        self.link("set", f"port{k}", "down")

    def cut_power(self, k):
        """Nothing is sent any more, not even the end of a connection."""
        self.link("del", f"port{k}")
        os.kill(self.hosts[k].init, signal.SIGKILL)

    def make_deaf(self, k):
        self.hosts[k].run("iptables", "-A", "INPUT", "-i", "eth0", "-j", "DROP")

    def make_mute(self, k):
        self.hosts[k].run("iptables", "-A", "OUTPUT", "-o", "eth0", "-j", "DROP")

    def heal(self, k):
        self.link("set", f"port{k}", "up")
        self.hosts[k].run("iptables", "-F")

    def reset(self, k):
        self.hosts[k].run("ss", "-K", "dst", "10.77.0.0/24")

    def kill_rank(self, k):
        self.signal_ranks(k, signal.SIGKILL)

    def kill_launcher(self, k):
        os.kill(self.launcher(k), signal.SIGKILL)

    def stop_rank(self, k):
        self.signal_ranks(k, signal.SIGSTOP)

    def freeze(self, k):
        for pid in self.of_host(k):
            os.kill(pid, signal.SIGSTOP)

    def thaw(self, k):
        """nsenter, which waits outside, stops itself after its child."""
        outside = next(pid for pid, e in self.marked().items() if e.get("E2E_NODE") == str(k) and pid not in self.of_host(k))
        self.until(lambda: state_of(outside) == "T", "nsenter stopped")
        for pid in (*self.of_host(k), outside):
            os.kill(pid, signal.SIGCONT)


@unittest.skipIf(NO_HOSTS, NO_HOSTS)
class Ends(ThreeHosts):
    def ends(self, fault, k, seconds):
        """The fault on host k ends all others; returns the nodes."""
        self.undisturbed()
        nodes = self.in_a_step()
        began = time.monotonic()
        fault(k)
        if k != 2 or fault not in (self.stop_rank, self.freeze):
            self.go_on()
        for j in range(3):
            if j == k:
                continue
            r = nodes[j].wait(seconds - (time.monotonic() - began))
            self.assert_code(r, COMM)
            self.assert_last_says(r, rf"{HOST[k]}|rank {k}\b")
        return nodes

    def on_both(self, fault, seconds, after=None):
        for k in (0, 2):
            with self.subTest(host=k):
                self.on_one(fault, k, seconds, after)
            self.end_all()
            os.rename(self.path("run"), self.path(f"run-{k}"))

    def on_one(self, fault, k, seconds, after):
        nodes = self.ends(fault, k, seconds)
        if after:
            after(k)
        self.assert_gone(time.monotonic(), nodes[k], seconds)
        self.resumes()

    def test_killed_rank(self):
        self.on_both(self.kill_rank, AT_ONCE)

    def test_killed_launcher(self):
        self.on_both(self.kill_launcher, AT_ONCE)

    def test_connections_reset(self):
        self.on_both(self.reset, AT_ONCE)

    def test_stopped_rank(self):
        self.on_both(self.stop_rank, SILENT)

    def test_frozen_host(self):
        """As a suspended virtual machine: when it goes on, its processes find that the run has ended."""
        self.on_both(self.freeze, SILENT, self.thaw)

    def test_cut_cable(self):
        self.on_both(self.cut, SILENT, self.heal)

    def test_deaf_host(self):
        self.on_both(self.make_deaf, SILENT, self.heal)

    def test_mute_host(self):
        self.on_both(self.make_mute, SILENT, self.heal)

    def test_power_cut(self):
        def restore(k):
            self.hosts[k] = Host(self, k)
            self.plug_in(k)
        self.on_both(self.cut_power, SILENT, restore)

    def test_full_disk(self):
        """Only rank 0 writes checkpoints; the disk of its host is full."""
        self.undisturbed()
        os.makedirs(self.path("run"))
        self.hosts[0].run("mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", self.path("run"))
        self.fails_to_save("head -c 101m /dev/zero >{}/fill || true", "rm {}/fill", "No space left")

    def test_read_only_disk(self):
        self.undisturbed()
        self.fails_to_save("mount --bind {0}/checkpoints {0}/checkpoints && mount -o remount,bind,ro {0}/checkpoints",
                           "umount {}/checkpoints", "Read-only file system")

    def fails_to_save(self, break_it, mend_it, message):
        nodes = self.nodes(env={"CTRAIN_FAILPOINT": "step:9@2=stop"})
        self.stopped = self.until_stopped(2, nodes[2])
        inside = [*self.hosts[0].prefix, "sh", "-c"]
        self.until(lambda: "step-000000000008" in self.start("-c", f"ls {self.path('run')}/checkpoints", program="sh",
                                                         prefix=self.hosts[0].prefix).wait().out, "step 8 was saved", nodes[0])
        self.hosts[0].run("sh", "-c", break_it.format(self.path("run")))
        self.go_on()
        results = [n.wait(20) for n in nodes]
        self.assert_code(results[0], IO)
        self.assert_last_says(results[0], message, self.path("run"))
        for r in results[1:]:
            self.assert_code(r, IO)
            self.assert_last_says(r, r"rank 0\b", message)
        self.assertEqual(self.marked(), {})
        self.hosts[0].run("sh", "-c", mend_it.format(self.path("run")))
        self.finish(self.nodes())
        text = self.start("-c", f"cat {self.path('run')}/metrics.jsonl", program="sh", prefix=self.hosts[0].prefix).wait().out
        self.assertIn(self.undisturbed(), text.splitlines()[-1])


@unittest.skipIf(NO_HOSTS, NO_HOSTS)
class Passes(ThreeHosts):
    def passes(self, fault, k, heal=None, seconds=0, **more):
        self.undisturbed()
        nodes = self.in_a_step(**more)
        fault(k)
        self.go_on()
        if heal:
            time.sleep(seconds)
            heal(k)
        results = self.finish(nodes)
        self.assertEqual(self.digest(), self.undisturbed())
        return results

    def test_cable_plugged_in_again(self):
        for k in (0, 2):
            with self.subTest(host=k):
                self.passes(self.cut, k, self.heal, 2)
                os.rename(self.path("run"), self.path(f"run-{k}"))

    def test_one_way_loss_that_passes(self):
        self.passes(self.make_deaf, 0, self.heal, 2)
        os.rename(self.path("run"), self.path("run-0"))
        self.passes(self.make_mute, 2, self.heal, 2)

    def test_host_frozen_for_a_while(self):
        for k in (0, 1):
            with self.subTest(host=k):
                self.passes(self.freeze, k, self.thaw, 2)
                os.rename(self.path("run"), self.path(f"run-{k}"))

    def test_slow_link(self):
        def throttle(k):
            self.hosts[k].run("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "20mbit", "burst", "32kb", "latency", "100ms")
        self.passes(throttle, 1)

    def test_host_far_away(self):
        """40 ms there and back, from the start; each of the steps needs at least one round trip."""
        self.undisturbed()
        self.plug_in_far_away(1, 20)
        began = time.monotonic()
        self.finish(self.nodes())
        self.assertGreater(time.monotonic() - began, 42 * 0.04)
        self.assertEqual(self.digest(), self.undisturbed())

    def test_lossy_link(self):
        def lose(k):
            self.hosts[k].run("iptables", "-A", "INPUT", "-i", "eth0", "-m", "statistic", "--mode", "random", "--probability", "0.02",
                              "-j", "DROP")
        self.passes(lose, 0)

    @unittest.skipIf(not FAKETIME, "the package faketime is not installed")
    def test_clock_that_jumps(self):
        for jump in ("+3600", "-3600"):
            with self.subTest(seconds=jump):
                clock = self.write("clock", "+0\n")
                env = {"LD_PRELOAD": FAKETIME[0], "FAKETIME_TIMESTAMP_FILE": clock, "FAKETIME_NO_CACHE": "1",
                       "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
                self.passes(lambda k, jump=jump: self.write("clock", jump + "\n"), 0, env=env)
                os.rename(self.path("run"), self.path("run" + jump))


if __name__ == "__main__":
    if NO_HOSTS:
        print(f"  {NO_HOSTS}", file=sys.stderr)
    main()
