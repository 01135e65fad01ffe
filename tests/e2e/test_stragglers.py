"""A rank for which the others wait is named while the run goes on, with the phase in which it loses the time."""

import json
import os
import signal
import time

from harness import COMM, CTRAIN, SLOW, STOPPED, Case, main, pause, png_file, read_text

FOREVER = ("train.epochs=1000000", "train.eval_every=0", "checkpoint.every_epochs=0", "log.every=1000000")
# Opens images slowly.
SLOW_OPEN = os.path.join(os.path.dirname(CTRAIN), "tests", "e2e", "slow_open.so")
IMAGES = """\
model: {name: mlp, hidden: [8]}
data: {name: imagefolder, dir: %s, train: {path: ., size: 8}, val: none, workers: 1}
batch: {global: 24}
launch: {procs: 2, threads: 1}
"""


def cpu_ticks(pid):
    """What the process has used, in units of the kernel, usually 10 ms."""
    return sum(map(int, read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[11:13]))


class Stragglers(Case):
    def reports(self, **members):
        """The reports of rank 1 with these members. Where other programs run, other ranks may be stragglers, too."""
        all_of_them = self.metrics("run", "straggler", partial=True) if os.path.exists(self.path("run", "metrics.jsonl")) else []
        return [m for m in all_of_them if {"rank": 1, **members}.items() <= m.items()]

    def until_named(self, process, **members):
        return self.until(lambda: self.reports(**members), "rank 1 was a straggler in metrics.jsonl", process, 30)[0]

    def test_pauses(self):
        """Rank 1 is stopped again and again: four times as long as it takes, at any load of the machine, to get some CPU time."""
        p = self.start_training(*FOREVER, "model.hidden=[1024,1024]", env={"CTRAIN_FAILPOINT": "step:3@1=stop"})
        pid = self.until_stopped(1, p)
        deadline = time.monotonic() + 60 * SLOW
        while not self.reports() and time.monotonic() < deadline:
            began, used = time.monotonic(), cpu_ticks(pid)
            os.kill(pid, signal.SIGCONT)
            while cpu_ticks(pid) == used and time.monotonic() - began < 0.3:
                pause()
            os.kill(pid, signal.SIGSTOP)
            time.sleep(4 * (time.monotonic() - began))
        os.kill(pid, signal.SIGCONT)
        m = self.until_named(p)
        self.assertGreater(m["ratio"], 1.25)
        self.assertGreater(m["late_ms"], 0)
        p.signal(signal.SIGTERM)
        self.assert_code(p.wait(), STOPPED)
        self.assertRegex(p.out, rf"rank 1 \(pid {pid} on \S+\) is a straggler: all others wait for it, [\d.]+ ms per step, from bucket \d of \d on; it needs [\d.]+ times")
        self.assertRegex(read_text(self.path("run", "log", "rank-00000.log")), "is a straggler")

    def test_slow_data(self):
        """Each image takes rank 1 some milliseconds more, so its steps take a hundred times as long as the computations of any rank."""
        for i in range(48):
            self.write(f"images/{i % 2}/{i:02}.png", png_file(8, 8, (b"\0" + bytes([5 * i]) * 24) * 8))
        config = self.config(IMAGES % self.path("images"), "images.yaml")
        both = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.free_port())}
        ranks = [self.start_training(*FOREVER, config=config, env={**both, "RANK": str(k), "LOCAL_RANK": str(k), **slow}) for k, slow in ((0, {}), (1, {"LD_PRELOAD": SLOW_OPEN}))]
        m = self.until_named(ranks[0], phase="data")
        self.assertGreater(m["phase_ms"], m["others_ms"])
        for p in ranks:
            p.signal(signal.SIGTERM)
        for p in ranks:
            self.assert_code(p.wait(), STOPPED)

    def test_off(self):
        """dist.straggler_factor=0: no times are exchanged. Otherwise, this first happens after step 10."""
        for factor, n in ((0, 0), (1.25, 1)):
            run = f"run-{factor}"
            self.train(f"dist.straggler_factor={factor}", run=run, env={"CTRAIN_FAILPOINT": "step:11@1"}, expect=COMM)
            with open(self.path(run, "log", "postmortem.json"), encoding="utf-8") as f:
                records = json.load(f)["ranks"][1]["communicators"][0]["records"]
            self.assertEqual([r["op"] for r in records].count("allgather"), n)


if __name__ == "__main__":
    main()
