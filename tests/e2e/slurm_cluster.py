"""A real Slurm on three hosts: munged, slurmctld and slurmd in network, process, mount and UTS namespaces that a switch connects. The
namespaces have no names, and everything in them ends with the processes that hold them, whatever ends the test."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from harness import CTRAIN, SLOW, Case, die_with_parent, marked, pause, read_text, state_of

N_HOSTS = 3
N_GPUS = 2  # of each host: Slurm allocates links to a character device
UNSHARE = ("unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private")
# SlurmdTimeout, MessageTimeout, TCPTimeout: a node is lost soon. cred_expire: a requeued job may start again after so many seconds instead of
# two minutes.
CONF = """\
ClusterName=ctest
SlurmctldHost={hosts[0]}(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/run/munge.sock,cred_expire=5
CredType=cred/munge
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool/%n
SlurmctldPidFile={dir}/run/slurmctld.pid
SlurmdPidFile={dir}/run/slurmd.%n.pid
SlurmctldLogFile={dir}/log/slurmctld.log
SlurmdLogFile={dir}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=6
KillWait=2
MessageTimeout=2
TCPTimeout=1
MailProg=/bin/true
GresTypes=gpu
TmpFS={dir}/tmp
NodeName={prefix}[1-{n}] NodeAddr=10.77.0.[1-{n}] CPUs=4 RealMemory=4000 Gres=gpu:{n_gpus} State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE GraceTime=10 State=UP
PartitionName=high Nodes=ALL MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF State=UP
"""


CONFIG = """\
model: {name: mlp, hidden: [32]}
data: {name: synthetic, n_train: 1000, n_val: 230, shape: [1, 12, 12]}
batch: {global: 48}
optim: {lr: 0.05, momentum: 0.9}
train: {epochs: 2}
launch: {threads: 1}
checkpoint: {every_steps: 10}
log: {every: 1}
"""
N_STEPS = 42
# Rank 0 stops (SIGSTOP) after this step. A job that resumes there has fewer steps left, so it does not stop again.
STOP_AT = 30
STOP = f"step:{STOP_AT}@0=stop"


def why_not():
    """Why this machine cannot run the cluster, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "squeue", "ip", "unshare", "nsenter", "hostname"):
        if not shutil.which(tool):
            return f"there is no program `{tool}` (scripts/setup.sh --test installs it)"
    probe = subprocess.run([*UNSHARE, "ip", "link", "add", "ctprobe", "type", "veth"], capture_output=True, text=True)
    return None if probe.returncode == 0 else "no network namespaces here: " + probe.stderr.strip()


def run(*argv, check=True, **more):
    r = subprocess.run([str(a) for a in argv], capture_output=True, text=True, **more)
    if check and r.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, argv))}: exit code {r.returncode}: {r.stderr.strip()}")
    return r.stdout


class Host:
    """Namespaces, and the process `init` that holds them."""

    def __init__(self, cluster, name):
        env = {"PATH": os.environ["PATH"], "E2E_MARK": cluster.mark + name}
        self.cluster, self.name, self.daemons = cluster, name, []
        self.holder = subprocess.Popen([*UNSHARE, "sleep", "3600"], preexec_fn=die_with_parent, env=env, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 20 * SLOW
        self.init = None
        while not self.init:
            self.init = next((p for p in marked(cluster.mark + name) if read_text(f"/proc/{p}/comm") == "sleep\n"), None)
            if time.monotonic() > deadline:
                raise AssertionError(f"host {name} did not start")
            pause()
        self.enter = ["nsenter", f"--target={self.init}", "--net", "--mount", "--root", "--uts", "--pid"]
        self.run("hostname", name)
        self.run("ip", "link", "set", "lo", "up")

    def prefix(self, directory):
        """Starts a program on this host, in a directory: entering a mount namespace changes it."""
        return [*self.enter, "sh", "-c", 'cd "$0" && exec "$@"', directory]

    def run(self, *argv, **more):
        return run(*self.enter, *argv, **more)

    def daemon(self, *argv):
        """Daemons are no part of a test's job: without its mark. They end with the host."""
        with open(os.path.join(self.cluster.dir, "log", f"{self.name}.{argv[0]}.out"), "ab") as log:
            daemon = subprocess.Popen([*self.enter, *map(str, argv)], env=self.cluster.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                      start_new_session=True, preexec_fn=die_with_parent)
        self.daemons.append(daemon)
        return daemon

    def stop(self):
        self.holder.kill()
        self.holder.wait()
        try:
            os.kill(self.init, signal.SIGKILL)
        except ProcessLookupError:
            pass
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()


class Cluster:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="ctrain-slurm-")
        self.name = f"cs{os.getpid()}n"
        self.mark = f"slurm-{os.getpid()}-"
        self.names = [f"{self.name}{k + 1}" for k in range(N_HOSTS)]
        self.hosts = []
        for sub in ("state", "spool", "log", "run", "tmp"):
            os.mkdir(os.path.join(self.dir, sub))
        # munged refuses a socket in a directory that others cannot enter.
        os.chmod(self.dir, 0o755)
        self.env = {"PATH": os.environ["PATH"], "SLURM_CONF": os.path.join(self.dir, "slurm.conf"), "HOME": self.dir}
        try:
            self.write_files()
            self.connect()
            self.start()
        except BaseException:
            self.stop()
            raise

    def write(self, name, data, mode=0o644):
        path = os.path.join(self.dir, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())
        return path

    def write_files(self):
        self.write("munge.key", os.urandom(128), 0o600)
        self.write("slurm.conf", CONF.format(dir=self.dir, hosts=self.names, prefix=self.name, n=N_HOSTS, n_gpus=N_GPUS))
        for k in range(N_GPUS):
            os.symlink("/dev/null", os.path.join(self.dir, f"gpu{k}"))
        self.write("gres.conf", f"NodeName={self.name}[1-{N_HOSTS}] Name=gpu File={self.dir}/gpu[0-{N_GPUS - 1}]\n")
        self.write("cgroup.conf", "CgroupPlugin=cgroup/v1\n")
        names = "".join(f"10.77.0.{k + 1} {name}\n" for k, name in enumerate(self.names))
        self.etc_hosts = self.write("hosts", "127.0.0.1 localhost\n" + names)

    def connect(self):
        self.switch = Host(self, f"{self.name}sw")
        self.switch.run("ip", "link", "add", "br0", "type", "bridge")
        self.switch.run("ip", "link", "set", "br0", "up")
        for k, name in enumerate(self.names):
            host = Host(self, name)
            self.hosts.append(host)
            # From the switch's network, but with the outer names of processes.
            run("nsenter", f"--target={self.switch.init}", "--net", "ip", "link", "add", f"p{k + 1}", "type", "veth", "peer", "name", "eth0",
                "netns", host.init)
            self.switch.run("ip", "link", "set", f"p{k + 1}", "master", "br0", "up")
            host.run("ip", "addr", "add", f"10.77.0.{k + 1}/24", "dev", "eth0")
            host.run("ip", "link", "set", "eth0", "up")
            host.run("mount", "--bind", self.etc_hosts, "/etc/hosts")

    def start(self):
        d = self.dir
        first = self.hosts[0]
        first.daemon("munged", "--foreground", f"--socket={d}/run/munge.sock", f"--key-file={d}/munge.key", f"--pid-file={d}/run/munged.pid",
                     f"--log-file={d}/log/munged.log", f"--seed-file={d}/run/munged.seed", "--num-threads=2")
        self.until(lambda: os.path.exists(f"{d}/run/munge.sock"), "munged was up")
        first.daemon("slurmctld", "-D", "-c")
        for host in self.hosts:
            host.slurmd = host.daemon("slurmd", "-D")
        self.until(self.is_idle, "all nodes were idle")

    def is_idle(self):
        states = self.query("sinfo", "-h", "-N", "-p", "low", "-o", "%N %T", check=False).split("\n")
        return sorted(s for s in states if s) == [f"{name} idle" for name in self.names]

    def until(self, condition, what, seconds=60):
        deadline = time.monotonic() + seconds * SLOW
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > deadline:
                logs = "".join(f"\n== {name}\n{read_text(os.path.join(self.dir, 'log', name))[-3000:]}"
                               for name in sorted(os.listdir(os.path.join(self.dir, "log"))))
                raise AssertionError(f"{seconds * SLOW:g} s passed before {what}{logs}")
            pause()

    def query(self, *argv, **more):
        """Runs a client of Slurm on the first host."""
        return self.hosts[0].run(*argv, env=self.env, **more)

    def cut(self, k):
        self.switch.run("ip", "link", "set", f"p{k + 1}", "down")

    def heal(self, k):
        """Connects the host again. Its new slurmd registers at once."""
        host = self.hosts[k]
        self.switch.run("ip", "link", "set", f"p{k + 1}", "up")
        host.run("pkill", "-KILL", "-x", "slurmd")  # of this host's processes only
        host.slurmd.wait()
        host.slurmd = host.daemon("slurmd", "-D")

    def stop(self):
        for host in [*self.hosts, *([self.switch] if hasattr(self, "switch") else [])]:
            host.stop()
        shutil.rmtree(self.dir, ignore_errors=True)


class SlurmCase(Case):
    """All cases of a class use the same cluster."""
    undisturbed = None

    @classmethod
    def setUpClass(cls):
        cls.why_not = why_not()
        if not cls.why_not:
            cls.cluster = Cluster()
            cls.addClassCleanup(cls.cluster.stop)

    def setUp(self):
        if self.why_not:
            self.skipTest(self.why_not)
        super().setUp()
        os.chmod(self.tmp, 0o755)
        self.jobs = []
        self.addCleanup(self.leave_idle)
        self.config(CONFIG)

    def leave_idle(self):
        """Cancels what a test leaves, and waits until the next test finds an idle cluster."""
        for job in self.jobs:
            self.query("scancel", job, check=False)
        self.end_all()
        self.cluster.until(self.cluster.is_idle, "the cluster was idle again")

    # ---- jobs

    def slurm_env(self, extra=None):
        return self.env({"SLURM_CONF": self.cluster.env["SLURM_CONF"], "HOME": self.tmp, **(extra or {})})

    def query(self, *argv, env=None, **more):
        """Runs a client of Slurm, or ctrain, on the first host, in the directory of the test."""
        return run(*self.cluster.hosts[0].prefix(self.tmp), *argv, env=self.slurm_env(env), **more)

    def srun(self, *argv, program="srun", env=None, host=0):
        return self.start(*argv, program=program, prefix=self.cluster.hosts[host].prefix(self.tmp),
                          env={"SLURM_CONF": self.cluster.env["SLURM_CONF"], "HOME": self.tmp, **(env or {})})

    def script(self, *args, run="run", nodes=2, procs=2):
        """A batch script as ctrain writes it."""
        path = self.path(f"{run}.sbatch")
        ranks = ("--procs", procs) if procs else ()
        self.query(CTRAIN, "slurm", "tiny.yaml", "--nodes", nodes, *ranks, "--out", path, f"run.dir={run}", *args)
        return path

    def submit(self, script, *options, env=None):
        job = self.query("sbatch", "--parsable", *options, script, env=env).strip()
        self.jobs.append(job)
        return job

    def job(self, job):
        """The fields of a job."""
        text = self.query("scontrol", "--oneliner", "show", "job", job)
        return dict(re.findall(r"(?:^| )([A-Z][A-Za-z]*)=(\S*)", text))

    def until_job(self, job, state, seconds=60):
        def there():
            now = self.job(job)
            if now["JobState"] in ("COMPLETED", "FAILED", "CANCELLED") and now["JobState"] != state:
                raise AssertionError(f"job {job} is {now['JobState']}, not {state}")
            return now if now["JobState"] == state else None
        try:
            return self.cluster.until(there, f"job {job} was {state}", seconds)
        except AssertionError as e:
            logs = "".join(f"\n== {n}\n{read_text(self.path(n))[-4000:]}" for n in os.listdir(self.tmp) if n.endswith(".log"))
            raise AssertionError(f"{self.job(job)}{logs}\n{e}") from None

    def until_rank_stopped(self, rank=0):
        """The pid, in this namespace, of a rank that has stopped at a failpoint."""
        def stopped():
            return next((pid for pid, e in self.marked().items() if state_of(pid) == "T" and e.get("RANK", e.get("SLURM_PROCID")) == str(rank)), None)
        return self.cluster.until(stopped, f"rank {rank} stopped")

    def start_stopped(self, *options, env=None, sets=(), **more):
        """Submits a job; returns its id and the pid of rank 0 when that has stopped in step 30."""
        job = self.submit(self.script(*sets, **more), *options, env={"CTRAIN_FAILPOINT": STOP, **(env or {})})
        return job, self.until_rank_stopped()

    def finish_job(self, job, run="run", restarts=(0, 0)):
        """The job ends by itself, with the weights of an undisturbed one."""
        now = self.until_job(job, "COMPLETED")
        self.assertEqual(now["ExitCode"], "0:0")
        self.assertIn(int(now["Restarts"]), range(restarts[0], restarts[1] + 1))
        self.assert_undisturbed(run)

    def assert_undisturbed(self, run="run"):
        if SlurmCase.undisturbed is None:
            job = self.submit(self.script(run="undisturbed"))
            self.until_job(job, "COMPLETED")
            SlurmCase.undisturbed = self.losses("undisturbed"), self.digest("undisturbed")
        losses, digest = SlurmCase.undisturbed
        self.assertEqual(sorted(losses), list(range(1, N_STEPS + 1)))
        self.assertEqual(self.losses(run), losses)
        self.assertEqual(self.digest(run), digest)

    def log_of(self, job):
        """What rank 0 has reported. Slurm may have ended srun, which writes the log of the job, before."""
        return read_text(self.path(f"tiny-{job}.log")) + read_text(self.path("run", "log", "rank-00000.log"))

    # ---- lost nodes

    def content(self, run="run"):
        """Digest of everything in the run directory but the logs of ranks."""
        h = hashlib.sha256()
        for directory, subs, files in sorted(os.walk(self.path(run))):
            subs.sort()
            for name in sorted(files):
                path = os.path.join(directory, name)
                if os.path.basename(directory) != "log":
                    h.update(os.path.relpath(path, self.path(run)).encode() + b"\0" + open(path, "rb").read())
            h.update(repr(sorted((d, os.readlink(os.path.join(directory, d))) for d in os.listdir(directory)
                                 if os.path.islink(os.path.join(directory, d)))).encode())
        return h.hexdigest()

    def lose_node(self, failpoint, at_once, *sets):
        """Host 2, with rank 0, loses its network. Slurm notices this, or an administrator reports it at once, and Slurm starts the job
        again on hosts 1 and 3. Rank 0 of the first start is stopped, and continues when the second one has ended: it must not write
        anything."""
        job = self.submit(self.script(*sets), f"--nodelist={self.cluster.names[1]},{self.cluster.names[2]}", env={"CTRAIN_FAILPOINT": failpoint})
        pid = self.until_rank_stopped()
        self.cluster.cut(1)
        try:
            if at_once:
                self.query("scontrol", "update", f"NodeName={self.cluster.names[1]}", "State=DOWN", "Reason=lost")
            self.cluster.until(lambda: self.job(job)["Restarts"] == "1", "Slurm had requeued the job")
            # Any two nodes will do for the second start.
            self.query("scontrol", "update", f"JobId={job}", "ReqNodeList=")
            self.finish_job(job, restarts=(1, 1))
            before = self.content()
            self.assertEqual(state_of(pid), "T")
            os.kill(pid, signal.SIGCONT)
            self.cluster.until(lambda: state_of(pid) in ("", "Z", "X"), "the rank of the first start had ended")
            self.assertEqual(self.content(), before)
        finally:
            self.cluster.heal(1)
        self.assertIn("takes over the run directory", self.log_of(job))
