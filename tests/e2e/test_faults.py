"""Processes that are killed, and signals, anywhere: one clear message, the right exit code, nothing left, and the run goes on."""

import os
import signal
import time

from harness import COMM, OK, STOPPED, Case, both_ways_to_save, main, read_text, state_of

SAVE_POINTS = ("ckpt.model:3", "ckpt.optim", "ckpt.state", "ckpt.rename", "ckpt.link", "ckpt.prune")
SETS = ("checkpoint.every_steps=4", "checkpoint.keep_last=2")


class Kills(Case):
    """The rank is first stopped at the point, so that the moment of the kill and the pid are known."""

    def kill(self, victim, point, rank, *sets, run="run", seconds=5, **more):
        """victim: "launcher" or a rank, killed while `rank` stands at the point. Returns (Result, victim's pid)."""
        p = self.start_training(*SETS, *sets, run=run, env={"CTRAIN_FAILPOINT": f"{point}@{rank}=stop"}, **more)
        stopped = self.until_stopped(rank, p)
        pid = p.pid if victim == "launcher" else self.rank_pid(victim)
        since = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        if victim not in ("launcher", rank):
            # It was killed while another stood still; that one must not be in the way.
            self.until(lambda: not state_of(pid) or state_of(pid) == "Z", "the victim was dead", None, 2)
        self.assert_gone(since, p, seconds)
        r = p.wait(5)
        self.assertTrue(stopped)
        return r, pid

    def check(self, points, ranks, victims):
        for point in points:
            for rank in ranks:
                for victim in victims:
                    who = rank if victim == "it" else victim
                    with self.subTest(killed=who, rank=rank, point=point):
                        run = f"{point}-{rank}-{who}"
                        r, pid = self.kill(who, point, rank, run=run)
                        if who == "launcher":
                            self.assertEqual(r.code, -signal.SIGKILL)
                        else:
                            self.assert_code(r, COMM)
                            self.assert_last_says(r, rf"rank {who}\b", rf"pid {pid}\b", r"signal 9|killed", "hint:", "run the same command again")
                            self.assertNotRegex(r.err, r"Sanitizer|Assert|assertion")
                        if not point.startswith("startup"):
                            self.train(*SETS, run=run)
                            self.assert_equals_reference(*SETS, run=run)


class KilledAtStartup(Kills):
    """Before the first save: how checkpoints are saved makes no difference."""

    def test_at_startup(self):
        self.check(("startup",), (0, 1), ("it", "launcher"))
        self.train(*SETS, run="startup-0-0")
        self.assert_equals_reference(*SETS, run="startup-0-0")


@both_ways_to_save
class Killed(Kills):
    def test_in_a_step(self):
        self.check(("step:7",), (0, 1), ("it", "launcher"))

    def test_a_peer_of_the_stopped_one(self):
        self.check(("step:7",), (0,), (1,))
        self.check(("step:7",), (1,), (0,))

    def test_in_evaluation(self):
        self.check(("eval",), (0, 1), ("it", "launcher"))

    def test_in_a_save(self):
        self.check(SAVE_POINTS, (0,), ("it",))
        self.check(SAVE_POINTS[1::3], (0,), ("launcher",))

    def test_without_warning(self):
        """No rank is stopped before: the other ranks work when it happens."""
        for rank in (0, 1, 2):
            with self.subTest(rank=rank):
                r = self.train(*SETS, "--procs", 3, run=f"run-{rank}", env={"CTRAIN_FAILPOINT": f"step:9@{rank}"}, expect=COMM)
                self.assertEqual(self.marked(), {})
                self.assertLess(r.seconds, 30)  # far less than dist.timeout
                self.assert_last_says(r, rf"rank {rank} \(pid \d+.*signal 9")

    def test_under_gloo(self):
        for victim, point, rank in ((1, "step:7", 1), (0, "step:7", 0), ("launcher", "step:7", 1), (1, "eval", 1), (0, "ckpt.state", 0)):
            with self.subTest(killed=victim, point=point):
                run = f"{victim}-{point}"
                r, pid = self.kill(victim, point, rank, "dist.backend=gloo", run=run)
                if victim != "launcher":
                    self.assert_code(r, COMM)
                    self.assert_last_says(r, rf"rank {victim}\b", rf"pid {pid}\b")
                self.train(*SETS, "dist.backend=gloo", run=run)
                self.assert_equals_reference(*SETS, run=run)

    def test_launcher_of_ranks_at_work(self):
        for procs in (1, 2):
            with self.subTest(procs=procs):
                run = f"run-{procs}"
                p = self.start_training("--procs", procs, "train.epochs=1000000", "train.eval_every=0", "log.every=100", run=run)
                self.until_step(100, p, run)
                p.signal(signal.SIGKILL)
                self.assert_gone(time.monotonic(), p)
                self.assertEqual(p.wait(5).code, -signal.SIGKILL)

    def test_one_rank_alone(self):
        r, pid = self.kill(0, "step:7", 0, "--procs", 1)
        self.assert_code(r, COMM)
        self.assert_last_says(r, rf"pid {pid}\b", "signal 9")
        self.train(*SETS, "--procs", 1)
        self.assertEqual(sorted(self.losses()), list(range(1, 43)))

    def test_everybody_at_once(self):
        p = self.start_training(*SETS, env={"CTRAIN_FAILPOINT": "step:7@0=stop"})
        self.until_stopped(0, p)
        self.end_all()
        self.assertEqual(p.wait().code, -signal.SIGKILL)
        self.train(*SETS)
        self.assert_equals_reference(*SETS)

    def test_while_starting_up_at_any_moment(self):
        """The launcher dies at once, before and while it starts its workers."""
        for delay_ms in range(0, 60, 6):
            p = self.start_training(run=f"run-{delay_ms}")
            deadline = p.began + delay_ms / 1000
            while time.monotonic() < deadline:
                pass
            if p.popen.poll() is None:
                p.signal(signal.SIGKILL)
            self.assert_gone(time.monotonic(), p)
            p.wait(5)

    def test_crash(self):
        """A crash that is a bug, not a kill: exit code 70."""
        p = self.start_training(env={"CTRAIN_FAILPOINT": "step:7@1=stop"})
        pid = self.until_stopped(1, p)
        os.kill(pid, signal.SIGABRT)
        os.kill(pid, signal.SIGCONT)
        since = time.monotonic()
        self.assert_gone(since, p)
        r = p.wait()
        self.assert_code(r, 70)
        self.assert_last_says(r, r"rank 1\b", rf"pid {pid}\b", "signal 6|abort")


class KilledInSynchronizedBatchNorm(Case):
    def test_killed(self):
        """The other rank waits in a collective of the forward pass: on the host with cpu, in posted work with lazy."""
        sets = ("train.engine=ref", "model.name=layers", "model.layers=[conv2d 4 kernel=3, batch_norm, relu, linear 10]", "model.bn=sync")
        for device in ("cpu", "lazy"):
            for rank in (0, 1):
                with self.subTest(device=device, killed=rank):
                    run = f"{device}-{rank}"
                    p = self.start_training(*sets, f"device={device}", run=run, env={"CTRAIN_FAILPOINT": f"step:7@{rank}=stop"})
                    self.kill_stopped(rank, p, run, (1 - rank,), "run the same command again")


@both_ways_to_save
class Signals(Case):
    def test_second_interrupt_ends_at_once(self):
        p = self.start_training(env={"CTRAIN_FAILPOINT": "step:7@1=stop"})
        self.until_stopped(1, p)
        p.signal(signal.SIGINT)
        self.until(lambda: "again to end at once" in p.err, "the launcher said that it got the signal", p)
        since = time.monotonic()
        p.signal(signal.SIGINT)
        self.assert_gone(since, p, 2)
        self.assertEqual(p.wait(5).code, -signal.SIGINT)
        self.train()
        self.assert_equals_reference()

    def test_what_saves_nothing_ends_at_once(self):
        """Ranks that only evaluate do not go on after a signal, and there is no talk of saving."""
        self.train("train.max_steps=2")
        for sig in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=sig):
                p = self.start("eval", self.config(), f"run.dir={self.path('run')}", env={"CTRAIN_FAILPOINT": "eval:1@1=stop"})
                self.until_stopped(1, p)
                since = time.monotonic()
                p.signal(sig)
                self.assert_gone(since, p, 2)
                r = p.wait(5)
                self.assertEqual(r.code, -sig)
                self.assertNotIn("saving", r.err)

    def test_ignored_children(self):
        """Started by a program that ignores SIGCHLD, the launcher still notices how its ranks end."""
        self.train("train.max_steps=2", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))

    def test_interrupt_while_starting(self):
        p = self.start_training("--procs", 3, env={"CTRAIN_FAILPOINT": "startup@2=stop"})
        pid = self.until_stopped(2, p)
        p.signal(signal.SIGTERM)
        self.until(lambda: "saving" in p.err, "the launcher said that it got the signal", p)
        os.kill(pid, signal.SIGCONT)
        self.assert_code(p.wait(), STOPPED)

    def test_signal_in_the_last_step(self):
        p = self.start_training(env={"CTRAIN_FAILPOINT": "step:42@0=stop"})
        pid = self.until_stopped(0, p)
        p.signal(signal.SIGTERM)
        self.until(lambda: "saving" in p.err, "the launcher said that it got the signal", p)
        os.kill(pid, signal.SIGCONT)
        r = p.wait()
        self.assertIn(r.code, (OK, STOPPED), r.describe())
        self.train()
        self.assert_equals_reference()

    def test_signal_during_evaluation_and_save(self):
        for point in ("eval:1@0", "ckpt.rename@0"):
            with self.subTest(point=point):
                run = point.replace("@", "-")
                p = self.start_training(*SETS, run=run, env={"CTRAIN_FAILPOINT": point + "=stop"})
                pid = self.until_stopped(0, p)
                p.signal(signal.SIGUSR1)
                self.until(lambda: "saving" in p.err, "the launcher said that it got the signal", p)
                os.kill(pid, signal.SIGCONT)
                self.assert_code(p.wait(), STOPPED)
                self.assert_checkpoints_whole(run)

    def test_closed_output(self):
        """`ctrain ... | head -1`: the reader goes away; training is not ended by a SIGPIPE without a word."""
        read, write = os.pipe()
        p = self.start_training(stdout=write, stderr=write)
        os.close(write)
        os.close(read)
        r = p.wait()
        self.assertIn(r.code, (OK, 7), r.describe())
        self.assertEqual(self.marked(), {})
        self.assertIn(self.metrics(kind="end")[-1]["status"], ("done",))


class RunFolderInUse(Case):
    def test_second_run_is_refused(self):
        p = self.start_training(env={"CTRAIN_FAILPOINT": "step:7@0=stop"})
        pid = self.until_stopped(0, p)
        before = read_text(self.path("run", "metrics.jsonl"))
        r = self.train(expect=7)
        self.assert_last_says(r, "in use", rf"pid {pid}\b", "run.dir")
        self.assertEqual(read_text(self.path("run", "metrics.jsonl")), before)
        os.kill(pid, signal.SIGCONT)
        self.assert_code(p.wait(), OK)
        self.assert_equals_reference()

    def test_never_does_not_take_a_live_run_away(self):
        p = self.start_training(*SETS, env={"CTRAIN_FAILPOINT": "step:7@0=stop"})
        pid = self.until_stopped(0, p)
        self.train("train.resume=never", expect=7)
        os.kill(pid, signal.SIGCONT)
        self.assert_code(p.wait(), OK)
        self.assert_equals_reference(*SETS)


class StopAtTheStart(Case):
    def test_a_rank_that_hangs(self):
        """SIGTERM while one rank hangs in its start: the others end at once, and it is killed."""
        p = self.start_training("--procs", 2, env={"CTRAIN_FAILPOINT": "startup@1=stop"})
        self.until_stopped(1, p)
        since = time.monotonic()
        p.signal(signal.SIGTERM)
        self.assert_gone(since, p, 5)
        r = p.wait(5)
        self.assert_code(r, STOPPED)
        self.assert_last_says(r, "stopped by signal 15", "nothing to save")


if __name__ == "__main__":
    main()
