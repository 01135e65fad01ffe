"""`ctrain launch --hosts` over a real sshd on two hosts (hosts.py)."""

import os
import shutil
import signal
import subprocess
import unittest

from harness import COMM, CTRAIN, DATA, MARK, NUMERIC, OK, STOPPED, USAGE, main, read_text
from hosts import HOST, HostsCase, why_not

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
NO_SSH = None
if __name__ == "__main__":
    NO_SSH = why_not() or (None if os.path.exists(SSHD) and shutil.which("ssh") else "there is no sshd (package openssh-server)")
TOKEN = "a secret that no one else may see"


@unittest.skipIf(NO_SSH, NO_SSH)
class Ssh(HostsCase):
    """Host a starts the run. Both hosts have an sshd; host a is started without it where its own name is given."""

    def setUp(self):
        super().setUp()
        os.chmod(self.tmp, 0o755)
        for name in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(name)], check=True)
        shutil.copy(self.path("user_key.pub"), self.path("authorized"))
        conf = self.write("sshd.conf", f"""
            HostKey {self.path('host_key')}
            AuthorizedKeysFile {self.path('authorized')}
            StrictModes no
            UsePAM no
            PidFile none
            SetEnv {MARK}={self.mark} PATH={os.environ['PATH']} XDG_CACHE_HOME={self.path('cache')}
            """)
        client = self.write("ssh.conf", f"""
            IdentityFile {self.path('user_key')}
            StrictHostKeyChecking no
            UserKnownHostsFile {self.path('known')}
            LogLevel ERROR
            """)
        self.ssh = f"ssh -F {client}"
        self.daemons = []
        for host in self.hosts:
            host.run("mkdir", "-p", "/run/sshd")
            self.daemons.append(self.start("-D", "-f", conf, program=SSHD, prefix=host.prefix, env={"E2E_HOST": "sshd"}))
            self.until(lambda: subprocess.run([*host.prefix, "ss", "-tln", "sport", "=", "22"], capture_output=True).stdout.count(b"\n") > 1,
                       "sshd listens", self.daemons[-1])

    def launch(self, *sets, hosts=f"{HOST[0]}:2,root@{HOST[1]}:2", run="run", env=None, **more):
        return self.start("launch", "--hosts", hosts, "--ssh", self.ssh, self.config(), f"run.dir={self.path(run)}",
                          "dist.rendezvous_timeout=20", *sets, prefix=self.hosts[0].prefix, env={"E2E_LAUNCH": "1", **(env or {})}, **more)

    def sleepers(self):
        """Processes of runs on all hosts, without ssh's own."""
        return {pid: read_text(f"/proc/{pid}/cmdline") for pid in self.marked()}

    def assert_all_ended(self):
        self.until(lambda: not self.sleepers(), "everything ended: " + str(self.sleepers()))

    def launcher_pid(self):
        return self.until(lambda: next((pid for pid, c in self.sleepers().items() if c.startswith(CTRAIN + "\0launch")), None), "ctrain launch ran")

    def test_same_result_as_the_local_launch(self):
        for name, hosts, procs in (("two", f"{HOST[0]}:1,{HOST[1]}:1", 2), ("users", f"root@{HOST[0]}:2,root@{HOST[1]}:2", 4)):
            with self.subTest(hosts=hosts):
                r = self.launch("dist.backend=gloo", hosts=hosts, run=name).wait()
                self.assert_code(r, OK)
                self.train("--procs", procs, "dist.backend=gloo", run=name + "-local")
                self.assertEqual(self.metrics(name, kind="run")[0]["world_size"], procs)
                self.assertEqual(self.digest(name), self.digest(name + "-local"))
                self.assertRegex(r.out, r"(?m)^epoch 2 ")
        self.assert_all_ended()

    def test_row_109_variables_and_secret(self):
        """Variables reach all hosts, and the secret is in no command line."""
        run = self.launch("train.epochs=200", env={"CTRAIN_TOKEN": TOKEN, "NCCL_DEBUG": "INFO", "CTRAIN_LOG": "debug"})
        self.until_step(3, run)
        lines = self.sleepers()
        self.assertEqual([c for c in lines.values() if TOKEN in c], [])
        ranks = {e["RANK"]: e for e in self.marked().values() if "RANK" in e}
        self.assertEqual(sorted(ranks), ["0", "1", "2", "3"])
        for e in ranks.values():
            self.assertEqual((e["CTRAIN_TOKEN"], e["NCCL_DEBUG"], e["CTRAIN_LOG"]), (TOKEN, "INFO", "debug"))
        os.kill(self.launcher_pid(), signal.SIGTERM)
        r = run.wait()
        self.assert_code(r, STOPPED)
        # The lines of node 0 are as they are, those of the other node have its name.
        self.assertRegex(r.err, rf"(?m)^\[{HOST[1]}\] \[rank 3\] ")
        self.assertNotIn(f"[{HOST[0]}]", r.err)

    def test_one_interrupt_ends_everything(self):
        reference = self.launch("train.epochs=40", run="whole").wait()
        self.assert_code(reference, OK)
        run = self.launch("train.epochs=40")
        self.until_step(3, run)
        # As the terminal does: to all processes in the foreground, except for nsenter.
        group = os.getpgid(self.launcher_pid())
        for pid in [pid for pid, c in self.sleepers().items() if os.getpgid(pid) == group and not c.startswith("nsenter")]:
            os.kill(pid, signal.SIGINT)
        r = run.wait()
        self.assert_code(r, STOPPED)
        self.assert_all_ended()
        self.assertIn("received Interrupt", r.err)
        self.assert_code(self.launch("train.epochs=40").wait(), OK)
        self.assertEqual(self.digest(), self.digest("whole"))

    def test_second_interrupt_ends_at_once(self):
        run = self.launch("train.epochs=100000")
        self.until_step(3, run)
        for pid in [pid for pid, e in self.marked().items() if e.get("RANK") == "3"]:
            os.kill(pid, signal.SIGSTOP)
        for _ in range(2):
            os.kill(self.launcher_pid(), signal.SIGINT)
            self.until(lambda: "received Interrupt" in run.err, "the request was seen", run)
        self.assertNotEqual(run.wait(20).code, OK)
        self.assert_all_ended()

    def test_killed_launcher(self):
        run = self.launch("train.epochs=100000")
        self.until_step(3, run)
        os.kill(self.launcher_pid(), signal.SIGKILL)
        run.wait()
        self.assert_all_ended()
        self.assertEqual(self.metrics(kind="end")[-1]["status"], "stopped by a signal")

    def test_host_that_cannot_be_reached(self):
        r = self.launch(hosts=f"{HOST[0]}:2,ctnowhere:2").wait()
        self.assert_code(r, COMM)
        self.assert_last_says(r, "the connection to ctnowhere .node 1. failed", "must work without a password")
        self.assert_all_ended()

    def test_failed_run(self):
        r = self.launch("optim.lr=900", "optim.momentum=0.99", "optim.clip_norm=0").wait()
        self.assert_code(r, NUMERIC)
        self.assert_last_says(r, r"node \d on (root@)?ctnode. ended with exit code 6", "ctrain explain 6")
        self.assert_all_ended()

    def test_program_is_missing_on_a_host(self):
        self.hosts[1].run("mount", "-t", "tmpfs", "none", os.path.dirname(CTRAIN))
        r = self.launch().wait()
        self.assert_last_says(r, f"ctrain could not be started on root@{HOST[1]}", "at the same path")
        self.assert_code(r, DATA)
        self.assert_all_ended()

    def test_mistakes(self):
        for args, text in ((("--hosts", "a:0", self.config()), "no number of ranks"), (("--hosts", "a:2,b", self.config()), "for every host"),
                           (("--hosts", "a:2", "--procs", 2, self.config()), "--procs cannot be used"), ((self.config(),), "needs --hosts"),
                           (("--hosts", "localhost:1,b:1", self.config()), "by this name")):
            with self.subTest(args=args):
                self.assert_last_says(self.run_ctrain("launch", *args, expect=USAGE), text)


if __name__ == "__main__":
    main()
