"""The configurations of configs/ on the device "cuda", shortened, and a ResNet of 50 layers with an eighth of the channels, on the software
GPU. In fp32, the losses of 20 steps are those of the engine "ref" within 1e-5; other execution orders of the streams, with and without
recorded steps, give the same bits. In tf32, fp16 and bf16, the losses and the norms of the gradients agree with those of "ref" within
TOLERANCES. CTRAIN_E2E_REF: the program that computes the losses of "ref" and "onednn" (default: the program to test).

Rounding errors grow from step to step, because they decide whether values next to 0 pass a ReLU and which of two values a max pool selects.
With arbitrary settings, the losses of "onednn" and "ref" differ as much from one another as those of "cuda" and "ref". Therefore, residual
blocks begin as identities, and learning rates and seeds are such that fp32 makes these decisions as "ref" does."""

import json
import os
import random
import struct

from harness import CTRAIN, SOURCE, Case, main, read_text

SOFT = os.path.join(os.path.dirname(os.path.abspath(CTRAIN)), "soft_cudart")
REF = os.environ.get("CTRAIN_E2E_REF", CTRAIN)
COMMON = ("launch.procs=1", "launch.threads=1", "data.val=none", "log.every=1")
N_STEPS = 20  # in fp32
# Numbers of steps in the other precisions, and the largest relative differences from "ref" in fp32: of the losses, of the norms of the
# gradients, and of the norms on average over the steps. The tolerances are twice the differences that were measured. Errors of correct
# rounding cancel in the average of many steps. With smoke and mnist_ddp, numbers that are cut off instead of rounded exceed the tolerances.
TOLERANCES = {
    "smoke": (6, {"tf32": (0.0002, 0.0003, 0.0001), "fp16": (0.00012, 0.0008, 0.00015), "bf16": (0.001, 0.0014, 0.0003)}),
    "mnist_ddp": (20, {"tf32": (0.002, 0.004, 0.0003), "fp16": (0.0017, 0.005, 0.0003), "bf16": (0.0055, 0.01, 0.0014)}),
    "resnet20_cifar10": (6, {"tf32": (0.0001, 0.0008, 0.0003), "fp16": (0.00015, 0.0011, 0.0003), "bf16": (0.0005, 0.004, 0.0013)}),
    "resnet50": (4, {"tf32": (0.0006, 0.011, 0.0046), "fp16": (0.0005, 0.005, 0.0006), "bf16": (0.0013, 0.014, 0.0013)}),
}


def resnet50(width):
    """The layers of a ResNet-50 whose 3x3 convolutions begin with `width` channels instead of 64, and the names and sizes of the last
    batch norms of its blocks."""
    layers = [f"conv2d {width} kernel=7 stride=2 padding=3 bias=false", "batch_norm", "relu", "max_pool 3 stride=2 padding=1 name=block0"]
    last, channels = {}, width
    for stage, n_blocks in enumerate((3, 4, 6, 3)):
        inner = width << stage
        for k in range(n_blocks):
            n, stride = len(last), 2 if stage and not k else 1
            layers += [f"conv2d {inner} kernel=1 bias=false", "batch_norm", "relu",
                       f"conv2d {inner} kernel=3 stride={stride} padding=1 bias=false", "batch_norm", "relu",
                       f"conv2d {4 * inner} kernel=1 bias=false", f"batch_norm name=branch{n}"]
            if channels != 4 * inner:
                layers += [f"conv2d {4 * inner} kernel=1 stride={stride} bias=false from=block{n}", "batch_norm", f"add from=branch{n}"]
            else:
                layers.append(f"add from=block{n}")
            layers.append(f"relu name=block{n + 1}")
            channels = 4 * inner
            last[f"branch{n}"] = channels
    return layers + ["global_avg_pool", "linear 10"], last


class Configs(Case):
    always = ("train.autotune=off",)

    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(SOFT, "libctrain_cuda.so")):
            self.skipTest("built without CUDA's headers")

    def losses(self, config, n, *sets, run, **more):
        self.train(*COMMON, f"train.max_steps={n}", *sets, config=config, run=run, timeout=200, **more)
        return [m["loss"] for m in self.metrics(run, "step")]

    def norms(self, run):
        return [m["grad_norm"] for m in self.metrics(run, "step")]

    def ref(self, config, n, *sets, run="ref"):
        return self.losses(config, n, *sets, run=run, program=REF)

    def cuda(self, config, n, *sets, run, seed=1):
        """Returns the losses. The calls of the software GPU are in the file RUN.calls."""
        env = {"CTRAIN_CUDA_LIBS": SOFT, "SOFT_GPU_SEED": str(seed), "SOFT_GPU_LOG": self.path(run + ".calls")}
        return self.losses(config, n, "device=cuda", *sets, run=run, env=env)

    def assert_close(self, got, want, tolerance, what):
        self.assertEqual(len(got), len(want))
        for step, (x, y) in enumerate(zip(got, want), 1):
            self.assertLess(abs(x - y), tolerance * abs(y), f"{what}, step {step}: {x}, {y}")

    def compare_fp32(self, config, want, *sets, seeds=(1, 2)):
        """Every second run has no recorded steps."""
        for seed in seeds:
            run = f"fp32-{seed}"
            graph = "on" if seed % 2 else "off"
            got = self.cuda(config, N_STEPS, f"train.cuda_graph={graph}", "train.graph_steps=1", *sets, run=run, seed=seed)
            self.assert_close(got, want, 1e-5, run)
            self.assertEqual("call cudaGraphLaunch" in read_text(self.path(run + ".calls")), graph == "on")
            self.assertEqual(self.digest(run), self.digest("fp32-1"))
        # The updates matter: without them, the losses are others.
        still = self.ref(config, N_STEPS, "train.engine=onednn", *sets, "optim.lr=1e-12", run="still")
        self.assertGreater(abs(still[-1] - want[-1]), 1e-3 * want[-1])
        return got

    def compare(self, name, config, *sets, seeds=(1, 2)):
        # Clipping, which changes nothing at such a norm, makes ctrain compute the norm of the gradients.
        clip = (*sets, "optim.clip_norm=1e6")
        want = self.ref(config, N_STEPS, "train.engine=ref", *clip)
        fp32 = self.compare_fp32(config, want, *sets, seeds=seeds)
        n, tolerances = TOLERANCES[name]
        del want[n:]
        norms = self.norms("ref")[:n]
        for seed, (precision, (loss, norm, average)) in enumerate(tolerances.items(), 3):
            with self.subTest(precision=precision):
                # The loss scale is one that does not overflow: after a skipped update, the losses would be others.
                scale = ("optim.loss_scale=4096",) if precision == "fp16" else ()
                got = self.cuda(config, n, *clip, f"precision={precision}", *scale, run=precision, seed=seed)
                self.assert_close(got, want, loss, f"loss in {precision}")
                self.assert_close(self.norms(precision), norms, norm, f"norm of the gradients in {precision}")
                mean = sum(x / y - 1 for x, y in zip(self.norms(precision), norms)) / n
                self.assertLess(abs(mean), average, f"norms of the gradients in {precision} on average")
                self.assertNotEqual(got, fp32[:n])

    def named(self, name):
        return os.path.join(SOURCE, "configs", name)

    def test_smoke(self):
        """Five execution orders of the streams in fp32."""
        self.compare("smoke", self.named("smoke.yaml"), seeds=(1, 2, 3, 4, 5))

    def test_mnist_ddp(self):
        self.run_ctrain("data", "digits", "--out", self.path("digits"), "--train", 1024, "--test", 1)
        self.compare("mnist_ddp", self.named("mnist_ddp.yaml"), "data.dir=" + self.path("digits"), "batch.per_rank=16", "optim.lr=0.003",
                     "run.seed=4")

    def test_resnet20_cifar10(self):
        """Images of squares in the colors of their class, with noise."""
        r = random.Random(1)
        colors = [[r.randrange(60, 196) for _ in range(3 * 64)] for _ in range(10)]
        pixels = [(c * 64 + y // 4 * 8 + x // 4) for c in range(3) for y in range(32) for x in range(32)]
        self.write("cifar/data_batch_1.bin", b"".join(bytes([n % 10]) + bytes(colors[n % 10][p] + r.randrange(-60, 60) for p in pixels)
                                                      for n in range(200)))
        self.compare("resnet20_cifar10", self.named("resnet20_cifar10.yaml"), "data.dir=" + self.path("cifar"), "batch.global=4",
                     "optim.lr=0.02", "model.zero_gamma=true", "run.seed=3")

    def test_resnet50(self):
        layers, last = resnet50(8)
        config = self.config("""\
model: {name: layers, init: kaiming, strict: false, layers: %s}
data: {name: synthetic, shape: [3, 32, 32], classes: 10}
batch: {per_rank: 16}
optim: {lr: 0.003, momentum: 0.9, nesterov: true, weight_decay: 1e-4, decay_norm_bias: false}
""" % json.dumps(layers), name="resnet50.yaml")
        self.compare("resnet50", config, "model.weights=" + self.zero_gamma(last), "run.seed=2")

    def zero_gamma(self, sizes):
        """A file with weights of zero for these batch norms, as with model.zero_gamma."""
        header, at = {}, 0
        for name, n in sizes.items():
            header[name + ".weight"] = {"dtype": "F32", "shape": [n], "data_offsets": [at, at + 4 * n]}
            at += 4 * n
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        return self.write("zero.safetensors", struct.pack("<Q", len(text)) + text + bytes(at))


if __name__ == "__main__":
    main()
