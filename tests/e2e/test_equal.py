"""The same numbers whatever happens: again, with other loader threads, on other world sizes, interrupted and killed."""

import os
import random
import signal
import sys

from harness import STOPPED, TINY_STEPS_PER_EPOCH, Case, both_ways_to_save, main, read_text, state_of

SEED = int(os.environ.get("CTRAIN_E2E_SEED", random.SystemRandom().randrange(1 << 30)))
AUGMENT = ("data.augment.crop_padding=2", "data.augment.flip=true", "data.augment.degrees=10")
LAST = 2 * TINY_STEPS_PER_EPOCH


class SameAgain(Case):
    def assert_same_bits(self, runs):
        first = runs[0]
        for run in runs[1:]:
            self.assertEqual(self.digest(run), self.digest(first), f"{run} and {first}")
            self.assertEqual(self.losses(run), self.losses(first), f"{run} and {first}")

    def test_two_identical_runs(self):
        for i, sets in enumerate(((), ("model.name=convnet", "data.shape=1,28,28", "data.n_train=300"), ("--procs", 3, *AUGMENT),
                                  ("launch.threads=2", "--procs", 1), ("dist.backend=gloo", "--procs", 3),
                                  ("model.dropout=0.3", "train.ema=0.9", "optim.name=adamw", "train.accumulate=2"))):
            with self.subTest(sets=sets):
                runs = [f"{i}-first", f"{i}-second"]
                for run in runs:
                    self.train(*sets, run=run)
                self.assert_same_bits(runs)

    def test_other_seed_is_another_run(self):
        self.train("run.seed=2")
        self.assertNotEqual(self.digest(), self.reference()[1])

    def test_any_number_of_loader_threads(self):
        runs = []
        for workers in ("auto", 0, 1, 2, 4):
            runs.append(f"workers-{workers}")
            self.train(f"data.workers={workers}", *AUGMENT, run=runs[-1])
        self.assert_same_bits(runs)
        self.train(run="plain")
        self.assertNotEqual(self.digest("plain"), self.digest(runs[0]), "augmentation changes nothing")

    def test_any_bucket_size_and_backend_of_two_ranks(self):
        """Two numbers have one sum: how they are cut and who adds them does not show."""
        runs = []
        for i, sets in enumerate(((), ("dist.first_bucket_mib=0.001", "dist.bucket_mib=0.001"), ("dist.backend=gloo",))):
            runs.append(f"run-{i}")
            self.train(*sets, run=runs[-1])
        self.assert_same_bits(runs)


    def test_measured_bucket_size_survives_a_resume(self):
        """Three ranks of gloo add in an order that depends on the buckets, so a resumed run keeps those of its checkpoint."""
        sets = ("--procs", 3, "dist.backend=gloo", "model.hidden=[600,600]", "data.n_train=200", "dist.first_bucket_mib=0.25")
        for steps in (3, 6):
            self.train("dist.bucket_mib=auto", f"train.max_steps={steps}", *sets, run="auto")
        first, second = self.metrics("auto", "run")
        self.assertEqual((first["bucket_choice"], second["bucket_choice"]), ("measured", "checkpoint"))
        self.assertEqual(second["bucket_mib"], first["bucket_mib"])
        sizes = [t["bytes"] for t in first["allreduce_times"]]
        self.assertTrue(sizes == sorted(set(sizes)) and all(t["us"] > 0 for t in first["allreduce_times"]), first)
        self.assertIn(f"dist.bucket_mib=auto has chosen {first['bucket_mib']:g} in this run", read_text(self.path("auto", "config.yaml")))
        self.train(f"dist.bucket_mib={first['bucket_mib']}", "train.max_steps=6", *sets, run="fixed")
        self.assertEqual(self.metrics("fixed", "run")[0]["bucket_choice"], "config")
        self.assert_same_bits(("auto", "fixed"))

    def test_default_bucket_size(self):
        """A size that is neither set nor measured is called the default, as `plan` calls it."""
        for i, sets in enumerate(((), ("dist.bucket_mib=auto", "--procs", 1))):
            self.train("train.max_steps=1", *sets, run=f"default-{i}")
            self.assertEqual(self.metrics(f"default-{i}", "run")[0]["bucket_choice"], "default")
            self.assertEqual(self.run_ctrain("plan", self.config(), *sets, "--no-measure", "--json").json()["buckets"]["cap_from"], "default")


class SameOnAnyWorld(Case):
    def assert_same_losses(self, run, expected, sets=()):
        losses = self.losses(run)
        self.assertEqual(sorted(losses), sorted(expected))
        worst = max(expected, key=lambda s: abs(losses[s] / expected[s] - 1))
        self.assertLess(abs(losses[worst] / expected[worst] - 1), 1e-6,
                        f"{run} {sets}: worst at step {worst}: {losses[worst]!r} and {expected[worst]!r}")

    def check(self, worlds, *sets, run):
        self.train("--procs", 1, *sets, run=f"{run}-1")
        one = self.metrics(f"{run}-1", "eval")
        for world in worlds:
            with self.subTest(world=world, sets=sets):
                name = f"{run}-{world}"
                self.train("--procs", world, *sets, run=name)
                self.assert_same_losses(name, self.losses(f"{run}-1"), sets)
                for a, b in zip(one, self.metrics(name, "eval")):
                    self.assertEqual((a["count"], a["step"]), (b["count"], b["step"]))
                    self.assertAlmostEqual(b["loss"] / a["loss"], 1, delta=1e-5)
                    self.assertAlmostEqual(b["top1"], a["top1"], delta=1.01 / a["count"])

    def test_mlp(self):
        self.check((2, 3, 4), run="plain")

    def test_augmented_and_accumulated(self):
        self.check((2, 4), *AUGMENT, "train.accumulate=2", run="augmented")

    def test_dropout(self):
        self.check((2, 3), "model.dropout=0.2", run="dropout")

    def test_row_124_uneven_last_batch(self):
        # 1001 = 20 * 48 + 41; 961 leaves one row for four ranks; with drop_last both are left out.
        for n in (1001, 961):
            self.check((2, 3, 4), f"data.n_train={n}", "data.n_val=3", run=f"tail-{n}")
            self.assertEqual([m["images"] for m in self.metrics(f"tail-{n}-4", "epoch")], [n, n])
        self.check((3,), "data.n_train=1001", "data.drop_last=true", run="dropped")
        self.assertEqual([m["images"] for m in self.metrics("dropped-3", "epoch")], [960, 960])

    def test_regression(self):
        self.check((2, 4), "model.hidden=10", "data.name=synthetic_regression", "data.shape=10,1,1", "data.targets=5",
                   "optim.lr=0.01", run="regression")

    def test_reference_engine(self):
        self.check((3,), "train.engine=ref", "train.epochs=1", run="ref")
        self.train("train.engine=onednn", "train.epochs=1", run="onednn")
        ref, onednn = self.losses("ref-1"), self.losses("onednn")
        for step, loss in ref.items():
            self.assertAlmostEqual(onednn[step] / loss, 1, delta=1e-4)


@both_ways_to_save
class Resumed(Case):
    SETS = ("checkpoint.every_steps=4",)

    def interrupt(self, sig, point, rank, *sets, run="run"):
        """Stops a rank at a failpoint, signals the launcher, lets the rank go on; expects the agreed end."""
        p = self.start_training(*sets, run=run, env={"CTRAIN_FAILPOINT": f"{point}@{rank}=stop"})
        pid = self.until_stopped(rank, p)
        p.signal(sig)
        self.until(lambda: "saving" in p.err, "the launcher said that it got the signal", p)
        os.kill(pid, signal.SIGCONT)
        r = p.wait()
        self.assert_code(r, STOPPED)
        self.assert_last_says(r, r"stopped by a signal", r"run the same command again")
        self.assertEqual(self.marked(), {})
        self.assertEqual(self.metrics(run, "end")[-1]["status"], "stopped by a signal")
        return self.metrics(run, "end")[-1]["step"]

    def test_after_a_signal(self):
        for i, (sig, point, rank) in enumerate(((signal.SIGTERM, "step:7", 0), (signal.SIGUSR1, "step:24", 1), (signal.SIGINT, "eval:1", 1),
                                                (signal.SIGHUP, "ckpt.optim:2", 0))):
            with self.subTest(signal=sig.name, point=point, rank=rank):
                run = f"run-{i}"
                # In the first of these saves, training is at most at the next one.
                step = self.interrupt(sig, point, rank, *(self.SETS if point.startswith("ckpt") else ()), run=run)
                self.assertLess(step, LAST)
                self.train(run=run)
                self.assert_equals_reference(run=run)
                self.assertEqual(self.metrics(run, "run")[-1]["resumed_step"], step)

    def test_twice_with_everything_on(self):
        sets = ("train.ema=0.9", "optim.name=adamw", *AUGMENT, "schedule.name=cosine", "data.workers=2", "train.accumulate=2",
                "model.name=layers",
                "model.layers=[conv2d 4 kernel=3, batch_norm, relu, global_avg_pool, flatten, dropout 0.2, linear 10]")
        self.interrupt(signal.SIGTERM, "step:5", 1, *sets)
        self.interrupt(signal.SIGTERM, "step:20", 0, *sets)
        self.train(*sets)
        self.assert_equals_reference(*sets)

    def test_all_signals_to_a_worker_too(self):
        """As Slurm and Kubernetes do: the workers get the signal themselves."""
        p = self.start_training(env={"CTRAIN_FAILPOINT": "step:7@0=stop"})
        pid = self.until_stopped(0, p)
        os.kill(self.rank_pid(1), signal.SIGUSR1)
        os.kill(pid, signal.SIGCONT)
        self.assert_code(p.wait(), STOPPED)
        self.train()
        self.assert_equals_reference()

    def test_on_another_world_size(self):
        losses, _ = self.reference()
        for first, second in ((2, 1), (1, 3), (4, 2)):
            with self.subTest(first=first, second=second):
                run = f"run-{first}-{second}"
                self.interrupt(signal.SIGTERM, "step:9", 0, "--procs", first, run=run)
                self.train("--procs", second, run=run)
                for step, loss in self.losses(run).items():
                    self.assertAlmostEqual(loss / losses[step], 1, delta=1e-6, msg=f"step {step}")
                self.assertEqual([m["world_size"] for m in self.metrics(run, "run")], [first, second])

    def test_killed_at_random_points(self):
        rng = random.Random(SEED)
        print(f"  seed {SEED} (repeat with CTRAIN_E2E_SEED={SEED})", file=sys.stderr)
        for i in range(5):
            point = rng.choice([f"step:{rng.randint(1, 12)}", f"step:{rng.randint(1, 12)}", f"eval:{rng.randint(1, 2)}",
                                f"ckpt.{rng.choice(['model', 'optim'])}:{rng.randint(1, 9)}",
                                f"ckpt.{rng.choice(['state', 'rename', 'link', 'prune'])}:{rng.randint(1, 3)}"])
            rank = 0 if point.startswith("ckpt") else rng.randint(0, 1)
            victim = rng.choice(["the rank", "the launcher"])
            print(f"  kill {i + 1}: {victim} with rank {rank} at {point}", file=sys.stderr)
            stop = "=stop" if victim == "the launcher" else ""
            p = self.start_training(*self.SETS, env={"CTRAIN_FAILPOINT": f"{point}@{rank}{stop}"})
            if stop:
                # The point may lie behind the end of a run that has come far.
                def stopped_or_over():
                    pid = self.rank_pid(rank)
                    return p.popen.poll() is not None or pid and state_of(pid) == "T"
                self.until(stopped_or_over, f"rank {rank} stopped", None)
                if p.popen.poll() is None:
                    p.signal(signal.SIGKILL)
            r = p.wait()
            self.assertIn(r.code, (0, 5, -9), r.describe())
            self.until(lambda: not self.marked(), "everything was gone", None, 5)
        self.train(*self.SETS)
        self.assert_equals_reference()
        self.assert_checkpoints_whole()
        left = [n for n in os.listdir(self.path("run", "checkpoints")) if ".tmp" in n]
        self.assertEqual(left, [])


if __name__ == "__main__":
    main()
