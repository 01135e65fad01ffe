"""Models whose stages are on different ranks (launch.pipeline): the same numbers as on one rank, checkpoints that any other
number of stages continues, and failures of a stage."""

import os
import re
import signal

from harness import COMM, DATA, NUMERIC, STOPPED, USAGE, Case, main

MLP = ("model.hidden=[32,24]", "model.dropout=0.2", "train.accumulate=4")
RESNET = ("model.name=resnet20", "data.shape=3,16,16", "data.n_train=72", "data.n_val=21", "batch.global=32", "optim.name=adamw",
          "optim.lr=0.002", "optim.clip_norm=0.5", "train.ema=0.9", "train.accumulate=4")
UNEVEN = ("data.n_train=963", "data.n_val=3")  # the last step has 3 samples, so the last of 4 micro-batches is empty


def stages(n, procs=None):
    return (f"launch.pipeline={n}", "--procs", procs or n)


class Equal(Case):
    def compare(self, run, other, exactly):
        """The losses and evaluations of two runs are the same."""
        losses, expected = self.losses(run), self.losses(other)
        self.assertEqual(sorted(losses), sorted(expected))
        for step, loss in expected.items():
            self.assertLess(abs(losses[step] / loss - 1), 1e-6, f"{run}: step {step}: {losses[step]!r} and {loss!r} in {other}")
        for a, b in zip(self.metrics(run, "eval"), self.metrics(other, "eval")):
            self.assertEqual((a["count"], a["step"], a["top1"]), (b["count"], b["step"], b["top1"]))
            self.assertAlmostEqual(a["loss"] / b["loss"], 1, delta=1e-6)
        for a, b in zip(self.metrics(run, "epoch"), self.metrics(other, "epoch")):
            self.assertEqual(a["images"], b["images"])
        if exactly:
            self.assertEqual(self.digest(run), self.digest(other))

    def check(self, *sets, replicas=1, exactly=False, name="whole", pipelines):
        self.train(*sets, "--procs", replicas, run=name)
        for i, pipeline in enumerate(pipelines):
            with self.subTest(sets=sets, pipeline=pipeline):
                self.train(*sets, *pipeline, run=f"{name}-{i}")
                self.compare(f"{name}-{i}", name, exactly)

    def test_mlp(self):
        self.check(*MLP, pipelines=(stages(2), (*stages(2), "dist.backend=gloo"), stages(3)))

    def test_uneven_last_batch(self):
        self.check(*MLP, *UNEVEN, pipelines=(stages(2), stages(3)))

    def test_one_micro_batch(self):
        self.check("train.epochs=1", pipelines=(stages(2),))

    def test_reference_engine(self):
        self.check(*MLP, "train.engine=ref", "train.epochs=1", exactly=True, pipelines=(stages(2), stages(3)))

    def test_resnet(self):
        self.check(*RESNET, pipelines=(stages(2), (*stages(3), "dist.backend=gloo")))

    def test_row_2_with_data_parallelism(self):
        self.check(*MLP, *UNEVEN, replicas=2, pipelines=(stages(2, 4), (*stages(2, 4), "dist.backend=gloo")))

    def test_resnet_with_data_parallelism(self):
        for bn in "sync", "broadcast":
            self.check(*RESNET, f"model.bn={bn}", "data.drop_last=true", "model.drop_path=0.2", replicas=2, name=bn, pipelines=(stages(2, 4),))


class Checkpoints(Case):
    SETS = (*MLP, "optim.name=adamw", "optim.lr=0.002", "train.ema=0.9")

    def stop(self, *sets, run):
        p = self.start_training(*self.SETS, *sets, run=run, env={"CTRAIN_FAILPOINT": "step:9@0=stop"})
        pid = self.until_stopped(0, p)
        p.signal(signal.SIGTERM)
        self.until(lambda: "saving" in p.err, "the launcher said that it got the signal", p)
        os.kill(pid, signal.SIGCONT)
        self.assert_code(p.wait(), STOPPED)

    def test_continued_with_other_stages(self):
        self.train(*self.SETS, "--procs", 1, run="reference")
        expected = self.losses("reference")
        for i, (first, second) in enumerate(((stages(2), stages(1)), (stages(1), stages(2)), (stages(3), stages(2, 4)), (stages(2), stages(2)))):
            with self.subTest(first=first, second=second):
                self.stop(*first, run=f"run-{i}")
                self.train(*self.SETS, *second, run=f"run-{i}")
                losses = self.losses(f"run-{i}")
                self.assertEqual(sorted(losses), sorted(expected))
                for step, loss in expected.items():
                    self.assertAlmostEqual(losses[step] / loss, 1, delta=1e-6, msg=f"step {step}")
                self.assert_checkpoints_whole(run=f"run-{i}")

    def test_same_files(self):
        """The reference engine computes the same bits, so the files are the same."""
        for run, how in (("one", stages(1)), ("three", stages(3))):
            self.train(*self.SETS, "train.engine=ref", "train.epochs=1", *how, run=run)
        for name in "model.safetensors", "optim.safetensors":
            files = []
            for run in "one", "three":
                with open(self.path(run, "checkpoints", "last", name), "rb") as f:
                    files.append(f.read())
            self.assertEqual(files[0], files[1], name)
        r = self.run_ctrain("eval", self.config(), *self.SETS, f"run.dir={self.path('three')}", "--checkpoint", "last")
        self.assertIn("230", r.out)

    def test_initial_weights(self):
        self.train(*MLP, "train.epochs=1", run="first")
        for run, how in (("one", stages(1)), ("two", stages(2))):
            self.train(*MLP, f"model.weights={self.path('first')}", "train.max_steps=3", *how, run=run)
        self.assertAlmostEqual(self.losses("two")[1] / self.losses("one")[1], 1, delta=1e-6)
        self.assertNotAlmostEqual(self.losses("two")[1] / self.losses("first")[1], 1, delta=0.01)
        r = self.train("model.hidden=[40,24]", "train.accumulate=4", f"model.weights={self.path('first')}", *stages(2), run="bad", expect=DATA)
        self.assert_last_says(r, r"model\.weights", r"fc1\.weight")


class Failures(Case):
    def test_killed_stage(self):
        for backend in "shm", "gloo":
            for rank in 0, 1, 2:
                with self.subTest(backend=backend, rank=rank):
                    run = f"{backend}-{rank}"
                    p = self.start_training(*MLP, *stages(3), f"dist.backend={backend}", run=run, env={"CTRAIN_FAILPOINT": f"step:7@{rank}=stop"})
                    self.kill_stopped(rank, p, run, {0, 1, 2} - {rank})

    def test_stopped_stage(self):
        """A stage that does not answer is named by the others after dist.timeout."""
        p = self.start_training(*MLP, *stages(2, 4), "dist.timeout=2", env={"CTRAIN_FAILPOINT": "step:7@3=stop"})
        pid = self.until_stopped(3, p)
        r = p.wait(30)
        self.assert_code(r, COMM)
        self.assert_last_says(r, r"rank 3\b", rf"pid {pid}\b")

    def test_not_finite(self):
        """All stages learn that the loss of the last one is not finite, and none updates its weights."""
        toy = ("data.name=synthetic_regression", "data.shape=10,1,1", "data.targets=5", "model.name=layers",
               "model.layers=[linear 10, linear 10, linear 5]", "train.accumulate=4")
        r = self.train(*toy, *stages(3), "optim.lr=1000", expect=NUMERIC)
        self.assert_last_says(r, r"loss is (nan|-?inf) at step \d+")

    def test_bad_configs(self):
        for sets, what in ((stages(2, 3), r"launch\.pipeline=2 does not divide the 3 ranks"),
                           (stages(5), r"launch\.pipeline.*cannot be split into 5 stages: there are only 3 places"),
                           ((*stages(2), "device=lazy"), r"launch\.pipeline=2 with device=lazy"),
                           ((*stages(2), "dist.bucket_mib=auto"), r"dist\.bucket_mib=auto with launch\.pipeline=2"),
                           ((*stages(2, 4), "dist.backend=mpi"), r"launch\.pipeline=2 with 4 ranks and dist\.backend=mpi"),
                           ((*stages(2, 6), "batch.global=32"), r"batch\.global 32 is not divisible by 3 replicas x train\.accumulate 4"),
                           (("launch.pipeline=0",), r"launch\.pipeline")):
            with self.subTest(sets=sets):
                self.assert_last_says(self.train(*MLP, *sets, run="bad", expect=USAGE), what)

    def test_check(self):
        r = self.run_ctrain("check", self.config(), *stages(2, 3), expect=USAGE)
        self.assertRegex(r.err, r"launch\.pipeline=2 does not divide the 3 ranks")

    def test_row_2_groups_in_the_plan(self):
        r = self.run_ctrain("plan", self.config(), *MLP, *stages(2, 4))
        self.assertRegex(r.out, r"pipeline     4 ranks = 2 replicas x 2 stages; 4 micro-batches")
        self.assertRegex(r.out, r"stage 0 +flatten \.\.\. drop1: [\d.]+ % of the FLOPs; up to 2 micro-batches in flight; ranks 0, 2\n")
        self.assertRegex(r.out, r"stage 1 +fc2 \.\.\. loss: [\d.]+ % of the FLOPs; up to 1 micro-batch in flight; ranks 1, 3\n")
        self.assertRegex(r.out, r"flops .* GFLOP per training step and replica\n")
        self.assertEqual(len(re.findall(r"^memory +stage \d", r.out, re.M)), 2)


if __name__ == "__main__":
    main()
