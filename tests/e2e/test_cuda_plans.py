"""Training on the software GPU, which asks the real cuDNN about each graph: what it rejects for an H100 or an H200 is rejected, and the engines,
their notes and the sizes of workspaces are its own. Neither a GPU nor a driver is needed. CTRAIN_E2E_CUDNN: the path of libcudnn.so.9."""

import json
import os
import random

from harness import CTRAIN, SOURCE, USAGE, Case, main, read_text

SOFT = os.path.join(os.path.dirname(os.path.abspath(CTRAIN)), "soft_cudart")
REAL = os.environ.get("CTRAIN_E2E_CUDNN", "")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
# Training, and evaluation, which has other graphs.
SETS = ("launch.procs=1", "launch.threads=1", "train.max_steps=1", "log.every=1", "checkpoint.best=false", "device=cuda")
RESNET50 = """\
model: {name: resnet50, stem: imagenet}
data: {name: synthetic, n_train: 8, n_val: 2, shape: [3, 32, 32], classes: 1000}
batch: {per_rank: 2, eval: 2}
"""


class Plans(Case):
    always = ("train.autotune=off",)

    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(SOFT, "libctrain_cuda.so")):
            self.skipTest("built without CUDA's headers")
        if not os.path.exists(REAL):
            self.skipTest("libcudnn.so.9 is not installed")

    def ask(self, device, config, *sets, run, **more):
        env = {"CTRAIN_CUDA_LIBS": SOFT, "SOFT_CUDNN_REAL": REAL, "SOFT_CUDNN_DEVICE": device}
        return self.train(*SETS, *sets, config=config, run=run, env=env, timeout=120, **more)

    def device(self, name):
        return os.path.join(SOURCE, "tests", "nn", "cuda", "devices", name + ".json")

    def check(self, config, *sets, precisions=None):
        for device, some in (precisions or {"h100": PRECISIONS, "h200": PRECISIONS}).items():
            for precision in some:
                with self.subTest(device=device, precision=precision):
                    run = f"{device}-{precision}"
                    self.assert_quiet(self.ask(self.device(device), config, *sets, f"precision={precision}", run=run))
                    self.assertEqual(len(self.metrics(run, "step")) + len(self.metrics(run, "eval")), 2)

    def named(self, name):
        return os.path.join(SOURCE, "configs", name)

    def test_smoke(self):
        self.check(self.named("smoke.yaml"), "data.n_val=32")

    def test_mnist_ddp(self):
        self.run_ctrain("data", "digits", "--out", self.path("digits"), "--train", 128, "--test", 64)
        self.check(self.named("mnist_ddp.yaml"), "data.dir=" + self.path("digits"))

    def test_resnet20_cifar10(self):
        r = random.Random(1)
        for name in ("data_batch_1.bin", "test_batch.bin"):
            self.write("cifar/" + name, b"".join(bytes([n % 10]) + r.randbytes(3072) for n in range(16)))
        self.check(self.named("resnet20_cifar10.yaml"), "data.dir=" + self.path("cifar"), "batch.global=8")

    def test_resnet50(self):
        """Half of the precisions on each GPU, because a step takes seconds; test_cuda_plan_table asks about the others."""
        self.check(self.config(RESNET50, "resnet50.yaml"), precisions={"h100": ("fp32", "bf16"), "h200": ("tf32", "fp16")})

    def test_no_plan(self):
        """The answers are those of cuDNN: it has no engines for bf16 on GPUs of compute capability 7.5."""
        old = json.loads(read_text(self.device("h200")))
        old["deviceVer"] = 750
        r = self.ask(json.dumps(old), self.named("smoke.yaml"), "precision=bf16", run="old", expect=USAGE)
        self.assertRegex(r.err, r'ctrain: error: layer1\.[01]: cuDNN has no usable plan for "forward x=x:bf16')


if __name__ == "__main__":
    main()
