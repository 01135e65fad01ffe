"""Training on the device "cuda", on the software GPU of the tests: the program, its engine and its kernels, with stand-ins for the CUDA
runtime and cuDNN (tests/soft_gpu). The engine "ref" on the CPU gives the expected results."""

import os
import re

from harness import COMM, CTRAIN, NUMERIC, USAGE, Case, main

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
SMALL = ("data.n_train=203", "batch.per_rank=32", "train.epochs=2", "log.every=1", "--procs", 1)


class Cuda(Case):
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
            for seed in (1, 2, 3):
                with self.subTest(sets=name, seed=seed):
                    run = f"cuda-{name}-{seed}"
                    self.cuda(*sets, run=run, seed=seed)
                    digests.add(self.digest(run))
                    got, want = self.losses(run), self.losses(f"ref-{name}")
                    self.assertEqual(len(got), len(want))
                    for i, (x, y) in enumerate(zip(got, want)):
                        self.assertLess(abs(x - y), 1e-5 * abs(y), f"loss {i}: {x}, {y}")
            self.assertEqual(len(digests), 1, name)

    def test_precisions(self):
        """Other results than fp32's, but close to them."""
        for name in ("mlp", "residual"):
            sets = (*SETS[name], "train.epochs=1")
            self.train("train.engine=ref", *SMALL, *sets, run=f"ref-{name}")
            self.cuda(*sets, run=f"fp32-{name}")
            for precision, tolerance in (("tf32", 0.005), ("bf16", 0.03)):
                with self.subTest(sets=name, precision=precision):
                    run = f"{precision}-{name}"
                    self.cuda(*sets, f"precision={precision}", run=run)
                    self.assertNotEqual(self.digest(run), self.digest(f"fp32-{name}"))
                    for x, y in zip(self.losses(run), self.losses(f"ref-{name}")):
                        self.assertLess(abs(x - y), tolerance * abs(y))

    def test_killed_and_resumed(self):
        sets = (*SETS["convnet"], "checkpoint.every_steps=2")
        self.cuda(*sets, run="whole")
        self.cuda(*sets, run="resumed", env={"CTRAIN_FAILPOINT": "step:5"}, expect=COMM)
        self.cuda(*sets, run="resumed")
        self.assertGreater(self.metrics("resumed", "run")[-1]["resumed_step"], 0)
        self.assertEqual(self.digest("resumed"), self.digest("whole"))

    def test_loss_that_is_not_finite(self):
        said = []
        for train in (self.cuda, lambda *sets, **more: self.train("train.engine=ref", *SMALL, *sets, **more)):
            r = train(*SETS["mlp"], "optim.lr=1000", run=f"nan-{len(said)}", expect=NUMERIC)
            said.append(re.search(r"the loss is .* not updated in this step", r.err)[0])
        self.assertEqual(said[0], said[1])

    def test_without_a_driver(self):
        r = self.cuda(run="none", env={"SOFT_GPU_DRIVER": "0"}, expect=USAGE)
        self.assertIn("no cuda device: no NVIDIA driver is installed", r.err)
        r = self.cuda(run="none", env={"CUDA_VISIBLE_DEVICES": ""}, expect=USAGE)
        self.assertIn("CUDA_VISIBLE_DEVICES", r.err)


if __name__ == "__main__":
    main()
