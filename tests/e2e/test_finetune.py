"""Fine-tuning: what is loaded, frozen parameters, learning rates, on other numbers of ranks and across interruptions."""

import json
import os
import re
import signal
import time

from harness import COMM, CTRAIN, DATA, NUMERIC, STOPPED, USAGE, Case, main, read_text, safetensors

BASE = """model: {name: %s}
data: {name: synthetic, shape: [3, 8, 8], classes: 4, n_train: 96, n_val: 32}
batch: {global: 24}
train: {epochs: 2}
log: {every: 1}
launch: {procs: 1, threads: 1}
"""


class Finetune(Case):
    def tensors(self, run):
        return safetensors(self.path(run, "checkpoints", "last", "model.safetensors"))[0]

    def base(self, model="resnet20"):
        config = self.config(BASE % model, name=f"{model}.yaml")
        self.train(run="base", config=config)
        return config, self.tensors("base")

    def tune(self, config, *sets, run="tuned", classes=3, **more):
        return self.train(f"data.classes={classes}", f"model.weights={self.path('base')}", "model.strict=false", *sets, run=run, config=config, **more)

    def test_frozen_backbone(self):
        config, before = self.base()
        r = self.tune(config, "model.freeze=backbone", "optim.name=adam", "train.ema=0.9")
        self.assertRegex(r.out, r"weights 105 of the model's 107 tensors were loaded from \S+model.safetensors; the other 2 start")
        self.assertRegex(r.out, r"trains  195 of \d+ parameters; frozen: backbone \(21 batch norms keep the running statistics\)")
        self.assertEqual(self.metrics("tuned", "run")[0]["trained_params"], 195)
        self.assertEqual(self.metrics("tuned", "run")[0]["lr"], 0.001, "default of adam")
        after = self.tensors("tuned")
        averages = safetensors(self.path("tuned", "checkpoints", "last", "optim.safetensors"))[0]
        for name, value in before.items():
            head = name.startswith("fc.")
            self.assertEqual(after[name] == value, not head, name)
            self.assertEqual(averages["ema/" + name] == value, not head, f"EMA of {name}")
        # Interrupted and resumed, and on another number of ranks.
        self.tune(config, "model.freeze=backbone", "optim.name=adam", "train.ema=0.9", "train.max_steps=3", run="parts")
        self.tune(config, "model.freeze=backbone", "optim.name=adam", "train.ema=0.9", run="parts")
        self.assertEqual(self.digest("parts"), self.digest("tuned"))
        self.tune(config, "model.freeze=backbone", "optim.name=adam", "train.ema=0.9", "--procs", 3, "train.accumulate=2", run="ranks")
        for step, loss in self.losses("tuned").items():
            self.assertAlmostEqual(self.losses("ranks")[step], loss, delta=1e-5 * loss)
        for one, three in zip(self.metrics("tuned", "step"), self.metrics("ranks", "step")):
            for norm in "grad_norm", "weight_norm":
                self.assertAlmostEqual(three[norm], one[norm], delta=1e-4 * one[norm])
            self.assertGreater(one["memory_bytes"], 1 << 20)
        r = self.tune(config, "model.freeze=conv1.*", run="parts", expect=USAGE)
        self.assert_says(r, "model.freeze was .*backbone.* and is now .*conv1")

    def test_pipeline(self):
        config, before = self.base("mlp")
        sets = ("model.freeze=fc2.*", "optim.lr_factors=fc3.*=2", "train.accumulate=4")
        self.tune(config, *sets, run="one")
        self.tune(config, *sets, "--procs", 2, "launch.pipeline=2", run="stages")
        for run in "one", "stages":
            self.assertEqual(self.tensors(run)["fc2.weight"], before["fc2.weight"])
            self.assertNotEqual(self.tensors(run)["fc1.weight"], before["fc1.weight"])
        for step, loss in self.losses("one").items():
            self.assertAlmostEqual(self.losses("stages")[step], loss, delta=1e-5 * loss)
        self.tune(config, *sets, "optim.lr_factors=fc3.*=4", run="faster")
        self.assertNotEqual(self.digest("faster"), self.digest("one"))
        r = self.tune(config, "model.freeze=fc1.*", "train.accumulate=4", "--procs", 2, "launch.pipeline=2", run="none", expect=USAGE)
        self.assert_says(r, "model.freeze freezes all parameters of stage 0 of the pipeline")

    def test_what_was_loaded(self):
        config, _ = self.base("mlp")
        other = self.config(BASE % "resnet20", name="other.yaml")
        r = self.tune(other, run="none", expect=DATA)
        self.assert_says(r, "0 of the model's 107 tensors match", "hint: the weights belong to a model other than model.name")
        self.assertFalse(self.metrics("none", "step") if read_text(self.path("none", "metrics.jsonl")) else [])
        r = self.tune(config, "model.hidden=[512,128]", run="some")
        self.assertRegex(r.out, r"weights warning: only 2 of the model's 6 tensors were loaded: see above")
        r = self.tune(config, classes=4, run="all")
        self.assertRegex(r.out, r"weights all of the model's 6 tensors were loaded from \S+base\S+")

    def test_mistakes(self):
        config = self.config(BASE % "mlp", name="mlp.yaml")
        for sets, message in ((["model.freeze=layer1.*"], 'model.freeze: no parameter of the model matches "layer1'),
                              (["model.freeze=backbone,fc3.*"], "all parameters of the model are frozen"),
                              (["optim.lr_factors=fc1.*"], 'is not a factor of the learning rate; write PATTERN=FACTOR'),
                              (["optim.lr_factors=conv.*=2"], 'optim.lr_factors: no parameter of the model matches "conv')):
            with self.subTest(sets=sets):
                r = self.run_ctrain("check", config, *sets, expect=USAGE)
                self.assertIn(message, re.sub(r"\s+", " ", r.err + r.out))


class Patience(Case):
    # No evaluation is an improvement: the loss is above 0, and does not change by 100.
    sets = ("train.epochs=9", "optim.lr=0.05")
    plateau = sets + ("schedule.name=plateau", "schedule.threshold=1", "schedule.patience=1", "schedule.gamma=0.5", "schedule.min_lr=0.01")
    early = sets + ("train.early_stop.patience=3", "train.early_stop.min_delta=100")

    def both(self, sets, *more):
        """A run, the same run in three parts, and on three ranks."""
        config = self.config(BASE % "mlp", name="mlp.yaml")
        whole = self.train(*sets, *more, run="whole", config=config)
        for n in 8, 12, 0:  # ends within a series of evaluations without improvement
            self.train(*sets, *more, *((f"train.max_steps={n}",) if n else ()), run="parts", config=config)
        self.assertEqual(self.digest("parts"), self.digest("whole"))
        self.assertEqual(self.losses("parts"), self.losses("whole"))
        self.train(*sets, *more, "--procs", 3, run="ranks", config=config)
        for key in "lr", "step":
            self.assertEqual([m[key] for m in self.metrics("ranks", "step")], [m[key] for m in self.metrics("whole", "step")])
        return whole

    def test_plateau(self):
        r = self.both(self.plateau)
        lrs = [m["lr"] for m in self.metrics("whole", "step")]
        # Evaluations after steps 4, 8, ...: the first is the best one; more than one without improvement halves the rate.
        self.assertEqual(lrs, [0.05] * 12 + [0.025] * 8 + [0.0125] * 8 + [0.01] * 8)
        self.assertIn("step 12  the evaluation loss has not improved: the learning rate is now 0.025", r.out)
        with open(self.path("whole", "checkpoints", "last", "state.json")) as f:
            self.assertAlmostEqual(json.load(f)["lr_scale"], 0.2)

    def test_plateau_after_warmup(self):
        self.train(*self.plateau, "schedule.warmup_epochs=2", config=self.config(BASE % "mlp", name="mlp.yaml"))
        lrs = [m["lr"] for m in self.metrics("run", "step")]
        self.assertEqual(lrs[8:16] + [lrs[16]], [0.05] * 8 + [0.025])

    def test_early_stop(self):
        self.both(self.early)
        end = self.metrics("whole", "end")[-1]
        self.assertEqual((end["status"], end["step"]), ("stopped early", 16))
        r = self.train(*self.early, run="whole", config=self.config(BASE % "mlp", name="mlp.yaml"))
        self.assertEqual([self.metrics("whole", "end")[-1][k] for k in ("status", "step")], ["stopped early", 16], r.out)
        self.train(*self.early, "train.early_stop.patience=4", run="whole", config=self.config(BASE % "mlp", name="mlp.yaml"))
        self.assertEqual(self.metrics("whole", "end")[-1]["step"], 20, "more patience continues the run")
        self.train(*self.sets, "train.early_stop.patience=3", "train.early_stop.metric=top1", run="improves",
                   config=self.config(BASE % "mlp", name="mlp.yaml"))

    def test_needs_evaluations(self):
        config = self.config(BASE % "mlp", name="mlp.yaml")
        for sets in self.plateau, self.early:
            for none in "data.val=none", "train.eval_every=0":
                r = self.run_ctrain("check", config, *sets, none, expect=USAGE)
                self.assertIn("requires evaluations during training", re.sub(r"\s+", " ", r.err + r.out))


class Hooks(Case):
    def test_facts(self):
        config = self.config(BASE % "mlp", name="mlp.yaml")
        note = self.write("note.sh", f'echo "$CTRAIN_EVENT $CTRAIN_EPOCH $CTRAIN_STEP ${{CTRAIN_TOP1:-none}} ${{CTRAIN_CHECKPOINT##*/}} $CTRAIN_STATUS '
                                     f'${{RANK:-no rank}}" >> {self.path("notes")}; echo said; echo "$CTRAIN_RUN_DIR" >&2\n')
        hooks = [f"on.{event}=sh {note}" for event in ("epoch_end", "checkpoint", "end", "failure")]
        self.train(*hooks, "checkpoint.best=false", "run.name=a'; touch injected; '", "--procs", 2, config=config)
        top1 = [f"{m['top1']:.9g}" for m in self.metrics("run", "eval")]
        notes = sorted(read_text(self.path("notes")).splitlines())
        self.assertEqual([n.split() for n in notes if not n.startswith("checkpoint")],
                         [["end", "2", "8", top1[1], "done", "no", "rank"], ["epoch_end", "1", "4", top1[0], "no", "rank"],
                          ["epoch_end", "2", "8", top1[1], "no", "rank"]])
        self.assertEqual([n.split()[4] for n in notes if n.startswith("checkpoint")], self.checkpoints("run"))
        log = read_text(self.path("run", "log", "rank-00000.log"))
        self.assertEqual((log.count("info 0/2 hook: said"), log.count("hook: " + self.path("run"))), (5, 5))
        self.train(run="plain", config=config)
        self.train("--procs", 2, "checkpoint.best=false", run="plain2", config=config)
        self.assertEqual(self.digest("plain2"), self.digest("run"), "hooks do not change the run")

    def test_hook_runs_ctrain(self):
        """A hook of a rank can start ctrain, which is not a rank of the run, and does not know its secret."""
        config = self.config(BASE % "mlp", name="mlp.yaml")
        out = self.path("out")
        self.train(f'on.end={CTRAIN} eval "$CTRAIN_RUN_DIR" >{out} 2>&1; echo "code $? token ${{CTRAIN_TOKEN:-none}}" >>{out}', "--procs", 2, config=config)
        self.assertRegex(read_text(out), r"(?s)top1 .*\ncode 0 token none\n$")

    def test_bad_hooks_are_warnings(self):
        config = self.config(BASE % "mlp", name="mlp.yaml")
        r = self.train("on.epoch_end=echo broken >&2; exit 3", "on.end=sleep 1000", "on.timeout=200ms", config=config)
        self.assertRegex(r.out, r"warning: the command of on.epoch_end failed: .*exit code 3")
        self.assertRegex(r.out, r"warning: the command of on.end failed: .*")
        self.assertIn("hook: broken", read_text(self.path("run", "log", "rank-00000.log")))
        self.assertEqual(self.marked(), {}, "the command that took too long was killed")

    def test_end_has_the_report(self):
        """The command at the end can upload the report, also after a stop by a signal."""
        config = self.config(BASE % "mlp", name="mlp.yaml")
        self.train(f'on.end=cp "$CTRAIN_RUN_DIR/report.html" {self.path("copy.html")}', config=config)
        self.assertEqual(read_text(self.path("copy.html")), read_text(self.path("run", "report.html")))
        self.assertIn("</html>", read_text(self.path("copy.html")))
        end = f'on.end=echo "$CTRAIN_STATUS" $(ls "$CTRAIN_RUN_DIR/results.csv") > {self.path("status")}'
        p = self.start_training("train.epochs=100000", end, run="stopped", config=config)
        self.until_step(2, p, "stopped")
        p.signal(signal.SIGTERM)
        self.assert_code(p.wait(), STOPPED)
        self.assertEqual(read_text(self.path("status")), f"stopped by a signal {self.path('stopped', 'results.csv')}\n")

    def test_other_ranks_wait(self):
        """A command ends before the other ranks, which wait for rank 0, run out of time."""
        r = self.train("on.epoch_end=sleep 1000", "dist.timeout=6s", "train.epochs=1", "--procs", 2, config=self.config(BASE % "mlp", name="mlp.yaml"))
        self.assertRegex(r.out, r"warning: the command of on.epoch_end failed: .*did not end in time")

    def test_rank_is_killed(self):
        """No process of a hook outlives its rank."""
        p = self.start_training("on.epoch_end=sleep 1000 & sleep 1000; true", "--procs", 2, config=self.config(BASE % "mlp", name="mlp.yaml"))
        self.until(lambda: sum(e.get("CTRAIN_EVENT") == "epoch_end" for e in self.marked().values()) == 3, "the shell and its two children ran", p)
        since = time.monotonic()
        os.kill(self.rank_pid(0), signal.SIGKILL)
        self.assert_gone(since, p)
        self.assert_code(p.wait(), COMM)

    def test_failure(self):
        config = self.config(BASE % "mlp", name="mlp.yaml")
        self.train("optim.lr=1000", "train.epochs=20", f"on.failure=echo $CTRAIN_STATUS: $CTRAIN_MESSAGE > {self.path('why')}", config=config, expect=NUMERIC)
        self.assertRegex(read_text(self.path("why")), r"^NUMERIC: the loss is (nan|inf) at step")


if __name__ == "__main__":
    main()
