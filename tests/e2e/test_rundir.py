"""What others do to the files of a run: removed, moved or replaced while it trains; FIFOs and links in their place."""

import os
import resource
import shutil
import unittest

from harness import CTRAIN, DATA, IO, OK, USAGE, Case, Process, main, read_text

USER = 1 << 30  # a user id that no one else has

ENDLESS = ("train.epochs=1000000", "train.eval_every=0", "checkpoint.every_steps=500", "log.every=50")


class Vanishes(Case):
    """The run ends with exit code 7 and names the file: not "done", with nothing on the disk."""

    def check(self, what, change, *says, sets=()):
        with self.subTest(what=what):
            run = what
            p = self.start_training(*ENDLESS, *sets, run=run)
            self.until_step(100, p, run)
            change(self.path(run))
            r = p.wait(30)
            self.assert_code(r, IO)
            self.assert_last_says(r, *says, "while it was in use", "hint:", "do not change the directory")
            self.assertEqual(self.marked(), {})

    def test_removed(self):
        def remove_all(run):
            # The program may create checkpoints/ meanwhile.
            while os.path.exists(run):
                shutil.rmtree(run, ignore_errors=True)

        self.check("everything", remove_all, "removed")
        self.check("metrics", lambda run: os.unlink(os.path.join(run, "metrics.jsonl")), r"metrics\.jsonl was removed")
        self.check("logs", lambda run: shutil.rmtree(os.path.join(run, "log")), r"rank-0000\d\.log was removed")
        self.check("events", lambda run: shutil.rmtree(os.path.join(run, "tb")), r"events\.out\.\S+ was removed", sets=("log.tensorboard=true",))
        self.check("lock", lambda run: os.unlink(os.path.join(run, "lock")), r"lock was removed")

    def test_another_run_in_its_place(self):
        """The first run writes nothing into a directory that is another run's now."""
        p = self.start_training("train.epochs=40", "log.every=1000", "checkpoint.every_steps=1", env={"CTRAIN_FAILPOINT": "step:30@0=stop"})
        pid = self.until_stopped(0, p)
        os.rename(self.path("run"), self.path("moved"))
        self.train("train.epochs=1")
        before = self.metrics()
        os.kill(pid, 18)  # SIGCONT
        r = p.wait(30)
        self.assert_code(r, IO)
        self.assert_last_says(r, r"was replaced by another file|was removed or renamed")
        self.assertEqual(self.metrics(), before)
        self.assertEqual(self.checkpoints(), ["step-000000000021"])

    def test_moved(self):
        self.check("moved", lambda run: os.rename(run, run + "-elsewhere"), "removed or renamed")
        # What is in the moved directory is intact, and a run there goes on.
        self.train(*ENDLESS, "train.max_steps=1600", "train.epochs=0", run="moved-elsewhere")

    def test_no_second_run_enters(self):
        p = self.start_training("train.epochs=100", env={"CTRAIN_FAILPOINT": "step:30@0=stop"})
        self.until_stopped(0, p)
        os.unlink(self.path("run", "lock"))
        r = self.train("train.epochs=100", expect=IO)
        self.assert_last_says(r, "in use by another ctrain")
        self.end_all()


class NotFiles(Case):
    def replace(self, make, *parts):
        path = self.path(*parts)
        if os.path.lexists(path):
            os.unlink(path)
        make(path)
        return path

    def test_fifos(self):
        """No process writes to them, so opening one would wait forever."""
        self.train("train.epochs=1")
        step = self.checkpoints()[-1]
        fifo = self.replace(os.mkfifo, "fifo.yaml")
        self.assert_says(self.run_ctrain("check", fifo, expect=USAGE), "not a regular file but a FIFO")
        self.assert_says(self.run_ctrain(fifo, expect=USAGE), "not a regular file but a FIFO")
        child = self.write("child.yaml", "base: fifo.yaml\n")
        self.assert_says(self.run_ctrain("plan", child, expect=USAGE), "not a regular file but a FIFO")
        state = self.path("run", "checkpoints", step, "state.json")
        saved = read_text(state)
        self.replace(os.mkfifo, "run", "checkpoints", step, "state.json")
        for args in (("ckpt", "show", self.path("run", "checkpoints", step)), ("ckpt", "verify", self.path("run", "checkpoints", step))):
            self.assert_says(self.run_ctrain(*args, expect=DATA), "not a regular file but a FIFO")
        self.assert_says(self.train("train.epochs=2", expect=DATA), "not a regular file but a FIFO")
        os.unlink(state)
        self.write(os.path.join("run", "checkpoints", step, "state.json"), saved)
        for name in ("metrics.jsonl", "log/rank-00000.log", "log/rank-00001.log", "lock"):
            with self.subTest(name=name):
                path = self.path("run", name)
                os.rename(path, path + ".saved")
                os.mkfifo(path)
                r = self.train("train.epochs=2", expect=IO)
                self.assert_last_says(r, name + " is not a regular file but a FIFO")
                os.rename(path + ".saved", path)
        self.train("train.epochs=2")

    def test_links_are_not_written_through(self):
        for name in ("metrics.jsonl", "metrics.jsonl.tmp", "log/rank-00000.log", "log/rank-00001.log", "lock"):
            with self.subTest(name=name):
                run = name.replace("/", "-")
                self.train("train.epochs=1", run=run)
                # A line that a resume cuts off, so that the file is written anew.
                with open(self.path(run, "metrics.jsonl"), "a", encoding="utf-8") as f:
                    f.write('{"v":1,"kind":"step","step":99999}\n')
                victim = self.write("victim", "precious\n")
                self.replace(lambda path, to=victim: os.symlink(to, path), run, *name.split("/"))
                r = self.train("train.epochs=2", run=run, expect=OK if name.endswith(".tmp") else IO)
                if r.code != OK:
                    self.assert_last_says(r, "symbolic link")
                self.assertEqual(read_text(victim), "precious\n")
                self.assertFalse(os.path.islink(self.path(run, "metrics.jsonl")) and r.code == OK)

    def test_output_device(self):
        """`--out /dev/null` must not replace the device by a file, which root could do."""
        device = self.path("device")
        os.symlink("/dev/null", device)
        self.run_ctrain("config", "schema", "--out", device, expect=IO)
        self.assertTrue(os.path.islink(device))


class Limits(Case):
    def limited(self, flag, n, *sets, **more):
        return self.train(*sets, prefix=("sh", "-c", f'ulimit {flag} {n}; exec "$@"', "sh"), **more)

    def test_size_of_files(self):
        """Shared memory counts as a file, and so do the pages of the ranks."""
        r = self.limited("-f", 200, "dist.backend=shm", expect=4)
        self.assert_last_says(r, "MiB of shared memory: File too large", "hint:", "ulimit -f")

    @unittest.skipIf(os.geteuid() != 0, "to be a user without other processes needs root")
    def test_processes_and_threads(self):
        """However few a user may have, and whatever could not be started for that: exit code 4, and the hint names the limit."""
        for name in ("ctrain", "ctrain_gloo.so"):  # where another user may read them
            if os.path.exists(os.path.join(os.path.dirname(CTRAIN), name)):
                shutil.copy(os.path.join(os.path.dirname(CTRAIN), name), self.tmp)
        os.chmod(self.tmp, 0o777)

        def limited_user(n):
            resource.setrlimit(resource.RLIMIT_NPROC, (n, n))
            os.setgroups([])
            os.setgid(USER)
            os.setuid(USER)

        for backend in ("gloo", "shm"):
            said = ""
            for n in range(1, 64):
                p = Process(self, [self.path("ctrain"), self.config(), f"run.dir={self.path(f'{backend}-{n}')}", "train.max_steps=2",
                                   f"dist.backend={backend}"], self.env(), self.tmp, preexec_fn=lambda: limited_user(n))
                r = p.wait()
                if r.code == OK:
                    break
                said += r.err
                with self.subTest(backend=backend, processes=n):
                    self.assert_code(r, 4)
                    self.assert_last_says(r, "hint:.*ulimit -u")
            self.assertEqual(r.code, OK)
            self.assertRegex(said, "cannot start rank 1")
            self.assertRegex(said, "gloo: " if backend == "gloo" else "cannot start thread")

    def test_open_files(self):
        for n in (12, 24, 36):
            r = self.limited("-n", n, run=f"run-{n}", expect=4, timeout=10)
            self.assert_last_says(r, f"the limit of open files in this shell is {n}", "hint:", "ulimit -n 1024")
        # Just enough is enough, and a soft limit is raised.
        self.limited("-n", 40, "train.epochs=1", run="run-40")
        self.limited("-Sn", 12, "train.epochs=1", run="run-soft")


if __name__ == "__main__":
    main()
