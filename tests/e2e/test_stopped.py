"""Processes that are stopped, anywhere, and answer no more: the others end with one clear message, and the run goes on."""

import json
import os
import signal
import time

from harness import COMM, OK, Case, both_ways_to_save, main, state_of

SETS = ("checkpoint.every_steps=4", "checkpoint.keep_last=2")


class Stops(Case):
    SHORT = ("dist.timeout=2", "dist.rendezvous_timeout=2")

    def check(self, point, rank, *sets):
        with self.subTest(point=point, rank=rank, sets=sets):
            run = f"{point}-{rank}-{len(sets)}"
            p = self.start_training(*SETS, *self.SHORT, *sets, run=run, env={"CTRAIN_FAILPOINT": f"{point}@{rank}=stop"})
            pid = self.until_stopped(rank, p)
            self.assert_gone(time.monotonic(), p, 2 + 8)
            r = p.wait(5)
            self.assert_code(r, COMM)
            self.assert_last_says(r, rf"rank {rank}\b", rf"pid {pid}\b")
            self.assertEqual(state_of(pid), "")
            if point == "step:7":
                self.assert_last_says(r, r"rank %d \(pid %d on host \S+\) (has not answered|has joined, but has sent no heartbeat since).*ranks waiting in bucket 0 of step 7 .*: %d" % (rank, pid, 1 - rank))
                self.check_flight(run, rank, pid)
            self.train(*SETS, *sets, run=run)
            self.assertEqual([name for name in os.listdir(self.path(run, "log")) if "flight" in name], [])
            self.assert_equals_reference(*SETS, run=run)

    def check_flight(self, run, stopped, pid):
        """The other rank has written what it was waiting for: it had posted one collective more."""
        self.assertEqual(sorted(name for name in os.listdir(self.path(run, "log")) if "flight" in name), [f"flight-{1 - stopped:05d}.json"])
        with open(self.path(run, "log", f"flight-{1 - stopped:05d}.json"), encoding="utf-8") as f:
            j = json.load(f)
        self.assertIn(f"(pid {pid} on ", j["reason"])
        *earlier, last = j["communicators"][0]["records"]
        self.assertEqual((last["op"], last["step"], last["bucket"], last["collective"]), ("allreduce", 7, 0, j["communicators"][0]["collectives"]))
        self.assertIn(last["state"], ("posted", "begun"))
        self.assertIsNone(last["done_ms"])
        self.assertEqual({record["state"] for record in earlier}, {"done"})


class StoppedAtStartup(Stops):
    """Before the first save: how checkpoints are saved makes no difference."""

    def test_at_startup(self):
        self.check("startup", 1)
        self.check("startup", 0)


@both_ways_to_save
class Stopped(Stops):
    def test_in_a_step(self):
        self.check("step:7", 1)
        self.check("step:7", 0)

    def test_under_gloo(self):
        self.check("step:7", 1, "dist.backend=gloo")

    def test_in_evaluation(self):
        self.check("eval", 1)

    def test_in_a_save(self):
        self.check("ckpt.optim", 0)

    def test_a_short_stop_is_forgiven(self):
        """Ctrl-Z and fg, a suspended machine: shorter than the limit, training goes on."""
        p = self.start_training("dist.timeout=20", env={"CTRAIN_FAILPOINT": "step:7@1=stop"})
        pid = self.until_stopped(1, p)
        self.until_step(6, p)
        os.kill(pid, signal.SIGCONT)
        self.assert_code(p.wait(), OK)
        self.assert_equals_reference()


if __name__ == "__main__":
    main()
