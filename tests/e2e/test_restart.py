"""launch.restarts: ranks that are lost are started again, and the run continues as if nothing had happened."""

import fcntl
import os
import signal
import sys
import unittest

import test_hosts
from harness import COMM, NUMERIC, OK, SLOW, STOPPED, Case, main, read_text, state_of

# Training waits for each save, so that the checkpoint from which a restart continues is known.
SETS = ("checkpoint.every_steps=4", "checkpoint.keep_last=2", "checkpoint.background=false")


class Restarts(Case):
    def start_job(self, point, *sets, restarts=3, **more):
        return self.start_training(*SETS, *sets, "--restarts", restarts, env={"CTRAIN_FAILPOINT": point}, **more)

    def kill_once(self, p, rank):
        """Kills the rank, which stops at a failpoint, and lets that of the next attempt, which stops there, too, continue. Returns the pid."""
        pid = self.until_stopped(rank, p)
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: state_of(pid) in ("", "Z"), f"rank {rank} was dead", p)
        os.kill(self.until_stopped(rank, p), signal.SIGCONT)
        return pid

    def resumed(self, run="run"):
        return [m["resumed_step"] for m in self.metrics(run, "run")]

    def assert_restarts(self, r, lines, run="run"):
        """(rank, failed step, step from which training continued) of each restart."""
        found = self.metrics(run, "restart")
        self.assertEqual([(m["rank"], m["failed_step"], m["step"]) for m in found], lines, r.describe())
        self.assertEqual([m["restart"] for m in found], list(range(1, len(lines) + 1)))


class OneNode(Restarts):
    def check(self, victim, point, failed_step, step, *sets):
        with self.subTest(victim=victim, point=point, sets=sets):
            run = f"{victim}-{point}-{len(sets)}"
            p = self.start_job(f"{point}@{victim}=stop", *sets, run=run)
            pid = self.kill_once(p, victim)
            r = p.wait()
            self.assert_code(r, OK)
            self.assertEqual(self.marked(), {})
            self.assert_says(r, rf"rank {victim} \(pid {pid}\b.*signal 9.*restart 1 of 3 in 1 s")
            self.assert_restarts(r, [(victim, failed_step, step)], run)
            self.assertIn(f"(pid {pid} on ", self.metrics(run, "restart")[0]["message"])
            self.assertIn(f"(pid {pid} on ", read_text(self.path(run, "log", "launcher.log")))
            self.assert_equals_reference(*SETS, run=run)

    def test_row_48_killed_in_a_step(self):
        self.check(0, "step:7", 7, 4)
        self.check(1, "step:7", 7, 4, "dist.backend=gloo")

    def test_row_48_killed_in_a_save(self):
        """The save of step 8 is not complete, so training continues from step 4."""
        self.check(0, "ckpt.rename:2", 9, 4)

    def test_row_48_killed_at_the_start(self):
        self.check(1, "startup", 0, 0)

    def test_row_48_stopped_rank(self):
        """A stopped rank cannot be distinguished from a slow one before dist.timeout has passed. Rank 0 reports it while it computes step 8."""
        p = self.start_job("step:7@1=stop", f"dist.timeout={3 * SLOW:g}")
        pid = self.until_stopped(1, p)
        self.until(lambda: not state_of(pid), "the stopped rank was killed", p)
        os.kill(self.until_stopped(1, p), signal.SIGCONT)
        r = p.wait()
        self.assert_code(r, OK)
        self.assert_restarts(r, [(0, 8, 4)])
        self.assertIn(f"rank 1 (pid {pid} on ", self.metrics(kind="restart")[0]["message"])
        self.assert_equals_reference(*SETS)

    def test_several_one_off_failures(self):
        """Each attempt gets 15 steps further than its checkpoint, so this is not a crash loop."""
        r = self.start_job("step:15@1", "train.eval_every=0", "checkpoint.every_epochs=0").wait()
        self.assert_code(r, OK)
        self.assert_restarts(r, [(1, 15, 12), (1, 27, 24), (1, 39, 36)])
        self.assert_equals_reference(*SETS)

    def test_budget(self):
        r = self.start_job("step:7@1", restarts=1).wait()
        self.assert_code(r, COMM)
        self.assert_last_says(r, "launch.restarts=1 allows no further restart", r"rank 1 \(pid \d+.*signal 9", "run the same command again")
        self.assert_restarts(r, [(1, 7, 4)])
        self.train(*SETS)
        self.assert_equals_reference(*SETS)

    def test_crash_loop(self):
        r = self.start_job("step:3@1", restarts=100).wait()
        self.assert_code(r, COMM)
        self.assert_last_says(r, r"crash loop: rank 1 has failed in step 3 in 2 successive attempts.*signal 9", "launcher.log")
        self.assert_restarts(r, [(1, 3, 0)])

    def test_crash_loop_at_the_start(self):
        r = self.start_job("startup@1", restarts=100).wait()
        self.assert_code(r, COMM)
        self.assert_last_says(r, r"crash loop: rank 1 has failed before the first step in 3 successive attempts.*signal 9")
        self.assertEqual(self.marked(), {})

    def test_error_that_would_occur_again(self):
        r = self.train(*SETS, "--restarts", 3, "optim.lr=1000", "train.epochs=20", expect=NUMERIC)
        self.assert_last_says(r, "launch.restarts does not apply")
        self.assertEqual(self.metrics(kind="restart"), [])

    def test_stop_in_the_pause(self):
        """The launcher holds the lock of the run directory meanwhile."""
        p = self.start_job("startup@1", restarts=100)
        self.until(lambda: "restart 2 of" in p.err and read_text(self.path("run", "lock")).strip() == str(p.pid), "the second pause had begun", p)
        with open(self.path("run", "lock"), "rb") as f, self.assertRaises(BlockingIOError):
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        p.signal(signal.SIGTERM)
        r = p.wait()
        self.assert_code(r, STOPPED)
        self.assert_last_says(r, r"stopped by signal 15 \(Terminated\) before restart \d+ of 100", "run the same command again")
        self.assertEqual(self.marked(), {})

    def test_stop_signal_is_not_a_failure(self):
        p = self.start_job("step:7@1=stop")
        pid = self.until_stopped(1, p)
        p.signal(signal.SIGTERM)
        self.until(lambda: "saving" in p.err, "the launcher had received the signal", p)
        os.kill(pid, signal.SIGKILL)
        r = p.wait()
        self.assertEqual(self.metrics(kind="restart"), [])
        self.assert_code(r, COMM)
        self.assertEqual(self.marked(), {})


class ResumeAfterRestart(Restarts):
    """train.resume is meant for the first attempt. Later ones continue from what this job has saved, if anything."""

    def setUp(self):
        super().setUp()
        self.train(*SETS, "train.max_steps=8")

    def test_never(self):
        for point, step in (("step:3@1=stop", 0), ("step:7@1=stop", 4)):
            with self.subTest(point=point):
                p = self.start_job(point, "train.resume=never")
                self.kill_once(p, 1)
                self.assert_code(p.wait(), OK)
                self.assertEqual(self.resumed(), [0, step])
                self.assert_equals_reference(*SETS)
        self.assertEqual(sorted(n for n in os.listdir(self.tmp) if n.startswith("run.old")), ["run.old-1", "run.old-2"])

    def test_path(self):
        """The checkpoint of step 8 is newer than that of step 4, but this job did not save it."""
        p = self.start_job("step:2@1=stop", f"train.resume={self.path('run', 'checkpoints', 'step-000000000004')}")
        self.kill_once(p, 1)
        self.assert_code(p.wait(), OK)
        self.assertEqual(self.resumed(), [0, 4, 4])
        self.assert_equals_reference(*SETS)


class SeveralNodes(Restarts):
    """Two launchers on this host, each with one rank."""

    def setUp(self):
        super().setUp()
        self.port = self.free_port()

    def node(self, k, point, *sets, restarts=3, **more):
        return self.start_job(point, "--nodes", 2, "--node-rank", k, "--procs", 1, "--master-addr", "127.0.0.1", "--master-port", self.port,
                              "dist.rendezvous_timeout=30", *sets, restarts=restarts, **more)

    def test_row_48_killed_rank(self):
        for victim in (1, 0):
            with self.subTest(victim=victim):
                run = f"run-{victim}"
                nodes = [self.node(k, f"step:7@{victim}=stop", run=run) for k in (0, 1)]
                pid = self.kill_once(nodes[victim], victim)
                results = self.finish(nodes)
                self.assert_says(results[0], rf"rank {victim} \(pid {pid}\b.*restart 1 of 3")
                self.assert_says(results[1], rf"rank {victim} \(pid {pid}\b.*waiting until node 0")
                self.assert_restarts(results[0], [(victim, 7, 4)], run)
                self.assert_equals_reference(*SETS, run=run)

    def lose(self, k):
        """Kills the launcher of a node, whose rank ends with it, and starts it again when the other one waits for it."""
        point = f"step:7@{k}=stop"
        nodes = [self.node(i, point) for i in (0, 1)]
        pid = self.until_stopped(k, nodes[k])
        nodes[k].signal(signal.SIGKILL)
        nodes[k].wait()
        other = nodes[1 - k]
        self.until(lambda: ("waiting until node 0" if k == 0 else "restart 1 of 3") in other.err, "the other node had noticed it", other)
        self.until(lambda: state_of(pid) in ("", "Z"), "the rank had ended")
        nodes[k] = self.node(k, point)
        os.kill(self.until_stopped(k, nodes[k]), signal.SIGCONT)
        results = self.finish(nodes)
        self.assertEqual(self.resumed(), [0, 4], results[0].describe())
        self.assert_equals_reference(*SETS)

    def test_killed_launcher_of_node_1(self):
        self.lose(1)

    def test_killed_launcher_of_node_0(self):
        self.lose(0)

    def test_row_48_killed_in_the_last_save(self):
        """In step 21, at the end of the epoch. Rank 1 has already ended with success, but its launcher waits for the result of the job."""
        nodes = [self.node(k, "ckpt.rename:6@0=stop", "train.epochs=1") for k in (0, 1)]
        pid = self.until_stopped(0, nodes[0])
        self.until(lambda: not self.rank_pid(1), "rank 1 had ended", nodes[1])
        os.kill(pid, signal.SIGKILL)
        r = self.finish(nodes)[0]
        self.assertEqual(self.resumed(), [0, 20], r.describe())
        self.assert_equals_reference(*SETS, "train.epochs=1")

    def test_crash_loop(self):
        results = self.finish([self.node(k, "step:3@1", restarts=100) for k in (0, 1)], COMM)
        for r in results:
            self.assert_last_says(r, r"crash loop: rank 1 has failed in step 3 in 2 successive attempts.*signal 9")
        self.assert_restarts(results[0], [(1, 3, 0)])

    def test_node_that_does_not_return(self):
        nodes = [self.node(k, "step:7@1=stop", "dist.rendezvous_timeout=2", restarts=1) for k in (0, 1)]
        self.until_stopped(1, nodes[1])
        nodes[1].signal(signal.SIGKILL)
        r = nodes[0].wait()
        self.assert_code(r, COMM)
        self.assert_last_says(r, "allows no further restart", "1 of 2 ranks are missing: 1")


NO_HOSTS = test_hosts.why_not()


@unittest.skipIf(NO_HOSTS, NO_HOSTS)
class TwoHosts(test_hosts.TwoHosts):
    """Two network namespaces."""

    def both(self, run, *sets, point=""):
        return [self.node(k, *SETS, "dist.rendezvous_timeout=60", "--restarts", 3, *sets, run=run, env={"CTRAIN_FAILPOINT": point})
                for k in (0, 1)]

    def test_row_48_cut_cable(self):
        """While the cable is cut, the job cannot form again. It continues when the cable is repaired."""
        self.finish(self.both("reference"))
        nodes = self.both("run", "dist.timeout=4", point="step:9@0=stop")
        pid = self.until_stopped(0, nodes[0])
        self.hosts[1].run("ip", "link", "set", "eth0", "down")
        os.kill(pid, signal.SIGCONT)
        self.until(lambda: "restart 1 of 3" in nodes[0].err, "node 0 had noticed it", nodes[0], 40)
        self.until(lambda: "waiting until node 0" in nodes[1].err, "node 1 had noticed it", nodes[1], 40)
        self.hosts[1].run("ip", "link", "set", "eth0", "up")
        os.kill(self.until_stopped(0, nodes[0], 40), signal.SIGCONT)
        self.finish(nodes)
        self.assertEqual([(m["restart"], m["step"]) for m in self.metrics(kind="restart")], [(1, 8)])
        self.assertEqual(self.losses(), self.losses("reference"))
        self.assertEqual(self.digest(), self.digest("reference"))


for name in dir(test_hosts.TwoHosts):
    if name.startswith("test_"):
        setattr(TwoHosts, name, None)  # they run in their own program


class OtherLaunchers(Restarts):
    def test_ranks_of_another_launcher(self):
        env = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.free_port())}
        r = self.train("launch.restarts=2", "train.max_steps=1", env=env)
        self.assert_says(r, "launch.restarts=2 has no effect", "env")

    def test_rendezvous_by_url(self):
        """The ranks do not use the launcher's store."""
        p = self.start_job("step:7@1=stop", "--init", "file://" + self.path("meet"))
        self.kill_once(p, 1)
        self.assert_code(p.wait(), OK)
        self.assert_equals_reference(*SETS)


if __name__ == "__main__":
    if NO_HOSTS:
        print(f"  {NO_HOSTS}", file=sys.stderr)
    main()
