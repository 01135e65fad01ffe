"""Training on the device "cuda", on the software GPU of the tests: the program, its engine and its kernels, with stand-ins for the CUDA
runtime and cuDNN (tests/soft_gpu). The engine "ref" on the CPU gives the expected results."""

import json
import os
import re
import unittest

from harness import COMM, CTRAIN, DEVICE, NUMERIC, OK, USAGE, Case, libc, main, own_mounts, read_text

MS_BIND = 4096
NO_MOUNTS = own_mounts() if __name__ == "__main__" else None
SOFT = os.path.join(os.path.dirname(os.path.abspath(CTRAIN)), "soft_cudart")
SETS = {
    "mlp": ("model.dropout=0.2", "train.ema=0.9"),
    "convnet": ("model.name=layers", "model.layers=[conv2d 4 kernel=3, batch_norm, relu, max_pool 2, dropout 0.2, linear 10]",
                "optim.clip_norm=0.5", "train.accumulate=2"),
    "residual": ("model.name=layers", "model.layers=[conv2d 8 kernel=3 stride=2 bias=false, batch_norm, relu name=r, "
                 "conv2d 8 kernel=3 padding=1 bias=false, batch_norm, add from=r, relu, global_avg_pool, linear 10]", "optim.name=adamw"),
    "lars": ("optim.name=lars", "optim.trust=0.01"),
    "lamb": ("optim.name=lamb", "optim.lr=0.01", "optim.weight_decay=0.01"),
}
# Four epochs: in the first two, programs for the smaller last step and for evaluation are compiled, so recordings are made again.
RECORDED = {
    "mlp": ("optim.name=adamw", "model.dropout=0.2", "train.ema=0.9"),
    "convnet": (*SETS["convnet"], "train.ema=0.9", "data.n_train=395"),
    "residual": (*SETS["residual"], "data.augment.mixup=0.4"),
    "bf16": ("precision=bf16", "train.ema=0.9"),
    "fp16": ("precision=fp16", "train.ema=0.9", "optim.name=adamw", f"optim.loss_scale={2.0 ** 22}", "optim.loss_scale_interval=3"),
}
MEMORY = """\
model: {name: layers, layers: [conv2d 16 kernel=3 padding=1 bias=false, batch_norm, relu, conv2d 16 kernel=3 padding=1, relu, max_pool 2, linear 10]}
data: {name: synthetic, n_train: 512, n_val: 16, shape: [3, 16, 16], on_device: off}
batch: {eval: 16}
optim: {lr: 0.05, momentum: 0.9}
train: {ema: 0.9}
launch: {procs: 1}
device: cuda
"""
SMALL = ("data.n_train=203", "batch.per_rank=32", "train.epochs=2", "log.every=1", "--procs", 1)


class Cuda(Case):
    always = ("train.autotune=off",)

    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(SOFT, "libctrain_cuda.so")):
            self.skipTest("built without CUDA's headers")

    def cuda(self, *sets, run, seed=1, **more):
        env = {"CTRAIN_CUDA_LIBS": SOFT, "SOFT_GPU_SEED": str(seed), **more.pop("env", {})}
        return self.train("device=cuda", *SMALL, *sets, run=run, env=env, **more)

    def losses(self, run):
        steps = {m["step"]: m["loss"] for m in self.metrics(run, "step")}
        return [steps[s] for s in sorted(steps)] + [m["loss"] for m in self.metrics(run, "eval")]

    def digest(self, run):
        return self.metrics(run, "end")[-1]["weights_digest"]

    def test_equals_ref(self):
        for name, sets in SETS.items():
            self.train("train.engine=ref", *SMALL, *sets, run=f"ref-{name}")
            digests = set()
            for seed in (1, 2, 3, 4, 5) if name in ("mlp", "convnet", "residual") else (1, 2, 3):
                with self.subTest(sets=name, seed=seed):
                    run = f"cuda-{name}-{seed}"
                    self.cuda(*sets, run=run, seed=seed)
                    digests.add(self.digest(run))
                    got, want = self.losses(run), self.losses(f"ref-{name}")
                    self.assertEqual(len(got), len(want))
                    for i, (x, y) in enumerate(zip(got, want)):
                        self.assertLess(abs(x - y), 1e-5 * abs(y), f"loss {i}: {x}, {y}")
            self.assertEqual(len(digests), 1, name)

    def test_predictions(self):
        """Batches are posted ahead while predictions are kept: each sample has its own prediction, whatever the order of the streams, and the
        host allocates nothing for each batch."""
        self.train("train.engine=ref", *SMALL, "batch.eval=16", run="ref")
        want = [row.split(",")[:3] for row in read_text(self.path("ref", "eval", "predictions.csv")).splitlines()]
        self.assertGreater(len(want), 200)
        for seed in (1, 2, 3):
            with self.subTest(seed=seed):
                self.cuda("batch.eval=16", run=f"cuda-{seed}", seed=seed)
                got = [row.split(",")[:3] for row in read_text(self.path(f"cuda-{seed}", "eval", "predictions.csv")).splitlines()]
                self.assertEqual(got, want)
        allocated = []
        for batch in (8, 16):
            log = self.path(f"log-{batch}")
            self.cuda(f"batch.eval={batch}", run=f"batch-{batch}", env={"SOFT_GPU_LOG": log})
            allocated.append(read_text(log).count("call cudaHostAlloc"))
        self.assertGreater(allocated[0], 0)
        self.assertEqual(allocated[0], allocated[1])

    def recorded(self, name, cuda_graph, run, seed=1, *sets, **more):
        """A run whose learning rate is another in each step."""
        self.cuda("train.epochs=4", "schedule.name=cosine", *RECORDED[name], *sets, f"train.cuda_graph={cuda_graph}", run=run, seed=seed, **more)
        return more.get("expect") or self.digest(run), self.losses(run), [m.get("grad_norm") for m in self.metrics(run, "step")]

    def test_recorded_equals_posted(self):
        """With 1, 2 and 3 steps in a graph, and with the self check of the recording, which leaves no trace."""
        for name in RECORDED:
            plain = self.recorded(name, "off", f"off-{name}")
            for seed, steps in ((1, 1), (2, 1), (3, 2), (4, 3)):
                with self.subTest(sets=name, seed=seed, steps=steps):
                    log = self.path(f"log-{name}-{seed}")
                    check = "on" if seed > 1 else "off"
                    self.assertEqual(self.recorded(name, "on", f"on-{name}-{seed}", seed, f"train.graph_steps={steps}", f"train.self_check={check}",
                                                   env={"SOFT_GPU_LOG": log}), plain)
                    self.assertIn("call cudaGraphLaunch", read_text(log))
                    self.assertEqual(self.compared(f"on-{name}-{seed}"), check == "on")

    def compared(self, run):
        return "computes the same" in read_text(self.path(run, "log", "rank-00000.log"))

    def test_recording_that_computes_something_else(self):
        """Without the self check, the run ends with other weights and no message."""
        wrong = {"SOFT_GPU_SKIP": "bias_backward"}
        digests = [self.recorded("residual", "on", f"off-{len(env)}", 1, "train.self_check=off", "train.graph_steps=1", env=env)[0] for env in ({}, wrong)]
        self.assertNotEqual(*digests)
        for name, skip, steps, says in (("residual", "bias_backward", 1, "of the gradient of [a-z.0-9]*bias"), ("mlp", "update.cu", 2, "of the gradient of"),
                                        ("mlp", "kernel apply (", 1, "of the weights of")):
            with self.subTest(skip=skip):
                r = self.cuda("train.epochs=4", *RECORDED[name], f"train.graph_steps={steps}", "train.self_check=on", run=f"{name}-{steps}",
                              env={"SOFT_GPU_SKIP": skip}, expect=DEVICE)
                self.assert_last_says(r, rf"the self check found a difference: element \d+ {says}.* after the recording of step \d+, and .* without a recording",
                                      "train.cuda_graph=off")

    def test_plan_with_wrong_results(self):
        """Engine 1 of the stand-in computes convolutions in fp32. Without the self check, the run ends with other weights and no message."""
        sets, wrong = (*SETS["residual"], "train.max_steps=2", "train.eval_every=0"), {"SOFT_CUDNN_WRONG": "1", "XDG_CACHE_HOME": self.path("cache")}
        digests = []
        for env in ({}, wrong):
            self.cuda(*sets, "train.self_check=auto", run=f"auto-{len(env)}", env=env)
            digests.append(self.digest(f"auto-{len(env)}"))
        self.assertNotEqual(*digests)
        for tune, hint in (("off", "train.autotune=on"), ("cached", "train.autotune=off .* or delete .*/cache/ctrain/plans/.*txt")):
            self.always = (f"train.autotune={tune}",)
            r = self.cuda(*sets, "train.self_check=on", run=tune, env=wrong, expect=DEVICE)
            self.assert_last_says(r, r"[a-z0-9]+: the self check found a wrong output: plan 1:2=[12] of cuDNN computes .* for element \d+ of .forward x=x:f32", hint)
        self.always = Cuda.always
        self.cuda(*sets, "train.self_check=on", run="right")
        self.assertRegex(read_text(self.path("right", "log", "rank-00000.log")), r"self check: the results of \d+ plans of cuDNN are right")
        self.assertEqual(self.digest("right"), digests[0])

    def test_short_run_is_not_compared(self):
        self.recorded("mlp", "on", "short", 1, "train.graph_steps=1")
        self.assertFalse(self.compared("short"))
        self.cuda("data.n_train=8", "batch.per_rank=1", "train.epochs=7", "train.graph_steps=1", "data.n_val=8", run="longer")
        self.assertTrue(self.compared("longer"))

    def test_recorded_and_resumed(self):
        for name, steps in (("mlp", 2), ("convnet", 1)):
            sets = ("checkpoint.every_steps=8", f"train.graph_steps={steps}")
            whole = self.recorded(name, "off", f"whole-{name}")[0]
            run = f"resumed-{name}"
            self.recorded(name, "on", run, 1, *sets, env={"CTRAIN_FAILPOINT": "step:19"}, expect=COMM)
            self.assertEqual(self.recorded(name, "on", run, 2, *sets)[0], whole)
            self.assertGreater(self.metrics(run, "run")[-1]["resumed_step"], 0)

    def test_loss_that_is_not_finite_when_recorded(self):
        """The learning rate grows until the loss is not finite, in a step whose work was recorded before."""
        sets = ("train.epochs=12", "optim.lr=100", "schedule.warmup_steps=100")
        said = []
        for graph in ("off", "on"):
            r = self.cuda(*sets, f"train.cuda_graph={graph}", run=f"nan-{graph}", expect=NUMERIC)
            said.append(re.search(r"the loss is \S+ at step (\d+).* not updated in this step", r.err))
        self.assertEqual(said[0][0], said[1][0])
        self.assertGreater(int(said[0][1]), 16)

    def test_bench(self):
        """Recorded steps do not allocate memory, and the times of the nodes are measured in steps without a recording."""
        for steps in (1, 4):
            with self.subTest(steps=steps):
                j = self.run_ctrain("bench", "step", self.config(), "--steps", 10, "device=cuda", *SMALL, *SETS["residual"], "data.n_train=640",
                                    f"train.graph_steps={steps}", "--json", "--trace", self.path("trace.json"), env={"CTRAIN_CUDA_LIBS": SOFT}).json()
                self.assertEqual((j["steps"], j["allocations"]), (10 if steps == 1 else 12, 0))
                for key in ("step_ms_median", "forward_ms", "backward_ms", "optim_ms", "images_per_sec"):
                    self.assertGreater(j[key], 0, key)
                for node in j["nodes"]:
                    if node["op"] in ("conv2d", "linear", "batch_norm"):
                        self.assertGreater(node["forward_ms"], 0, node)
                        self.assertGreater(node["backward_ms"], 0, node)
                with open(self.path("trace.json"), encoding="utf-8") as f:
                    spans = [e for e in json.load(f)["traceEvents"] if e["ph"] == "X"]
                names = {n["name"] for n in j["nodes"] if n["op"] in ("conv2d", "linear")}
                for k in (1, 2, 3):
                    step = next(e for e in spans if e["name"] == f"step {k}")
                    forward = {e["name"] for e in spans if e["cat"] == "forward" and e["args"]["step"] == k}
                    self.assertLessEqual(names, forward)
                    for e in spans:
                        if e["cat"] in ("forward", "backward") and e["args"]["step"] == k:
                            self.assertGreaterEqual(e["ts"], step["ts"] - 0.002)

    def test_precisions(self):
        """Other results than fp32's, but close to them."""
        for name in ("mlp", "residual"):
            sets = (*SETS[name], "train.epochs=1")
            self.train("train.engine=ref", *SMALL, *sets, run=f"ref-{name}")
            self.cuda(*sets, run=f"fp32-{name}")
            for precision, tolerance in (("tf32", 0.005), ("fp16", 0.005), ("bf16", 0.03)):
                with self.subTest(sets=name, precision=precision):
                    run = f"{precision}-{name}"
                    self.cuda(*sets, f"precision={precision}", run=run)
                    self.assertNotEqual(self.digest(run), self.digest(f"fp32-{name}"))
                    for x, y in zip(self.losses(run), self.losses(f"ref-{name}")):
                        self.assertLess(abs(x - y), tolerance * abs(y))

    def test_automatic_precision(self):
        r = self.cuda("precision=auto", "train.epochs=1", run="auto")
        self.assertIn("  format  bf16 (auto: the Tensor Cores of GPUs compute in bf16)", r.out)
        self.cuda("precision=bf16", "train.epochs=1", run="bf16")
        self.assertEqual(self.digest("auto"), self.digest("bf16"))
        r = self.cuda("train.epochs=1", run="fp32")
        self.assertIn("  format  fp32 (without Tensor Cores; precision=auto is faster)", r.out)

    def test_killed_and_resumed(self):
        sets = (*SETS["convnet"], "checkpoint.every_steps=2")
        self.cuda(*sets, run="whole")
        self.cuda(*sets, run="resumed", env={"CTRAIN_FAILPOINT": "step:5"}, expect=COMM)
        self.cuda(*sets, run="resumed")
        self.assertGreater(self.metrics("resumed", "run")[-1]["resumed_step"], 0)
        self.assertEqual(self.digest("resumed"), self.digest("whole"))

    def scales(self, run):
        return [(m["loss_scale"], m["skipped_updates"]) for m in self.metrics(run, "step")]

    def state(self, run):
        return json.loads(read_text(self.path(run, "checkpoints", "last", "state.json")))

    def test_overflow_skips_one_step(self):
        """Every step has the same batch, so with twice the largest scale that does not overflow, only the first update is skipped."""
        sets = (*SETS["residual"], "precision=fp16", "data.n_train=32", "train.eval_every=0")
        self.cuda(*sets, f"optim.loss_scale={2.0 ** 30}", "train.epochs=30", run="search")
        limit = min(scale for scale, _ in self.scales("search"))
        self.cuda(*sets, f"optim.loss_scale={2 * limit}", "train.max_steps=1", run="skipped")
        self.cuda(*sets, f"optim.loss_scale={4 * limit}", "train.max_steps=2", run="skipped twice")
        self.assertEqual(self.scales("skipped"), [(limit, 1)])
        self.assertEqual(self.scales("skipped twice"), [(2 * limit, 1), (limit, 2)])
        self.assertEqual(self.digest("skipped"), self.digest("skipped twice"))  # both have the initial weights

        r = self.cuda(*sets, f"optim.loss_scale={2 * limit}", "train.epochs=8", run="overflow")
        self.assertEqual(self.scales("overflow"), [(limit, 1)] * 8)
        self.assertIn(f"step 1  the gradient is not finite: its update was skipped (1 so far), the loss scale is now {limit:g}\n", r.out)
        self.assertEqual(r.out.count("was skipped"), 1)
        self.assertNotEqual(self.digest("overflow"), self.digest("skipped"))
        losses = [m["loss"] for m in self.metrics("overflow", "step")]
        self.assertLess(abs(losses[1] - losses[0]), 1e-3)  # in other sums, because the order of the rows differs
        self.assertLess(losses[-1], 0.9 * losses[0])
        self.assertEqual([m.get("grad_norm") is None for m in self.metrics("overflow", "step")], [True] + [False] * 7)

    def test_scale_grows_and_is_resumed(self):
        sets = (*SETS["residual"], "precision=fp16", f"optim.loss_scale={2.0 ** 20}", "optim.loss_scale_interval=2", "train.ema=0.9",
                "checkpoint.every_steps=2", "checkpoint.background=false")
        self.cuda(*sets, run="whole")
        scales = [s for s, _ in self.scales("whole")]
        self.assertGreater(max(b / a for a, b in zip(scales, scales[1:])), 1)
        self.assertLess(min(b / a for a, b in zip(scales, scales[1:])), 1)
        for step in (3, 6):
            self.cuda(*sets, run=f"resumed-{step}", env={"CTRAIN_FAILPOINT": f"step:{step}"}, expect=COMM)
            self.cuda(*sets, run=f"resumed-{step}")
            self.assertGreater(self.metrics(f"resumed-{step}", "run")[-1]["resumed_step"], 0)
            self.assertEqual(self.digest(f"resumed-{step}"), self.digest("whole"))
            self.assertEqual(self.scales(f"resumed-{step}"), self.scales("whole"))
            for key in ("loss_scale", "loss_scale_steps", "skipped_updates", "optim_steps"):
                self.assertEqual(self.state(f"resumed-{step}")[key], self.state("whole")[key])

    def test_scale_that_falls_too_low(self):
        """Images without contrast make the gradients of batch norms infinite at any scale; the loss is that of a guess."""
        layers = "conv2d 8 kernel=3, batch_norm eps=1e-14, " * 3
        r = self.cuda("model.name=layers", f"model.layers=[{layers} global_avg_pool, linear 10]", "data.mean=[0]", "data.std=[1e6]", "precision=fp16", "optim.loss_scale=64", "data.n_train=320",
                      "train.epochs=20", run="low", expect=NUMERIC)
        self.assertEqual(self.scales("low"), [(2.0 ** (5 - i), i + 1) for i in range(19)])
        self.assertRegex(r.err, r"the gradient is not finite at step 20 \(epoch [0-9]+\), even with a loss scale of 0\.00012")
        self.assertIn("use precision=bf16", r.err)
        # The gradients of the first layer are too large, at the lowest scale.
        self.assertRegex(r.err, r"the first values that are not finite are in the gradient of \S+: [0-9]+ of [0-9]+ values")

    def test_loss_that_is_not_finite_in_fp16(self):
        """It ends the run, whatever the gradients are; overflow of the gradients alone does not."""
        r = self.cuda(*SETS["mlp"], "precision=fp16", "optim.lr=1000", run="nan", expect=NUMERIC)
        step = int(re.search(r"the loss is .* at step ([0-9]+) .*; the weights were not updated", r.err)[1])
        steps = self.metrics("nan", "step")
        self.assertEqual([m["step"] for m in steps], list(range(1, step)))
        self.assertNotIn(f"step {step}  the gradient is not finite", r.out)

    def test_loss_that_is_not_finite(self):
        said = []
        for train in (self.cuda, lambda *sets, **more: self.train("train.engine=ref", *SMALL, *sets, **more)):
            r = train(*SETS["mlp"], "optim.lr=1000", run=f"nan-{len(said)}", expect=NUMERIC)
            said.append(re.search(r"the loss is .* not updated in this step; the first values that are not finite are in the output of layer \S+", r.err)[0])
        self.assertEqual(said[0], said[1])


class Devices(Case):
    """Which device trains, and why."""

    always = ("train.autotune=off",)

    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(SOFT, "libctrain_cuda.so")):
            self.skipTest("built without CUDA's headers")

    def cuda(self, *sets, run="run", env=None, **more):
        return self.train("train.max_steps=2", "launch.threads=1", *sets, run=run, env={"CTRAIN_CUDA_LIBS": SOFT, **(env or {})}, **more)

    def engine(self, run="run"):
        return self.metrics(run, "run")[-1]["engine"]

    def refused(self, text, *sets, env=None, expect=DEVICE):
        r = self.cuda(*sets, run="refused", env=env, expect=expect)
        self.assertIn(text, r.err)
        self.assertFalse(os.path.exists(self.path("refused", "metrics.jsonl")))
        return r

    def test_no_device(self):
        """One sentence and its hint, before any rank starts."""
        for text, env in (("no cuda device: no NVIDIA driver is installed", {"SOFT_GPU_DRIVER": "0"}),
                          ("no cuda device: the NVIDIA driver supports CUDA up to 12.8, but the CUDA runtime is 13.", {"SOFT_GPU_DRIVER": "12080"}),
                          ("on data-center GPUs, the package cuda-compat-13-0 may help", {"SOFT_GPU_DRIVER": "12080"}),
                          ("no cuda device: the NVIDIA driver and libcuda.so.1 do not belong together", {"SOFT_GPU_FAULT": "cudaGetDeviceCount:0:803"}),
                          ("no cuda device: no GPU is visible (CUDA_VISIBLE_DEVICES=)", {"CUDA_VISIBLE_DEVICES": ""}),
                          ("no cuda device: GPU 0 has compute capability 7.5: ctrain needs a GPU of compute capability 8.0 (A100, RTX 30) or newer",
                           {"SOFT_GPU_OLD": "1"}),
                          ("no cuda device: the NVIDIA driver finds no GPU", {"SOFT_GPU_DEVICES": "0"})):
            with self.subTest(text=text):
                r = self.refused(text, "device=cuda", env=env)
                self.assertEqual(len(r.err.splitlines()), 2, r.err)
                self.assertIn("hint: available devices: cpu (1)", r.err)

    def test_auto(self):
        r = self.cuda("launch.procs=1", run="gpu")
        self.assertIn("cuDNN", self.engine("gpu"))
        self.assertIn("device  cuda:0: Software GPU (sm_90)", r.err + r.out)
        r = self.cuda(run="cpu", env={"SOFT_GPU_DRIVER": "0"})
        self.assertNotIn("cuDNN", self.engine("cpu"))
        lines = [line for line in (r.err + r.out).splitlines() if "no NVIDIA driver is installed" in line and "device  CPU" in line]
        self.assertEqual(len(lines), 1, r.describe())
        r = self.cuda("launch.procs=1", run="old", env={"SOFT_GPU_OLD": "1"})
        self.assertNotIn("cuDNN", self.engine("old"))
        self.assertIn("GPU 0 has compute capability 7.5: ctrain needs a GPU of compute capability 8.0", r.err + r.out)
        r = self.cuda("launch.procs=2", run="ranks")
        self.assertNotIn("cuDNN", self.engine("ranks"))
        self.assertEqual(self.metrics("ranks", "run")[-1]["world_size"], 2)
        self.assertIn("device=auto trains on the CPU: 2 ranks would have to share 1 GPU (launch.procs=1 uses the GPU)", r.err)
        self.cuda("launch.procs=2", run="gpus", env={"SOFT_GPU_DEVICES": "2"})
        self.assertIn("cuDNN", self.engine("gpus"))
        self.cuda("train.engine=ref", "launch.procs=1", run="ref")
        self.assertNotIn("cuDNN", self.engine("ref"))

    def test_nothing_is_loaded(self):
        """Without a driver, `device: auto` loads nothing of CUDA, so that ctrain starts as fast as a build without CUDA."""
        if any(os.path.exists(p) for p in ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia/version")):
            self.skipTest("this machine has an NVIDIA driver")
        env = {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": self.path("loaded")}
        self.train("train.max_steps=1", "launch.procs=2", env=env)
        logs = [read_text(self.path(name)) for name in os.listdir(self.tmp) if name.startswith("loaded.")]
        self.assertGreaterEqual(len(logs), 3)  # the launcher and two ranks
        for log in logs:
            self.assertIn("find library=", log)
            self.assertNotRegex(log, r"cuda|cudnn|nvidia")

    def test_memory(self):
        """Exhausted memory: what it is used for, and a batch that fits."""
        config = self.config(MEMORY, "memory.yaml")
        env = {"SOFT_GPU_MEMORY": "16000000"}
        r = self.cuda("batch.per_rank=256", config=config, run="large", env=env, expect=DEVICE)
        self.assertRegex(r.err, r"allocating \d+\.\d MiB of GPU memory for [a-z ]+ \(GPU 0 has \d+\.\d of 15\.3 MiB free; this process uses "
                         r".*0\.1 MiB for EMA weights, 0\.1 MiB for optimizer states, 0\.1 MiB for gradients, .*0\.1 MiB for parameters.*\): "
                         r"CUDA: cudaMalloc: cudaErrorMemoryAllocation: out of memory")
        fits = int(re.search(r"about (\d+) of these 256 rows would fit", r.err)[1])
        self.cuda(f"batch.per_rank={fits}", config=config, run="fits", env=env)
        r = self.cuda(f"batch.per_rank={fits * 5 // 4}", config=config, run="too-large", env=env, expect=DEVICE)
        r = self.cuda("batch.per_rank=16", "batch.eval=512", "data.n_val=512", config=config, run="eval", env=env, expect=DEVICE)
        self.assertRegex(r.err, r"about \d+ of these 512 rows would fit")
        self.cuda("batch.per_rank=1", config=config, run="none", env={"SOFT_GPU_MEMORY": "150000"}, expect=DEVICE)

    def test_info(self):
        j = self.run_ctrain("info", "--json", env={"CTRAIN_CUDA_LIBS": SOFT, "SOFT_GPU_DEVICES": "2"}).json()["cuda"]
        self.assertEqual([d["bus"] for d in j["devices"]], ["0000:01:00.0", "0000:02:00.0"])
        self.assertEqual(len({d["uuid"] for d in j["devices"]}), 2)
        libraries = {x["name"]: x for x in j["libraries"]}
        self.assertEqual(set(libraries), {"libctrain_cuda.so", "libcudart.so.13", "libcudnn.so.9", "driver", "libnccl.so.2"})
        for name, x in libraries.items():
            self.assertRegex(x["version"], r"\d+\.\d+")
            if name != "driver":
                self.assertEqual(x["path"], os.path.join(os.path.realpath(SOFT), os.path.basename(os.path.realpath(os.path.join(SOFT, name)))))
        r = self.run_ctrain("info", env={"CTRAIN_CUDA_LIBS": SOFT, "SOFT_GPU_DRIVER": "0"})
        self.assertEqual(len(re.findall(r"cuda +no: no NVIDIA driver is installed", r.out)), 2, r.out)  # the device and the engine
        self.assertRegex(r.out, r"driver: not installed")
        r = self.run_ctrain("info", env={"CTRAIN_CUDA_LIBS": SOFT, "SOFT_GPU_FAULT": "ncclGetVersion:0:2"})
        self.assertIn("libnccl.so.2: not available: it does not report its version", r.out)

    def test_row_15_auto_procs(self):
        """launch.procs=auto is one rank for each GPU."""
        r = self.cuda("device=cuda", "launch.procs=auto", run="one")
        self.assertEqual(self.metrics("one", "run")[-1]["world_size"], 1)
        self.assertIn("1 rank, one for each GPU", r.err)
        r = self.cuda("device=cuda", "launch.procs=auto", run="two", env={"SOFT_GPU_DEVICES": "2"})
        self.assertEqual(self.metrics("two", "run")[-1]["world_size"], 2)
        self.assertIn("2 ranks, one for each GPU", r.err)

    @unittest.skipIf(NO_MOUNTS, NO_MOUNTS)
    def test_row_117_T12_lost_gpu(self):
        """The driver has two of the three GPUs on the bus: a run with launch.procs=auto uses two, and three ranks are refused."""
        for i in (1, 2, 3):
            self.write(f"devices/0000:0{i}:00.0/vendor", "0x10de\n")
            self.write(f"devices/0000:0{i}:00.0/class", "0x030200\n")
            if i < 3:
                os.makedirs(self.path("driver/nvidia/gpus", f"0000:0{i}:00.0"))
        for name, where in (("devices", "/sys/bus/pci/devices"), ("driver", "/proc/driver")):
            libc("mount", self.path(name), where, None, MS_BIND, None)
            self.addCleanup(libc, "umount2", where, 0)
        env = {"SOFT_GPU_DEVICES": "2"}
        r = self.cuda("device=cuda", "launch.procs=auto", run="two", env=env)
        self.assert_says(r, r"the driver has 2 of the 3 GPUs on the PCI bus; lost: 0000:03:00.0 \[lost-gpu\].*--procs 2")
        self.assertEqual(self.metrics("two", "run")[-1]["world_size"], 2)
        r = self.refused("3 ranks would have to share 2 GPUs", "device=cuda", "launch.procs=3", env=env)
        self.assert_says(r, "lost: 0000:03:00.0")

    def test_row_13_and_14_index(self):
        three = {"SOFT_GPU_DEVICES": "3"}
        for sets, index in ((("device=cuda:2",), 2), (("device=cuda", "launch.devices=1"), 1), (("launch.devices=2,0", "launch.procs=2"), 2)):
            with self.subTest(sets=sets):
                r = self.cuda("launch.procs=1", *sets, run="-".join(sets), env=three)
                self.assertIn(f"device  cuda:{index}:", r.err + r.out)
        r = self.cuda("device=cuda:1", "launch.procs=1", run="visible", env={**three, "CUDA_VISIBLE_DEVICES": "0,2"})
        self.assertIn("device  cuda:1:", r.err + r.out)
        self.refused("no cuda device 3 (valid indexes: 0 to 2)", "device=cuda:3", env=three)
        self.refused("no cuda device 2 (valid indexes: 0 to 1)", "device=cuda:2", env={**three, "CUDA_VISIBLE_DEVICES": "0,2"})
        self.refused("launch.devices=1 and device=cuda:0 both select GPUs", "device=cuda:0", "launch.devices=1", env=three, expect=USAGE)
        self.refused('"cuda:x" is unknown', "device=cuda:x", env=three, expect=USAGE)
        self.refused("would compute on the CPU: no NVIDIA driver is installed", "launch.devices=0", env={"SOFT_GPU_DRIVER": "0"}, expect=USAGE)

    def test_one_old_device(self):
        """Of two GPUs, the second is too old: it cannot be opened, the first one can."""
        env = {"SOFT_GPU_DEVICES": "2", "SOFT_GPU_OLD": "1"}
        r = self.refused("opening CUDA device 1: it has compute capability 7.5", "device=cuda:1", "launch.procs=1", env=env)
        self.assertIn("hint: ctrain needs a GPU of compute capability 8.0 (A100, RTX 30) or newer", r.err)
        self.refused("opening CUDA device 1: it has compute capability 7.5", "device=cuda", "launch.devices=1", "launch.procs=1", env=env)
        r = self.cuda("launch.procs=1", run="new", env=env)
        self.assertIn("device  cuda:0:", r.err + r.out)
        self.assertIn("skipped cuda:1: it has compute capability 7.5 (ctrain needs a GPU of compute capability 8.0", r.err + r.out)
        # The first one is too old.
        env["CUDA_VISIBLE_DEVICES"] = "1,0"
        for i, device in enumerate(("auto", "cuda")):
            r = self.cuda("device=" + device, "launch.procs=auto", run=f"second{i}", env=env)
            self.assertIn("device  cuda:1:", r.err + r.out)
            self.assertIn("skipped cuda:0: it has compute capability 7.5", r.err + r.out)
            self.assertEqual(self.metrics(f"second{i}", "run")[-1]["world_size"], 1)
        r = self.cuda("launch.procs=2", run="two", env=env)
        self.assertIn("device=auto trains on the CPU: 2 ranks would have to share 1 GPU", r.err)
        r = self.run_ctrain("info", env={**env, "CTRAIN_CUDA_LIBS": SOFT})
        self.assertRegex(r.out, r"GPUs +cuda:0 .*; cannot be used: it has compute capability 7.5\n +cuda:1 .*PCI [0-9:.]+\n")

    def test_row_5_shared(self):
        """Two ranks on one GPU are refused, also if each of them sees only one, unless the list of devices requests it."""
        self.refused("2 ranks would have to share 1 GPU", "device=cuda", "launch.procs=2")
        self.cuda("device=cuda", "launch.procs=2", "launch.devices=0,0", run="on purpose")
        self.assertEqual(self.metrics("on purpose", "run")[-1]["world_size"], 2)
        env = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.free_port()), "CTRAIN_CUDA_LIBS": SOFT,
               "SOFT_GPU_DEVICES": "2"}

        def ranks(visible, run):
            return [self.start_training("device=cuda", "launch.procs=auto", "launch.threads=1", run=run,
                                        env={**env, "RANK": str(i), "LOCAL_RANK": str(i), "CUDA_VISIBLE_DEVICES": v})
                    for i, v in enumerate(visible)]
        ended = [p.wait() for p in ranks(("1", "1"), "same")]
        self.assertIn(DEVICE, [r.code for r in ended])
        self.assertRegex("".join(r.err for r in ended), r"rank [01] would share GPU 0 \(GPU-[0-9a-f-]{36}\) with rank [01]")
        for p in ranks(("0", "1"), "different"):
            self.assert_code(p.wait(), OK)


if __name__ == "__main__":
    main()
