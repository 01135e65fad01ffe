"""Plans of nets: chosen, given, measured, cached, stored in checkpoints, and used again when a run is resumed."""

import hashlib
import json
import os
import re
import signal

from harness import DATA, OK, USAGE, Case, main, read_text, state_of

CONFIG = """\
model: {name: resnet20}
data: {name: synthetic, n_train: 96, n_val: 16, shape: [3, 16, 16]}
batch: {global: 16}
optim: {lr: 0.05, momentum: 0.9}
train: {max_steps: 6}
launch: {procs: 1, threads: 1}
log: {every: 1}
"""
DIRECT = "ctrain plan 1\nlayout blocked\n"
NHWC = "ctrain plan 1\nlayout nhwc\n"
SAVES = ("checkpoint.every_steps=2", "checkpoint.background=false")


class Plans(Case):
    def setUp(self):
        super().setUp()
        if "onednn" not in self.run_ctrain("info").out.split("ref")[0]:
            self.skipTest("built without oneDNN")

    def train_net(self, *sets, **more):
        return self.train(*sets, config=self.config(CONFIG, "net.yaml"), **more)

    def plan(self, run="run"):
        return read_text(self.path(run, "plan.txt"))

    def log(self, run="run", rank=0):
        return read_text(self.path(run, "log", f"rank-{rank:05d}.log"))

    def cache(self):
        folder = self.path("cache", "ctrain", "plans")
        return sorted(os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".txt")) if os.path.isdir(folder) else []

    def test_given_and_resumed(self):
        """A run that was killed continues by the plan of its checkpoint, though another one would be chosen, and gives the same weights."""
        given = f"train.plan={self.write('nhwc.txt', NHWC)}"
        self.train_net(given, *SAVES, run="whole")
        self.assertEqual(self.plan("whole"), NHWC)
        with open(self.path("whole", "checkpoints", "last", "state.json")) as f:
            self.assertEqual(json.load(f)["plan"], NHWC)
        p = self.start(self.config(CONFIG, "net.yaml"), f"run.dir={self.path('run')}", given, *SAVES,
                       env={"CTRAIN_FAILPOINT": "step:4@0=stop"})
        os.kill(self.until_stopped(0, p), signal.SIGKILL)
        p.wait()
        self.train_net(*SAVES)
        self.assertEqual(self.metrics(kind="run")[-1]["resumed_step"], 2)
        self.assertEqual(self.plan(), NHWC)
        self.assertEqual(self.digest(), self.digest("whole"))
        self.train_net(*SAVES, run="other")
        self.assertNotEqual(self.plan("other"), NHWC)
        self.assertNotEqual(self.digest("other"), self.digest("whole"))
        self.assertNotEqual(self.metrics("other", "run")[0]["plan_digest"], self.metrics("whole", "run")[0]["plan_digest"])

    def test_gemm(self):
        """A plan with gradients of weights by gemm has an effect, and is used again when the run is resumed with other threads."""
        gemm = NHWC + "".join(f"conv layer{k}.0.conv1 direct direct gemm\n" for k in (1, 2, 3))
        sets = ("precision=bf16", *SAVES, "model.freeze=[\"conv1.*\", \"layer1.0.conv1.*\"]")
        if "bf16" not in self.run_ctrain("info").out:
            self.skipTest("this processor has no bfloat16 instructions")
        given = f"train.plan={self.write('gemm.txt', gemm)}"
        self.train_net(given, *sets, run="whole")
        self.assertEqual(self.plan("whole"), gemm)
        self.train_net(given, *sets, "train.max_steps=4")
        self.train_net(*sets, "launch.threads=2")
        self.assertEqual(self.plan(), gemm)
        self.assertEqual(self.metrics(kind="run")[-1]["resumed_step"], 4)
        self.train_net(f"train.plan={self.write('nhwc.txt', NHWC)}", *sets, run="direct")
        self.assertNotEqual(self.digest("direct"), self.digest("whole"))

    def test_foreseen(self):
        """`ctrain plan` compiles the model by the given plan, and refuses the files that training refuses."""
        given = f"train.plan={self.write('nhwc.txt', NHWC)}"
        config = self.config(CONFIG, "net.yaml")
        self.assertIn("\nnet plan     nhwc, direct (train.plan)\n", self.run_ctrain("plan", config, given).out)
        self.assertRegex(self.run_ctrain("plan", config).out, r"\nnet plan     .* \(suggested by the engine; .*\)\n")
        suggested, nhwc = (json.loads(self.run_ctrain("plan", config, "--json", *sets).out) for sets in ((), (given,)))
        self.assertEqual(nhwc["net_plan"], "nhwc, direct")
        self.assertNotEqual(suggested["memory_bytes"]["activations"], nhwc["memory_bytes"]["activations"])
        r = self.run_ctrain("plan", config, f"train.plan={self.write('bad.txt', DIRECT + 'conv x')}", expect=USAGE)
        self.assert_says(r, "bad.txt:3: ")

    def test_restarted(self):
        """A restart continues by the plan of the checkpoint, though another one would be chosen, and though train.resume is `never`."""
        sets = (*SAVES, "launch.procs=2", "train.resume=never")
        self.train_net(f"train.plan={self.write('nhwc.txt', NHWC)}", *sets, run="whole")
        self.train_net("train.autotune=on", *sets, run="cold")
        self.replace_plan(self.cache()[0], NHWC)
        p = self.start(self.config(CONFIG, "net.yaml"), f"run.dir={self.path('run')}", *sets, "--restarts", 1,
                       env={"CTRAIN_FAILPOINT": "step:4@0=stop"})
        pid = self.until_stopped(0, p)
        os.remove(self.cache()[0])
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: state_of(pid) in ("", "Z"), "rank 0 was dead", p)
        os.kill(self.until_stopped(0, p), signal.SIGCONT)
        self.assert_code(p.wait(), OK)
        self.assertEqual([m["step"] for m in self.metrics(kind="restart")], [2])
        self.assertEqual(self.plan(), NHWC)
        self.assertEqual(self.digest(), self.digest("whole"))

    def test_stages(self):
        """A plan is that of the whole model: each stage of a pipeline takes what concerns its convolutions."""
        one = self.train_pipeline("one", DIRECT + "conv layer1.0.conv1 winograd winograd winograd\n")
        other = self.train_pipeline("other", DIRECT + "conv layer3.2.conv2 winograd winograd winograd\n")
        self.assertEqual(len({one, other, self.train_pipeline("direct", DIRECT), self.train_pipeline("nhwc", NHWC)}), 4)

    def train_pipeline(self, run, plan):
        self.train_net(f"train.plan={self.write(f'{run}.txt', plan)}", "launch.procs=2", "launch.pipeline=2", "train.accumulate=2", run=run)
        self.assertEqual(self.plan(run), plan)
        self.assertEqual(*(re.search("plan of the model: .*", self.log(run, rank)).group() for rank in range(2)))
        return self.digest(run)

    def test_all_ranks_use_it(self):
        self.train_net("launch.procs=2", f"train.plan={self.write('nhwc.txt', NHWC)}")
        for rank in range(2):
            self.assertIn("plan of the model: nhwc, direct", self.log(rank=rank))

    def test_measured(self):
        self.train_net("train.autotune=on", run="cold")
        self.assertIn("by the fastest plan", self.log("cold"))
        self.assertEqual(len(self.cache()), 1)
        self.train_net("train.autotune=on", run="warm")
        self.train_net(run="auto")
        for run in ("warm", "auto"):
            self.assertNotIn("by the fastest plan", self.log(run))
            self.assertEqual(self.plan(run), self.plan("cold"))
            self.assertEqual(self.digest(run), self.digest("cold"))
        # Another processor has a file of its own.
        self.train_net("train.autotune=on", "train.isa=avx2", run="avx2")
        self.assertEqual(len(self.cache()), 2)
        # Another batch size is another entry of the file.
        self.train_net("train.autotune=on", "batch.global=8", run="small")
        self.assertIn("by the fastest plan", self.log("small"))

    def test_cache_decides(self):
        """`auto` takes what is stored; `off` does not look at it."""
        self.train_net("train.autotune=on", run="cold")
        path = self.cache()[0]
        self.replace_plan(path, NHWC)
        self.train_net(run="auto")
        self.assertEqual(self.plan("auto"), NHWC)
        self.train_net("train.autotune=off", run="off")
        self.assertNotEqual(self.plan("off"), NHWC)

    def replace_plan(self, path, plan):
        lines = read_text(path).splitlines()[:-1]
        lines[2:] = [plan.replace("\n", ";") + "\t" + line.split("\t")[1] for line in lines[2:]]
        text = "".join(line + "\n" for line in lines)
        with open(path, "w") as f:
            f.write(text + "sha256 " + hashlib.sha256(text.encode()).hexdigest() + "\n")

    def test_damaged_cache(self):
        self.train_net("train.autotune=on", run="cold")
        with open(self.cache()[0], "r+b") as f:
            f.seek(20)
            f.write(b"x")
        self.train_net("train.autotune=on", run="again")
        self.assertIn("is damaged", self.log("again"))
        self.assertIn("by the fastest plan", self.log("again"))
        # An entry that this machine cannot use is measured again.
        self.replace_plan(self.cache()[0], DIRECT + "conv no.such.layer winograd direct direct\n")
        self.train_net("train.autotune=on", run="unusable")
        self.assertIn("by the fastest plan", self.log("unusable"))

    def test_compare(self):
        """Plans differ though the configs are the same."""
        given, convs = self.path("given.txt"), [f"layer{i}.0.conv2" for i in (1, 2, 3)] + ["layer1.1.conv1"]
        plans = {"nhwc": NHWC, "direct": DIRECT, "one": DIRECT + f"conv {convs[0]} winograd direct direct\n",
                 "four": DIRECT + "".join(f"conv {c} winograd winograd winograd\n" for c in convs)}
        for name, plan in plans.items():
            self.write("given.txt", plan)
            self.train_net(f"train.plan={given}", run=name)
        same = self.run_ctrain("compare", "four", "four")
        self.assertNotIn("plan", same.out)
        for a, b, say in (("direct", "nhwc", "the layout is blocked in direct and nhwc in nhwc."),
                          ("one", "direct", "1 convolution has other methods (layer1.0.conv2)."),
                          ("nhwc", "four", "the layout is nhwc in nhwc and blocked in four, and 4 convolutions have other methods "
                                           "(layer1.0.conv2, layer2.0.conv2, layer3.0.conv2 and 1 more).")):
            r = self.run_ctrain("compare", a, b, expect=1)
            self.assertIn(f"The plans differ: {say} Therefore ", r.out)
            self.assertIn("The configs are the same.", r.out)
        j = self.run_ctrain("compare", "one", "four", "--json", expect=1).json()
        self.assertEqual((j["same_config"], j["same_plan"], j["plan_layouts"], j["plan_convs"]), (True, False, ["blocked", "blocked"], convs))
        self.assertTrue(self.run_ctrain("compare", "one", "one", "--json").json()["same_plan"])
        os.unlink(self.path("one", "plan.txt"))
        self.assertNotIn("same_plan", self.run_ctrain("compare", "one", "four", "--json", expect=1).json())
        self.write("four/plan.txt", "x")
        self.assert_says(self.run_ctrain("compare", "one", "four", expect=USAGE), r"four/plan\.txt:1: .* is expected")

    def test_wrong_files(self):
        self.assert_says(self.train_net("train.plan=/nonexistent/plan.txt", expect=DATA), r"train\.plan: .*/nonexistent/plan\.txt")
        bad = self.write("bad.txt", NHWC + "conv a fft direct direct\n")
        self.assert_says(self.train_net(f"train.plan={bad}", expect=USAGE), rf"train\.plan: {bad}:3: .* is expected", "hint: a plan is a file")
        other = self.write("other.txt", DIRECT + "conv a winograd direct direct\n")
        self.assert_says(self.train_net(f"train.plan={other}", expect=USAGE), "the model has no convolution a")


if __name__ == "__main__":
    main()
