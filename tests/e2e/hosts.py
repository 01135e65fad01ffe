"""Hosts for tests: network, process, mount and UTS namespaces joined by virtual cables, each with Debian's /etc/hosts in which a
host's own name is 127.0.1.1. The namespaces have no names and end with the processes that hold them."""

import os
import shutil
import subprocess
import sys

from harness import CTRAIN, Case, die_with_parent, read_text

ADDRESS = ("10.77.0.1", "10.77.0.2", "10.77.0.3", "10.77.0.4")
HOST = ("ctnodea", "ctnodeb", "ctnodec", "ctnoded")
PORT = 29871
UNSHARE = ("unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private")


def why_not():
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "unshare", "nsenter", "mount", "hostname"):
        if not shutil.which(tool):
            return f"there is no program `{tool}`"
    if not os.path.exists("/etc/hosts"):
        return "there is no /etc/hosts to put the hosts' names over"
    probe = subprocess.run([*UNSHARE, "ip", "link", "add", "ctprobe", "type", "veth"], capture_output=True, text=True)
    return None if probe.returncode == 0 else "no network namespaces here: " + probe.stderr.strip()


def shell(*argv):
    r = subprocess.run([str(a) for a in argv], capture_output=True, text=True)
    if r.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, argv))}: {r.stderr.strip()}")


class Host:
    def __init__(self, case, k, name=None, hosts=None):
        holder = subprocess.Popen([*UNSHARE, "sleep", "600"], preexec_fn=die_with_parent, env=case.env({"E2E_HOST": str(k)}))
        case.addCleanup(holder.wait)
        case.addCleanup(holder.kill)
        # The first process of the host; until it is sleep, the host is not ready.
        self.init = case.until(lambda: next((pid for pid, e in case.everything_marked().items() if e.get("E2E_HOST") == str(k)
                                             and read_text(f"/proc/{pid}/comm") == "sleep\n"), None), "the host was there")
        if not hosts:
            others = "".join(f"{ADDRESS[j]} {HOST[j]}\n" for j in range(case.n_hosts) if j != k)
            hosts = f"127.0.0.1 localhost\n127.0.1.1 {HOST[k]}\n{others}"
        hosts = case.write(f"hosts-{k}", hosts)
        self.prefix = ["nsenter", f"--target={self.init}", "--net", "--mount", "--root", "--uts", "--pid"]
        self.run("mount", "--bind", hosts, "/etc/hosts")
        self.run("hostname", name or HOST[k])
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *argv):
        shell(*self.prefix, *argv)


class HostsCase(Case):
    n_hosts = 2
    own_switch = False  # of three hosts or more, the first one is the switch

    def setUp(self):
        super().setUp()
        self.hosts = [Host(self, k) for k in range(self.n_hosts)]
        self.switch = Host(self, self.n_hosts) if self.own_switch else self.hosts[0]
        if self.n_hosts == 2:
            self.link("add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", self.hosts[1].init)
        else:
            self.link("add", "eth0", "type", "bridge")
            self.link("set", "eth0", "up")
        for k in range(self.n_hosts):
            self.plug_in(k)

    def link(self, *argv):
        """Runs `ip link` in the switch's network, but with the outer names of processes."""
        shell("nsenter", f"--target={self.switch.init}", "--net", "ip", "link", *argv)

    def plug_in(self, k):
        host = self.hosts[k]
        if self.n_hosts > 2 and host is not self.switch:
            self.link("add", f"port{k}", "type", "veth", "peer", "name", "eth0", "netns", host.init)
            self.link("set", f"port{k}", "master", "eth0", "up")
        self.bring_up(k)

    def plug_in_far_away(self, k, delay_ms):
        """Replaces the cable of host k by one that delays every packet."""
        self.link("del", f"port{k}")
        wire = subprocess.Popen([sys.executable, "-B", os.path.join(os.path.dirname(__file__), "delay_wire.py"), str(self.hosts[k].init), "eth0",
                                 str(self.switch.init), f"port{k}", str(delay_ms)],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        self.addCleanup(wire.wait)
        self.addCleanup(wire.kill)
        self.assertEqual(wire.stdout.readline(), "ready\n")
        self.link("set", f"port{k}", "master", "eth0", "up")
        self.bring_up(k)

    def bring_up(self, k):
        host = self.hosts[k]
        host.run("ip", "link", "set", "eth0", "address", f"02:00:00:00:00:{k:02x}")  # the same one after a restart
        host.run("ip", "addr", "add", ADDRESS[k] + "/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")

    def node(self, k, *sets, procs=2, nodes=None, on=None, env=None, **more):
        """The launcher of node k, on host k, unless `on` is another host."""
        on = k if on is None else on
        return self.start_training("--nodes", nodes or self.n_hosts, "--node-rank", k, "--procs", procs, "--master-addr", HOST[0],
                                   "--master-port", PORT, "dist.rendezvous_timeout=10", *sets, prefix=self.hosts[on].prefix,
                                   env={"CTRAIN_TOKEN": "secret of this job", "E2E_NODE": str(k), **(env or {})}, **more)

    def everything_marked(self):
        return super().marked()

    def marked(self):
        """The hosts themselves are no part of a run."""
        return {pid: e for pid, e in super().marked().items() if "E2E_HOST" not in e}

    def launcher(self, k):
        """nsenter waits outside; the launcher is its child inside."""
        return self.until(lambda: next((pid for pid, e in self.marked().items() if e.get("E2E_NODE") == str(k) and "RANK" not in e
                                        and read_text(f"/proc/{pid}/cmdline").startswith(CTRAIN)), None), f"the launcher of host {k} was there")

    @staticmethod
    def inner(pid):
        """What the process calls itself."""
        return next(line.split()[-1] for line in read_text(f"/proc/{pid}/status").splitlines() if line.startswith("NSpid:"))

    def both(self, *sets, **more):
        return [self.node(k, *sets, **more) for k in (0, 1)]
