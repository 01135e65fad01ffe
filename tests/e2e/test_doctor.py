"""`ctrain doctor` on real hosts: three network, mount and UTS namespaces on a bridge, with faults that are planted for real."""

import json
import os
import re
import shlex
import subprocess
import unittest

from harness import COMM, IO, OK, SLOW, USAGE, Case, main, read_text
from hosts import Host, shell, why_not

NO_HOSTS = why_not() if __name__ == "__main__" else None
N = 3
NAME = [f"ctdoc{c}" for c in "abc"]
ADDRESS = [f"10.78.9.{1 + k}" for k in range(N)]
PORT = 29873
SHORT = 6 * SLOW  # seconds for the nodes that are not missing


def hosts_file(loopback=()):
    lines = ["127.0.0.1 localhost"]
    lines += [f"{'127.0.1.1' if k in loopback else ADDRESS[k]} {NAME[k]}" for k in range(N)]
    return "\n".join(lines) + "\n"


@unittest.skipIf(NO_HOSTS, NO_HOSTS)
class Doctor(Case):
    def everything_marked(self):
        return super().marked()

    def marked(self):
        return {pid: e for pid, e in super().marked().items() if "E2E_HOST" not in e}

    def cluster(self, loopback=None):
        """loopback[k]: the nodes whose names stand for 127.0.1.1 on host k."""
        self.hosts = [Host(self, k, NAME[k], hosts_file((loopback or {}).get(k, ()))) for k in range(N)]
        switch = Host(self, N, "ctdocsw", hosts_file())
        switch.run("ip", "link", "add", "br0", "type", "bridge")
        switch.run("ip", "link", "set", "br0", "up")
        for k, host in enumerate(self.hosts):
            shell("nsenter", f"--target={host.init}", "--net", "ip", "link", "add", "eth0", "type", "veth", "peer", "name", f"p{k}",
                  "netns", switch.init)
            switch.run("ip", "link", "set", f"p{k}", "master", "br0", "up")
            host.run("ip", "addr", "add", ADDRESS[k] + "/24", "dev", "eth0")
            host.run("ip", "link", "set", "eth0", "up")

    def node(self, k, *sets, rank=None, procs=1, nodes=N, env=None, master=ADDRESS[0], wrap=(), wait=20, run="run"):
        args = ["doctor", self.config(), f"run.dir={self.path(run)}", "--nodes", nodes, "--node-rank", k if rank is None else rank,
                "--procs", procs, "--master-addr", master, "--master-port", PORT, "--json", f"dist.rendezvous_timeout={wait}", *sets]
        return self.start(*args, prefix=[*self.hosts[k].prefix, *wrap], env={"CTRAIN_TOKEN": "secret of this job", **(env or {})})

    def examine(self, *sets, per_node=None, **more):
        """Runs doctor on all nodes; returns their results and the report of node 0. per_node[k]: arguments of node k only."""
        nodes = [self.node(k, *sets, **{**more, **(per_node or {}).get(k, {})}) for k in range(N)]
        results = [n.wait(40) for n in nodes]
        return results, json.loads(results[0].out)

    @staticmethod
    def findings(report):
        """Without those that come from a speed: other programs may use the machine at the same time."""
        return [f for f in report["findings"] if f["check"] not in ("bandwidth", "disk-speed", "slow-resolver")]

    def assert_found(self, report, check, node, *texts):
        """Exactly one finding, with these strings in its sentences."""
        findings = self.findings(report)
        self.assertEqual([(f["check"], f.get("node", -1)) for f in findings], [(check, node)], findings)
        found = findings[0]
        said = " ".join((found["what"], found["why"], found["fix"]))
        for text in texts:
            self.assertIn(text, said)

    def test_healthy_hosts(self):
        self.cluster()
        results, report = self.examine()
        for r in results:
            found = json.loads(r.out)["findings"]
            self.assertEqual(self.findings({"findings": found}), [], r.describe())
            if not found:
                self.assert_code(r, OK)
        print(f"3 hosts: {report['seconds']:.2f} s")
        self.assertEqual([n["host"] for n in report["nodes"]], NAME)
        for i, row in enumerate(report["links"]):
            for k, link in enumerate(row):
                self.assertEqual(link["reached"], i != k)
                if i != k:
                    self.assertEqual(link["addr"], ADDRESS[k])
                    self.assertGreater(link["mib_per_s"], 0)
        self.assertEqual([n["run_sharing"] for n in report["nodes"]][1:], [3, 3])
        self.assertFalse(os.path.exists(self.path("run")), "doctor left a run directory")

    def test_row_37_loopback_names(self):
        self.cluster(loopback={1: (1,), 2: ()})
        results, report = self.examine()
        self.assert_found(report, "loopback-name", 1, "127.0.1.1", f"{ADDRESS[1]} {NAME[1]}")
        # The command does what it should, also where the name is in the line of localhost.
        command = shlex.split(self.findings(report)[0]["fix"].split("sed -i")[1])[0]
        for line in (f"127.0.1.1 {NAME[1]}", f"127.0.0.1 localhost {NAME[1]}"):
            fixed = subprocess.check_output(["sed", command, self.write("hosts", line + "\n")], text=True).split("\n")
            self.assertEqual(fixed[0].split(), [w for w in line.split() if w != NAME[1]])
            self.assertEqual(fixed[1], f"{ADDRESS[1]} {NAME[1]}")
        for r in results:
            self.assert_code(r, COMM)

    def test_row_37_master_is_loopback_on_another_node(self):
        self.cluster(loopback={1: (0,)})
        r = self.node(1, master=NAME[0]).wait()
        self.assert_code(r, COMM)
        self.assert_found(json.loads(r.out), "loopback-name", 1, "loopback address", "--master-addr")

    def test_row_27_master_address_not_local(self):
        self.cluster()
        r = self.node(0, master="10.78.9.77").wait()
        self.assert_code(r, USAGE)
        self.assert_found(json.loads(r.out), "master-address", 0, "10.78.9.77", "--master-addr")
        # Training fails, too, before it waits.
        r = self.start_training("--nodes", 2, "--node-rank", 0, "--procs", 1, "--master-addr", "10.78.9.77", prefix=self.hosts[0].prefix,
                                env={"CTRAIN_TOKEN": "secret of this job"}).wait()
        self.assert_code(r, USAGE)
        self.assert_last_says(r, "10.78.9.77.*not an address of this host", "--master-addr")

    def test_row_7_unknown_master(self):
        self.cluster()
        r = self.node(2, master="ctdoc-nowhere").wait()
        self.assert_code(r, COMM)
        self.assert_found(json.loads(r.out), "master-address", 2, "ctdoc-nowhere", "/etc/hosts")

    def test_row_8_busy_port(self):
        self.cluster()
        holder = self.start("-c", f"import signal,socket\ns=socket.create_server(('', {PORT}))\nprint('up', flush=True)\nsignal.pause()",
                            prefix=self.hosts[0].prefix, program="python3")
        self.until(lambda: "up" in holder.out, "the port was held", holder)
        r = self.node(0).wait()
        self.assert_code(r, COMM)
        self.assert_found(json.loads(r.out), "port", 0, str(PORT), "in use by pid", f"--master-port {PORT + 1}")

    def firewall(self, said, *rule):
        self.cluster()
        self.hosts[1].run("iptables", "-A", "INPUT", "-i", "eth0", "-p", "tcp", "--syn", "!", "--dport", PORT, "-j", *rule)
        results, report = self.examine()
        findings = self.findings(report)
        self.assertEqual([(f["check"], f["node"]) for f in findings], [("reachability", 0), ("reachability", 2)])
        for f in findings:
            self.assertIn(said, f["fix"])
            self.assertIn("the other direction works", f["what"])
        for r in results:
            self.assert_code(r, COMM)

    def test_row_119_firewall_drops(self):
        self.firewall("drops the packets", "DROP")

    def test_row_119_firewall_rejects(self):
        self.firewall("rejects the connection", "REJECT", "--reject-with", "tcp-reset")

    def test_link_that_fails_once(self):
        """The first connection to node 1 is rejected."""
        self.cluster()
        self.hosts[1].run("iptables", "-A", "INPUT", "-i", "eth0", "-p", "tcp", "--syn", "!", "--dport", PORT, "-m", "limit", "--limit", "1/day",
                          "--limit-burst", 1, "-j", "REJECT", "--reject-with", "tcp-reset")
        _, report = self.examine()
        self.assertEqual(self.findings(report), [])
        rules = subprocess.check_output([*self.hosts[1].prefix, "iptables", "-nvxL", "INPUT"], text=True)
        self.assertRegex(rules, r"(?m)^ +1 +\d+ REJECT ")

    def test_two_nodes_with_rank_0(self):
        """Both nodes print the mistake, and node 0 does not wait for the node that never comes."""
        self.cluster()
        first = self.node(0, nodes=2, wait=60 * SLOW)
        sockets = [f"/proc/{self.hosts[0].init}/net/{name}" for name in ("tcp", "tcp6")]
        self.until(lambda: any(re.search(rf":{PORT:04X} [0-9A-F:]+ 0A ", read_text(path)) for path in sockets), "node 0 was listening", first)
        second = self.node(1, rank=0, nodes=2, wait=60 * SLOW).wait()
        self.assert_code(second, USAGE)
        self.assert_found(second.json(), "master-address", 0, "this is node 0", "the rank that belongs to it")
        first = first.wait(40)
        self.assert_code(first, COMM)
        self.assert_found(first.json(), "missing-node", 0, "node rank 0", NAME[0], NAME[1], "give each node a different --node-rank")

    def test_docker0_on_two_hosts(self):
        self.cluster()
        for k in (0, 2):
            self.hosts[k].run("ip", "link", "add", "docker0", "type", "veth", "peer", "name", "d1")
            self.hosts[k].run("ip", "addr", "add", "172.17.0.1/16", "dev", "docker0")
            for name in ("docker0", "d1"):
                self.hosts[k].run("ip", "link", "set", name, "up")
        results, report = self.examine()
        found = [f for f in report["findings"] if "172.17.0.1" in f["what"]]
        self.assertEqual([(f["check"], f["node"], f["severity"]) for f in found], [("duplicate-address", 2, "note")])
        self.assertEqual({r.code for r in results}, {OK})
        self.assertIn("NCCL_SOCKET_IFNAME=^docker0", found[0]["fix"])

    def test_mtu(self):
        self.cluster()
        self.hosts[2].run("ip", "link", "set", "eth0", "mtu", 1400)
        _, report = self.examine()
        self.assert_found(report, "mtu", 2, "1400", "1500")

    def test_environment_of_a_node(self):
        self.cluster()
        for env, check, text in (({"CUDA_VISIBLE_DEVICE": "0"}, "env-names", "export CUDA_VISIBLE_DEVICES="),
                                 ({"NCCL_SOCKET_IFNAME": "ens3 (in my case)"}, "settings", "eth0"),
                                 ({"GLOO_SOCKET_IFNAME": "eth9"}, "settings", "eth0")):
            with self.subTest(env=env):
                _, report = self.examine(per_node={1: {"env": env}})
                self.assert_found(report, check, 1, text, next(iter(env)))

    def test_row_4_trap_1_node_rank_twice(self):
        self.cluster()
        nodes = [self.node(0, wait=SHORT), self.node(1, wait=SHORT)]
        self.until(lambda: self.marked(), "they ran")
        second = self.node(2, wait=SHORT, rank=1)
        results = [n.wait() for n in (*nodes, second)]
        # The one that came second is refused; who that is depends on the scheduler.
        said = [json.loads(r.out)["findings"] for r in results[1:]]
        self.assertTrue(any("missing-node" == f["check"] and "cannot join" in f["what"] for list in said for f in list), said)

    def test_missing_node(self):
        self.cluster()
        results = [n.wait() for n in [self.node(k, wait=SHORT) for k in (0, 1)]]
        for r in results:
            self.assert_code(r, COMM)
            self.assert_found(json.loads(r.out), "missing-node", -1, "node 2 of 3", "--node-rank 2")

    def test_row_96_T13_run_directory_not_shared(self):
        self.cluster()
        os.mkdir(self.path("local"))
        home = self.path("home")
        token = self.write("home/.ctrain/token", "secret of this job\n")
        os.chmod(token, 0o600)
        self.hosts[1].run("mount", "-t", "tmpfs", "-o", "size=256m", "ctdoc", self.path("local"))
        env = {"CTRAIN_TOKEN": "", "HOME": home}
        _, report = self.examine(run="local", env=env)
        self.assert_found(report, "run-shared", 1, self.path("local"), NAME[0], "file system that all nodes mount")

    def test_full_disk(self):
        self.cluster()
        os.mkdir(self.path("small"))
        self.hosts[0].run("mount", "-t", "tmpfs", "-o", "size=1m", "ctdoc", self.path("small"))
        r, report = self.examine(run="small")
        report["findings"] = [f for f in report["findings"] if f["check"] != "run-shared"]  # only host 0 has mounted it
        self.assert_found(report, "disk-space", 0, self.path("small"), "MiB")
        self.assert_code(r[0], IO)

    def test_open_files(self):
        self.cluster()
        _, report = self.examine(per_node={2: {"wrap": ["prlimit", "--nofile=34:34"]}})
        self.assert_found(report, "open-files", 2, "34", "ulimit")

    def test_row_107_small_dev_shm(self):
        self.cluster()
        self.hosts[1].run("mount", "-t", "tmpfs", "-o", "size=64k", "ctdoc", "/dev/shm")
        _, report = self.examine("dist.backend=mpi", "launch.threads=1", procs=2)
        self.assert_found(report, "shared-memory", 1, "/dev/shm")

    def test_other_config(self):
        self.cluster()
        nodes = [self.node(k, *(["optim.lr=0.7"] if k == 2 else [])) for k in range(N)]
        results = [n.wait() for n in nodes]
        self.assert_found(json.loads(results[0].out), "config", 2, "ctrain config dump")
        self.assert_code(results[0], USAGE)


class OneHost(Case):
    def test_without_a_config(self):
        r = self.run_ctrain("doctor")
        self.assertIn("no problems found", r.out)

    def test_with_a_config(self):
        r = self.start("doctor", self.config(), f"run.dir={self.path('run')}", "--procs", 1, "--json").wait(60)
        self.assertEqual(Doctor.findings(json.loads(r.out)), [])
        self.assertFalse(os.path.exists(self.path("run")))

    def test_row_104_launch_in_a_launch(self):
        env = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
               "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "localhost"}
        r = self.run_ctrain("doctor", self.config(), "--procs", 4, "launch.threads=1", "--json", expect=USAGE, env=env)
        self.assertIn("nested-launch", [f["check"] for f in json.loads(r.out)["findings"]])

    def test_explain(self):
        self.assertIn("exit code 5", self.run_ctrain("explain", "PEER_LOST").out)
        self.assertIn("127.0.1.1", self.run_ctrain("explain", "loopback-name").out)
        r = self.run_ctrain("explain", "peer_loss", expect=USAGE)
        self.assert_last_says(r, "did you mean PEER_LOST")


if __name__ == "__main__":
    main()
