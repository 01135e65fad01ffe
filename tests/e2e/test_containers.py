"""What a container demands of the program, without a container engine: it is the first process (PID 1) of a PID namespace, which the kernel
treats differently, and in Kubernetes its pod is a node. tests/e2e/test_container_engines.py builds and runs the images."""

import os
import re
import shutil
import signal
import subprocess
import unittest

from harness import COMM, CTRAIN, SOURCE, STOPPED, USAGE, Case, main, read_text, state_of

POD = ("unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")
MANIFESTS = os.path.join(SOURCE, "docker", "k8s")


def why_not():
    if os.geteuid() != 0:
        return "PID namespaces need root"
    for tool in ("unshare", "nsenter"):
        if not shutil.which(tool):
            return f"there is no program `{tool}`"
    probe = subprocess.run([*POD, "true"], capture_output=True, text=True)
    return None if probe.returncode == 0 else "no PID namespaces here: " + probe.stderr.strip()


NO_PODS = why_not() if __name__ == "__main__" else None


class Pods(Case):
    def first(self, process):
        """The pid, outside, of the program that is PID 1 inside."""
        def found():
            for pid, env in self.marked().items():
                status = read_text(f"/proc/{pid}/status")
                inner = re.search(r"^NSpid:(.*)$", status, re.M)
                if inner and inner[1].split()[1:] == ["1"] and env.get("POD", "") == process.env_pod and os.readlink(f"/proc/{pid}/exe") == CTRAIN:
                    return pid
            return None
        return self.until(found, "the program was the first process of its namespace", process)

    def pod(self, *args, pod="0", env=None, **more):
        process = self.start(*args, prefix=POD, env={"POD": pod, **(env or {})}, **more)
        process.env_pod = pod
        return process

    def train_in_pod(self, *sets, run="run", **more):
        return self.pod(self.config(), f"run.dir={self.path(run)}", *sets, **more)


@unittest.skipIf(NO_PODS, NO_PODS)
class FirstProcess(Pods):
    def test_row_107_a_command_ends_by_a_signal(self):
        """The kernel ignores signals that PID 1 does not handle: `docker stop` and Ctrl-C would have no effect."""
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(signal=sig):
                p = self.pod("bench", "step", self.config(), "--steps", 1000000)
                pid = self.first(p)
                ticks = os.sysconf("SC_CLK_TCK")
                self.until(lambda: int(read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[11]) > ticks / 10, "the program computed", p)
                os.kill(pid, sig)
                self.assert_code(p.wait(20), 128 + sig)

    def test_row_107_stop_saves(self):
        p = self.train_in_pod("train.epochs=2000")
        self.until_step(5, p)
        os.kill(self.first(p), signal.SIGTERM)
        self.assert_code(p.wait(), STOPPED)
        self.assert_checkpoints_whole()
        self.assertEqual(self.marked(), {})

    def test_row_107_second_signal_ends_at_once(self):
        p = self.train_in_pod("train.epochs=2000", env={"CTRAIN_FAILPOINT": "step:5@1=stop"})
        self.until_stopped(1, p)
        pid = self.first(p)
        os.kill(pid, signal.SIGINT)
        self.until(lambda: "received Interrupt" in p.err, "the first signal was reported", p)
        os.kill(pid, signal.SIGINT)
        self.assert_code(p.wait(20), 128 + signal.SIGINT)
        self.assertEqual(self.marked(), {})

    def test_row_107_a_rank_as_first_process(self):
        """In a pod of an old PyTorch operator."""
        env = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.free_port())}
        p = self.train_in_pod("train.epochs=2000", env=env)
        self.until_step(5, p)
        os.kill(self.first(p), signal.SIGTERM)
        self.assert_code(p.wait(), STOPPED)

    def test_row_107_orphans_are_reaped(self):
        p = self.train_in_pod("train.epochs=100000")
        self.until_step(2, p)
        pid = self.first(p)
        subprocess.run(["nsenter", f"--target={pid}", "--pid", "sh", "-c", "sleep 0.1 & sleep 0.2 &"], check=True)

        def children():
            return {int(c) for t in os.listdir(f"/proc/{pid}/task") for c in read_text(f"/proc/{pid}/task/{t}/children").split()}
        ranks = {self.rank_pid(0), self.rank_pid(1)}
        self.until(lambda: children() == ranks, "the orphans were reaped", p)
        self.assertEqual([state_of(r) in ("R", "S", "D") for r in ranks], [True, True])
        os.kill(pid, signal.SIGTERM)
        self.assert_code(p.wait(), STOPPED)

    def test_row_107_a_rank_is_killed(self):
        p = self.train_in_pod("train.epochs=100000")
        self.until_step(5, p)
        os.kill(self.rank_pid(1), signal.SIGKILL)
        r = p.wait(10)
        self.assert_code(r, COMM)
        self.assert_last_says(r, "rank 1 ", "signal 9")


@unittest.skipIf(NO_PODS, NO_PODS)
class Kubernetes(Pods):
    """Two pods, here with one network. What differs from two launchers on one host: they do not see each other's processes."""

    def pods(self, args, env, run="run", n=2):
        return [self.train_in_pod("--procs", 1, *args, run=run, pod=str(k), env={"CTRAIN_TOKEN": "secret", **env(k)}) for k in range(n)]

    def manifest_args(self, name):
        """The arguments of ctrain in a manifest, without the config."""
        block = re.search(r"^( +)args:\n((?:\1 +- .*\n)+)", read_text(os.path.join(MANIFESTS, name)), re.M)
        args = [line.strip()[2:] for line in block[2].splitlines()]
        self.assertTrue(args[0].startswith("/usr/local/share/ctrain/configs/"), args)
        self.assertTrue(os.path.exists(os.path.join(SOURCE, "configs", os.path.basename(args[0]))), args)
        return args[1:]

    def test_indexed_job(self):
        """With the arguments of docker/k8s/job.yaml, and node 1 first. Two ranks: the sum has one order, so the digest is the local one."""
        args = ["--master-addr=127.0.0.1" if a == "--master-addr=ctrain-0.ctrain" else a for a in self.manifest_args("job.yaml")]
        self.assertIn("--master-addr=127.0.0.1", args)
        pods = self.pods([*args, "--master-port", self.free_port()], lambda k: {"JOB_COMPLETION_INDEX": str(1 - k)})
        self.finish(pods)
        self.assertEqual(self.metrics(kind="run")[0]["world_size"], 2)
        self.assert_equals_reference()

    def test_index_out_of_range(self):
        r = self.train("--nodes=2", "--master-addr=127.0.0.1", env={"JOB_COMPLETION_INDEX": "2"}, expect=USAGE)
        self.assert_says(r, "environment JOB_COMPLETION_INDEX", "launch.node_rank=2", "launch.nodes=2")

    def test_pytorchjob(self):
        """The environment that the training operator sets; RANK is that of the pod. With two ranks, the digest is the local one."""
        for procs in (1, 2):
            with self.subTest(procs=procs):
                port, run = str(self.free_port()), f"procs{procs}"

                def env(k):
                    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(2 * procs), "RANK": str(k), "PYTHONUNBUFFERED": "1",
                            "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": port, "PET_NNODES": "2", "PET_NODE_RANK": str(k),
                            "PET_NPROC_PER_NODE": str(procs), "CTRAIN_TOKEN": "secret"}
                self.finish([self.train_in_pod(*self.manifest_args("pytorchjob.yaml"), run=run, pod=str(k), env=env(k)) for k in (0, 1)])
                first = self.metrics(run, kind="run")[0]
                self.assertEqual((first["world_size"], first["ranks_per_node"]), (2 * procs, procs))
                if procs == 1:
                    self.assert_equals_reference(run=run)
                losses, _ = self.reference()
                for step, loss in self.losses(run).items():
                    self.assertAlmostEqual(loss / losses[step], 1, delta=1e-6, msg=f"step {step}")

    def test_old_pytorchjob(self):
        """Each pod is a rank."""
        port = str(self.free_port())
        pods = [self.train_in_pod(pod=str(k), env={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "RANK": str(k),
                                                   "CTRAIN_TOKEN": "secret"}) for k in (0, 1)]
        self.finish(pods)
        self.assert_equals_reference()

    def test_lost_pod(self):
        """Kubernetes kills a pod, and starts new ones for both after they have ended: the run continues."""
        def start(*args, **env):
            port = self.free_port()
            return self.pods(["--nodes=2", "--master-addr=127.0.0.1", "--master-port", port, *args], lambda k: {"JOB_COMPLETION_INDEX": str(k), **env})
        pods = start("checkpoint.every_steps=5", CTRAIN_FAILPOINT="step:17@1=stop")
        self.until_stopped(1, pods[1])
        os.kill(self.first(pods[1]), signal.SIGKILL)
        r = pods[0].wait(20)
        self.assert_code(r, COMM)
        self.assert_last_says(r, "rank 1 ")
        self.finish(start("checkpoint.every_steps=5"))
        self.assert_equals_reference()


class Files(Case):
    def test_images(self):
        """Both images run as a number and not as root, the program is the first process, and no registry is named."""
        for name in ("Dockerfile.cpu", "Dockerfile.cuda"):
            with self.subTest(file=name):
                text = read_text(os.path.join(SOURCE, "docker", name))
                final = text[text.rindex("\nFROM "):]
                self.assertRegex(final, r'\nUSER [1-9]\d*:[1-9]\d*\n')
                self.assertRegex(final, r'\nENTRYPOINT \["ctrain"\]\n')
                self.assertNotRegex(text, r"(?m)^#\s*syntax=")
                self.assertNotRegex(text, r"(FROM|ARG \w+=)\S*[a-z]\.[a-z]+/")
                self.assertTrue(os.path.exists(os.path.join(SOURCE, "docker", name + ".dockerignore")))

    def test_stages_agree(self):
        """Everything but the bases and CUDA is the same in both files."""
        def common(name):
            text = read_text(os.path.join(SOURCE, "docker", name))
            return [line for line in text.splitlines() if re.match(r"RUN|COPY|USER|WORKDIR|ENTRYPOINT|CMD|STOPSIGNAL|\t", line) and "build.sh" not in line]
        self.assertEqual(common("Dockerfile.cpu"), common("Dockerfile.cuda"))

    def test_manifests_restrict_pods(self):
        for name in ("job.yaml", "pytorchjob.yaml"):
            with self.subTest(file=name):
                text = read_text(os.path.join(MANIFESTS, name))
                for line in ("runAsNonRoot: true", "readOnlyRootFilesystem: true", "allowPrivilegeEscalation: false", "terminationGracePeriodSeconds: 60",
                             "medium: Memory"):
                    self.assertIn(line, text)


if __name__ == "__main__":
    main()
