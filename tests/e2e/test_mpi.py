"""dist.backend: mpi under the real mpirun of Open MPI and of MPICH."""

import os
import shutil
import signal
import time

from harness import COMM, CTRAIN, OK, STOPPED, USAGE, Case, Process, main, state_of

OPENMPI = ["mpirun.openmpi", "--oversubscribe"]
# mpirun always waits that long, so that the other ranks can end even if the machine is busy.
PATIENT = [*OPENMPI, "--mca", "odls_base_sigkill_timeout", "4"]
MPICH = ["mpirun.mpich"]
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def why_not(launcher):
    """Why this MPI cannot be tested here, or None."""
    name = launcher.rpartition(".")[2]
    module = os.path.join(os.path.dirname(CTRAIN), f"ctrain_mpi_{name}.so")
    if not os.path.exists(module):
        return f"this build has no module for {name}"
    return None if shutil.which(launcher) else f"{launcher} is not installed"


class Mpi(Case):
    def mpirun(self, launcher, n, *sets, run="run", config=None, env=None):
        why = why_not(launcher[0])
        if why:
            self.skipTest(why)
        argv = [*launcher, "-n", str(n), CTRAIN, config or self.config(), f"run.dir={self.path(run)}", "dist.backend=mpi", f"launch.procs={n}"]
        return Process(self, [*argv, *map(str, sets)], self.env({**ROOT, "MASTER_PORT": str(self.free_port()), **(env or {})}), self.tmp)

    def pid_of(self, rank):
        """The pid of a rank. The ranks' launchers have other programs."""
        for pid, e in self.marked().items():
            if str(rank) in (e.get("OMPI_COMM_WORLD_RANK"), e.get("PMI_RANK")) and os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(CTRAIN):
                return pid
        return None

    def stop_rank_1(self, launcher, *sets):
        """Returns the started run and the pid of rank 1, which has stopped in step 5."""
        p = self.mpirun(launcher, 2, *sets, env={"CTRAIN_FAILPOINT": "step:5@1=stop"})

        def stopped():
            pid = self.pid_of(1)
            return pid if pid and state_of(pid) == "T" else None
        return p, self.until(stopped, "rank 1 stopped", p)


class Training(Mpi):
    def same_as_shm(self, launcher):
        for n in (2, 3):
            self.train("--procs", n, "dist.backend=shm", run=f"shm-{n}")
            r = self.mpirun(launcher, n, run=f"mpi-{n}").wait()
            self.assert_code(r, OK)
            self.assertEqual(self.digest(f"mpi-{n}"), self.digest(f"shm-{n}"))
            self.assertEqual(self.losses(f"mpi-{n}"), self.losses(f"shm-{n}"))
            start = self.metrics(f"mpi-{n}", "run")[0]
            self.assertEqual((start["backend"], start["world_size"], start["launcher"]), ("mpi", n, "mpi"))

    def test_row_34_openmpi(self):
        self.same_as_shm(OPENMPI)

    def test_row_34_mpich(self):
        self.same_as_shm(MPICH)

    def staged(self, launcher):
        """On the software GPU, MPI sums the gradients in pinned memory, with the result of shm."""
        soft = os.path.join(os.path.dirname(os.path.abspath(CTRAIN)), "soft_cudart")
        if not os.path.exists(os.path.join(soft, "libctrain_cuda.so")):
            self.skipTest("built without CUDA's headers")
        sets, env = ("device=cuda", "train.autotune=off"), {"CTRAIN_CUDA_LIBS": soft, "SOFT_GPU_DEVICES": "2"}
        r = self.mpirun(launcher, 2, *sets, run="mpi", env=env).wait()
        self.assert_code(r, OK)
        self.assertEqual(self.metrics("mpi", "run")[0]["backend"], "mpi")
        self.train("--procs", 2, "dist.backend=shm", *sets, run="shm", env=env)
        self.assertEqual(self.digest("mpi"), self.digest("shm"))
        self.assertEqual(self.losses("mpi"), self.losses("shm"))

    def test_staged_openmpi(self):
        self.staged(OPENMPI)

    def test_staged_mpich(self):
        self.staged(MPICH)

    def test_stop_and_continue(self):
        """A signal to one rank stops all of them after a checkpoint; mpirun passes on the exit code."""
        p, pid = self.stop_rank_1(MPICH)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)
        self.assert_code(p.wait(), STOPPED)
        self.assert_code(self.mpirun(MPICH, 2).wait(), OK)
        self.assert_equals_reference()


class Failures(Mpi):
    def test_killed_openmpi(self):
        p, pid = self.stop_rank_1(PATIENT)
        os.kill(pid, signal.SIGKILL)
        since = time.monotonic()
        r = p.wait()
        self.assertNotEqual(r.code, OK)
        self.assert_says(r, rf"ctrain: error: .*rank 1 \(pid {pid} on host .*closed its connection")
        self.assert_gone(since, p)

    def test_killed_mpich(self):
        """mpirun of MPICH kills the others at once; they cannot count on printing a message. It names one of the processes."""
        p, pid = self.stop_rank_1(MPICH)
        os.kill(pid, signal.SIGKILL)
        since = time.monotonic()
        r = p.wait()
        self.assertNotEqual(r.code, OK)
        self.assertRegex(r.out + r.err, r"PID \d+ RUNNING AT")
        self.assert_gone(since, p)

    def stopped(self, launcher):
        p, pid = self.stop_rank_1(launcher, "dist.timeout=2")
        r = p.wait()
        self.assert_code(r, COMM)
        self.assert_says(r, r"ctrain: error: .*allreduce.*has waited 2\.0 s for rank 1 \(pid " + str(pid), f"ps -o stat,wchan -p {pid}")
        self.assert_gone(time.monotonic(), p)

    def test_stopped_openmpi(self):
        self.stopped(OPENMPI)

    def test_stopped_mpich(self):
        self.stopped(MPICH)

    def other_config(self, launcher):
        """One rank has another config: an error before the first collective."""
        why = why_not(launcher[0])
        if why:
            self.skipTest(why)
        script = f'[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = 0 ] || set -- "$@" optim.lr=0.06; exec {CTRAIN} "$@"'
        argv = [*launcher, "-n", "2", "sh", "-c", script, "sh", self.config(), f"run.dir={self.path('run')}", "dist.backend=mpi"]
        r = Process(self, argv, self.env({**ROOT, "MASTER_PORT": str(self.free_port())}), self.tmp).wait()
        self.assert_code(r, USAGE)
        self.assert_says(r, r"optim\.lr", r"0\.05", r"0\.06")

    def test_other_config_openmpi(self):
        self.other_config(OPENMPI)

    def test_other_config_mpich(self):
        self.other_config(MPICH)


class Refusals(Mpi):
    def test_own_launcher(self):
        if why_not("mpirun.openmpi") and why_not("mpirun.mpich"):
            self.skipTest("this build has no module for MPI")
        r = self.train("dist.backend=mpi", "--procs", 2, expect=USAGE)
        self.assert_last_says(r, "needs ranks that were started by mpirun", "hint: .*mpirun -n N ctrain")

    def test_wrong_library(self):
        """CTRAIN_MPI selects the library; that of another launcher makes each rank a world of its own."""
        for launcher, other in ((OPENMPI, "mpich"), (MPICH, "openmpi")):
            with self.subTest(launcher=launcher[0]):
                why = why_not("mpirun." + other)
                if why:
                    self.skipTest(why)
                r = self.mpirun(launcher, 2, env={"CTRAIN_MPI": other}).wait()
                self.assert_code(r, USAGE)
                self.assert_says(r, r"this process is rank 0 of 1 for MPI, but rank [01] of 2 of the run", "hint: start all ranks .*mpirun")

    def test_unknown_library(self):
        self.assert_says(self.mpirun(MPICH, 2, env={"CTRAIN_MPI": "mvapich"}).wait(), 'CTRAIN_MPI is "mvapich"', "openmpi or mpich")

    def test_info(self):
        """`ctrain info` names the libraries, or the reason."""
        mpi = next(c for c in self.run_ctrain("info", "--json").json()["communicators"] if c["name"] == "mpi")
        if mpi["available"]:
            self.assertRegex(mpi["library"], r"Open MPI [45]\.|MPICH [45]\.")
        else:
            self.assertTrue(mpi["why"])


if __name__ == "__main__":
    main()
