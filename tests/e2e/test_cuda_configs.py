"""The configurations of configs/ on the device "cuda", shortened: 20 steps on the software GPU have the losses of the
engine "ref". ResNet-50 takes 3 steps; CTRAIN_E2E_RESNET50_STEPS=20 sets another number (20 steps take minutes).

Learning rates are small, and the seed of mnist_ddp is one with which no rounding error decides which of two values a max pool selects.
Rounding errors grow from step to step: with the learning rates of the configurations, the losses of "onednn" and "ref" differ as
much from one another as those of "cuda" and "ref"."""

import os
import unittest

from harness import CTRAIN, SOURCE, Case, main, shared

SOFT = os.path.join(os.path.dirname(os.path.abspath(CTRAIN)), "soft_cudart")
RESNET50_STEPS = int(os.environ.get("CTRAIN_E2E_RESNET50_STEPS", "3"))
COMMON = ("launch.procs=1", "launch.threads=1", "data.val=none", "train.max_steps=20", "log.every=1")


class Configs(Case):
    always = ("train.autotune=off",)

    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(SOFT, "libctrain_cuda.so")):
            self.skipTest("built without CUDA's headers")

    def losses(self, config, *sets, run, **more):
        self.train(*COMMON, *sets, config=config, run=run, timeout=200, **more)
        return [m["loss"] for m in self.metrics(run, "step")]

    def compare(self, config, *sets):
        want = self.losses(config, "train.engine=ref", *sets, run="ref")
        got = self.losses(config, "device=cuda", *sets, run="cuda", env={"CTRAIN_CUDA_LIBS": SOFT})
        self.assertEqual(len(got), len(want))
        for step, (x, y) in enumerate(zip(got, want), 1):
            self.assertLess(abs(x - y), 1e-5 * abs(y), f"step {step}: {x}, {y}")
        # The updates matter: without them, the losses are others.
        still = self.losses(config, "train.engine=onednn", *sets, "optim.lr=1e-12", run="still")
        self.assertGreater(abs(still[-1] - want[-1]), 1e-3 * want[-1])

    def named(self, name):
        return os.path.join(SOURCE, "configs", name)

    @unittest.skipUnless(shared("data", "mnist"), "no ../shared/data/mnist and no CTRAIN_SHARED")
    def test_mnist_ddp(self):
        self.compare(self.named("mnist_ddp.yaml"), "data.dir=" + shared("data", "mnist"), "batch.per_rank=16", "optim.lr=0.003",
                     "run.seed=4")

    @unittest.skipUnless(shared("data", "cifar-10-batches-bin"), "no ../shared/data/cifar-10-batches-bin and no CTRAIN_SHARED")
    def test_resnet20_cifar10(self):
        self.compare(self.named("resnet20_cifar10.yaml"), "data.dir=" + shared("data", "cifar-10-batches-bin"), "batch.global=8",
                     "optim.lr=2e-5")

    def test_resnet50(self):
        config = self.config("""\
model: {name: resnet50, zero_gamma: true}
data: {name: synthetic, shape: [3, 16, 16], classes: 10}
batch: {per_rank: 4}
optim: {lr: 0.001, momentum: 0.9, nesterov: true, weight_decay: 1e-4, decay_norm_bias: false}
""", name="resnet50.yaml")
        self.compare(config, f"train.max_steps={RESNET50_STEPS}")


if __name__ == "__main__":
    main()
