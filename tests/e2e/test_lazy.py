"""Training on the device "lazy", whose posted work runs late, in an order drawn from a seed, in memory that is closed to the host:
the same results as on the CPU prove that no part of training relies on when work is done. And saving while training continues."""

import os
import random
import re
import signal
import time

from harness import COMM, IO, NUMERIC, OK, STOPPED, USAGE, Case, main, read_text

SEEDS = range(1, 6)
NET = "model.layers=[conv2d 4 kernel=3, batch_norm, relu, max_pool 2, dropout 0.2, linear 10]"
SETS = {
    "mlp": (),
    "convnet with everything": ("model.name=layers", NET, "model.bn=sync", "optim.clip_norm=0.5", "train.ema=0.9", "train.accumulate=2",
                                "data.n_train=203", "data.workers=2", "checkpoint.every_steps=3"),
    "statistics of rank 0": ("model.name=layers", NET, "model.bn=broadcast", "optim.name=adamw", "data.n_train=203"),
    "many batches in a step": ("train.accumulate=12", "data.n_train=203"),
    "lars": ("optim.name=lars", "optim.trust=0.01", "data.n_train=203"),
}


RECORDED = {
    "mlp": ("optim.name=adamw", "schedule.name=cosine", "data.n_train=491"),
    "convnet with everything": ("model.name=layers", NET, "model.bn=sync", "optim.clip_norm=0.5", "train.ema=0.9", "data.n_train=491",
                                "data.workers=2", "checkpoint.every_steps=3", "schedule.name=cosine"),
    "statistics of rank 0": ("model.name=layers", NET, "model.bn=broadcast", "train.eval_every=0.4", "data.n_train=491"),
    "mixed rows": ("data.augment.mixup=0.4", "data.n_train=491"),
    "several batches in a step": ("train.accumulate=3", "train.ema=0.9", "data.n_train=1003", "optim.clip_norm=0.5"),
}


class Lazy(Case):
    def results(self, *sets, run, **more):
        self.train("train.engine=ref", *sets, run=run, **more)
        steps = [(m["step"], m["loss"], m.get("grad_norm")) for m in self.metrics(run, "step")]
        evals = [(m["step"], m["loss"], m["top1"]) for m in self.metrics(run, "eval")]
        return self.metrics(run, "end")[-1]["weights_digest"], steps, evals

    def test_equals_cpu(self):
        for name, sets in SETS.items():
            for procs in (1, 2):
                cpu = self.results(*sets, "--procs", procs, run=f"cpu-{name}-{procs}")
                for seed in SEEDS:
                    with self.subTest(sets=name, procs=procs, seed=seed):
                        got = self.results(*sets, "--procs", procs, "device=lazy", run=f"lazy-{name}-{procs}-{seed}",
                                           env={"CTRAIN_LAZY_SEED": str(seed)})
                        self.assertEqual(got, cpu)

    def test_recorded_equals_posted(self):
        for name, sets in RECORDED.items():
            for procs in (1, 2):
                cpu = self.results(*sets, "--procs", procs, run=f"cpu-{name}-{procs}")
                for record in ("on", "off"):
                    # test_equals_cpu has more seeds of steps that are posted.
                    for seed in SEEDS if record == "on" else SEEDS[:1]:
                        with self.subTest(sets=name, procs=procs, record=record, seed=seed):
                            got = self.results(*sets, "--procs", procs, "device=lazy", f"train.cuda_graph={record}",
                                               f"train.graph_steps={1 + seed % 3}", run=f"{record}-{name}-{procs}-{seed}", env={"CTRAIN_LAZY_SEED": str(seed)})
                            self.assertEqual(got, cpu)

    def test_recorded_and_resumed(self):
        sets = (*RECORDED["convnet with everything"], "--procs", 2)
        cpu = self.results(*sets, run="cpu")[0]
        for seed in SEEDS:
            with self.subTest(seed=seed):
                run, sets_on = f"lazy-{seed}", (*sets, "device=lazy", "train.cuda_graph=on")
                r = self.start_training("train.engine=ref", *sets_on, run=run,
                                        env={"CTRAIN_LAZY_SEED": str(seed), "CTRAIN_FAILPOINT": f"step:{12 + seed % 4}@{seed % 2}"}).wait()
                self.assertIn(r.code, (COMM, -9))
                self.until(lambda: not self.marked(), "everything was gone")
                self.assertEqual(self.results(*sets_on, run=run, env={"CTRAIN_LAZY_SEED": str(seed)})[0], cpu)
                self.assertGreater(self.metrics(run, "run")[-1]["resumed_step"], 0)

    def test_device_that_cannot_record(self):
        r = self.train("device=cpu", "train.cuda_graph=on", expect=USAGE)
        self.assert_last_says(r, "train.cuda_graph=on: a cpu device cannot record steps")

    def test_killed_and_resumed(self):
        sets = (*SETS["convnet with everything"], "--procs", 2)
        cpu = self.results(*sets, run="cpu")[0]
        for seed in SEEDS:
            with self.subTest(seed=seed):
                run, env = f"lazy-{seed}", {"CTRAIN_LAZY_SEED": str(seed)}
                r = self.start_training("train.engine=ref", "device=lazy", *sets, run=run,
                                        env={**env, "CTRAIN_FAILPOINT": f"step:{7 + seed % 4}@{seed % 2}"}).wait()
                self.assertIn(r.code, (COMM, -9))
                self.until(lambda: not self.marked(), "everything was gone")
                self.assertEqual(self.results("device=lazy", *sets, run=run, env=env)[0], cpu)
                self.assertGreater(self.metrics(run, "run")[-1]["resumed_step"], 0)

    def test_stopped_by_a_signal(self):
        """The request is seen some steps later, by all ranks at the same step, and nothing is lost."""
        sets = ("train.engine=ref", "device=lazy", "train.epochs=6", "--procs", 2)
        p = self.start_training(*sets, env={"CTRAIN_FAILPOINT": "step:9@1=stop"})
        pid = self.until_stopped(1, p)
        p.signal(signal.SIGTERM)
        self.until(lambda: "saving" in p.err, "the launcher reported the signal", p)
        os.kill(pid, signal.SIGCONT)
        self.assert_code(p.wait(), STOPPED)
        stopped = self.metrics(kind="end")[-1]["step"]
        self.assertTrue(9 <= stopped < 6 * 21, stopped)
        self.train(*sets)
        self.train("train.engine=ref", "train.epochs=6", "--procs", 2, run="cpu")
        self.assertEqual(self.metrics(kind="run")[-1]["resumed_step"], stopped)
        self.assertEqual(*(self.metrics(run, "end")[-1]["weights_digest"] for run in ("run", "cpu")))

    def test_stopped_rank_is_named(self):
        """Posted steps wait for a rank that takes part no more."""
        p = self.start_training("train.engine=ref", "device=lazy", "dist.timeout=2", "train.accumulate=6", "--procs", 2,
                                env={"CTRAIN_FAILPOINT": "step:7@1=stop"})
        pid = self.until_stopped(1, p)
        self.until(lambda: not self.marked(), "everything was gone", p)
        r = p.wait()
        self.assert_code(r, COMM)
        self.assert_last_says(r, r"rank 1\b", rf"pid {pid}\b")

    def test_gloo(self):
        """The communicator of several hosts works on device memory from a thread of its own."""
        comms = {c["name"]: c for c in self.run_ctrain("info", "--json").json()["communicators"]}
        if not comms["gloo"]["available"]:
            self.skipTest("built without gloo")
        for name in ("mlp", "statistics of rank 0"):
            sets = (*SETS[name], "--procs", 2, "dist.backend=gloo")
            cpu = self.results(*sets, run=f"cpu-{name}")
            for seed in SEEDS:
                with self.subTest(sets=name, seed=seed):
                    got = self.results(*sets, "device=lazy", run=f"lazy-{name}-{seed}", env={"CTRAIN_LAZY_SEED": str(seed)})
                    self.assertEqual(got, cpu)

    def test_nan(self):
        """The step at which the loss is not finite is the same, and the checkpoint before it is valid."""
        sets = ("optim.lr=1000", "model.name=layers", NET, "--procs", 2, "train.engine=ref")
        said = []
        for device in ("cpu", "lazy"):
            r = self.train(*sets, f"device={device}", run=device, expect=NUMERIC)
            said.append(re.search(r"the loss is .* not updated in this step", r.err)[0])
        self.assertEqual(said[0], said[1])


class Background(Case):
    def test_killed_at_random_times(self):
        """Saves at every step in a thread; whatever is killed, what is stored is valid and the end is the same."""
        sets = ("checkpoint.every_steps=1", "checkpoint.keep_last=3", "train.ema=0.9", "train.epochs=3")
        self.train(*sets, run="whole")
        rng = random.Random(int(os.environ.get("CTRAIN_E2E_SEED", "7")))
        for i in range(int(os.environ.get("CTRAIN_E2E_KILLS", "12"))):
            p = self.start_training(*sets)
            time.sleep(rng.uniform(0.03, 0.35))  # which moment it is does not matter
            if p.popen.poll() is None:
                rank = self.rank_pid(rng.randint(0, 1))
                victim = rank if rank and rng.random() < 0.7 else p.popen.pid
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.assertIn(p.wait().code, (OK, COMM, -9))
            self.until(lambda: not self.marked(), "everything was gone")
            self.assert_checkpoints_whole(at_least=0)
        self.train(*sets)
        self.assertEqual(*(self.metrics(run, "end")[-1]["weights_digest"] for run in ("run", "whole")))

    def test_points_of_the_thread(self):
        """Killed in the middle of a save that runs beside training."""
        for point in ("ckpt.model:2", "ckpt.optim:3", "ckpt.state:2", "ckpt.rename:2", "ckpt.link:2", "ckpt.prune:1"):
            with self.subTest(point=point):
                run = "run-" + point.replace(":", "-")
                sets = ("checkpoint.every_steps=2", "checkpoint.keep_last=1")
                env = {"CTRAIN_FAILPOINT": f"{point}@0"}
                self.assertIn(self.start_training(*sets, run=run, env=env).wait().code, (COMM, -9))
                self.until(lambda: not self.marked(), "everything was gone")
                self.train(*sets, run=run)
                self.assert_equals_reference(*sets, run=run)
                self.assert_checkpoints_whole(run)

    def test_failing_save_ends_the_run(self):
        p = self.start_training("train.epochs=200", "checkpoint.every_steps=5", env={"CTRAIN_FAILPOINT": "step:8@0=stop"})
        pid = self.until_stopped(0, p)
        folder = self.path("run", "checkpoints")
        os.rename(folder, folder + "-away")
        with open(folder, "w"):
            pass
        os.kill(pid, signal.SIGCONT)
        r = p.wait()
        self.assert_code(r, IO)
        self.assert_last_says(r, "cannot save the checkpoint of step (5|10):")


if __name__ == "__main__":
    main()
