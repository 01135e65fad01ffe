"""Data sets in device memory (data.on_device), on the software GPU: the results of a run are, to the bit, those of a run whose host
prepares the batches."""

import os
import random
import struct

from harness import COMM, CTRAIN, DEVICE, OK, USAGE, Case, main, read_text

SOFT = os.path.join(os.path.dirname(os.path.abspath(CTRAIN)), "soft_cudart")
MLP = ("model.name=mlp", "model.hidden=[16]", "model.dropout=0.2")
CONV = ("model.name=layers", "model.layers=[conv2d 4 kernel=3, batch_norm, relu, max_pool 2, linear 10]")
SETS = {
    "no augmentation": MLP,
    "shifted digits": (*MLP, "data.augment.crop_padding=2", "train.ema=0.9"),
    "shifted and flipped images": (*CONV, "data.shape=[3,9,7]", "data.augment.crop_padding=4", "data.augment.flip=true", "precision=bf16"),
    "mixed and erased images": (*CONV, "data.shape=[3,9,7]", "data.augment.flip=true", "data.augment.erasing=0.5",
                                "data.augment.mixup=0.4", "data.augment.cutmix=1", "model.label_smoothing=0.1"),
    "several steps in a graph": (*MLP, "data.augment.crop_padding=2", "data.augment.mixup=0.4", "batch.global=10", "train.graph_steps=4"),
    "micro-batches": (*CONV, "data.augment.crop_padding=1", "data.augment.cutmix=1", "train.accumulate=3"),
}
SMALL = ("batch.global=33", "train.epochs=3", "--procs", 1)
SYNTHETIC = ("data.n_train=203", "data.n_val=37")


class Resident(Case):
    always = ("train.autotune=off",)

    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(SOFT, "libctrain_cuda.so")):
            self.skipTest("built without CUDA's headers")

    def cuda(self, *sets, run, env=None, **more):
        return self.train("device=cuda", *SMALL, *sets, run=run, env={"CTRAIN_CUDA_LIBS": SOFT, **(env or {})}, **more)

    def results(self, run):
        steps = {m["step"]: m["loss"] for m in self.metrics(run, "step")}
        return ([steps[s] for s in sorted(steps)], [(m["loss"], m["top1"], m["count"]) for m in self.metrics(run, "eval")],
                self.metrics(run, "end")[-1]["weights_digest"])

    def log(self, run):
        return read_text(self.path(run, "log", "rank-00000.log"))

    def compare(self, name, *sets, resident="data.on_device=on", seeds=(1,)):
        self.cuda(*sets, "data.on_device=off", "train.cuda_graph=off", run=f"host {name}")
        self.assertNotIn("to the memory of the device", self.log(f"host {name}"))
        for seed in seeds:
            run = f"device {name} {seed}"
            self.cuda(*sets, resident, run=run, env={"SOFT_GPU_SEED": str(seed)})
            self.assertIn("copied the data sets to the memory of the device", self.log(run))
            self.assertEqual(self.results(run), self.results(f"host {name}"))

    def test_equals_host(self):
        for name, sets in SETS.items():
            with self.subTest(sets=name):
                self.compare(name, *SYNTHETIC, *sets, seeds=(1, 2))

    def idx(self, folder, prefix, n):
        r = random.Random(n)
        self.write(os.path.join(folder, f"{prefix}-images-idx3-ubyte"), struct.pack(">4I", 0x803, n, 28, 28) + r.randbytes(n * 784))
        self.write(os.path.join(folder, f"{prefix}-labels-idx1-ubyte"),
                   struct.pack(">2I", 0x801, n) + bytes(r.randrange(10) for _ in range(n)))

    def test_files(self):
        """The formats of MNIST and CIFAR-10 are copied without being asked for."""
        self.idx("digits", "train", 70)
        self.idx("digits", "t10k", 21)
        self.compare("mnist", "data.name=mnist", f"data.dir={self.path('digits')}", *MLP, "data.augment.crop_padding=2",
                     resident="data.on_device=auto")
        for name, n in (("data_batch_1.bin", 70), ("test_batch.bin", 21)):
            r = random.Random(n)
            self.write(os.path.join("cifar", name), b"".join(bytes([r.randrange(10)]) + r.randbytes(3072) for _ in range(n)))
        self.compare("cifar", "data.name=cifar10", f"data.dir={self.path('cifar')}", *CONV, "data.augment.crop_padding=4",
                     "data.augment.flip=true", resident="data.on_device=auto")

    def test_killed_and_resumed(self):
        sets = (*SYNTHETIC, *SETS["mixed and erased images"], "checkpoint.every_steps=2", "data.on_device=on")
        self.cuda(*sets, run="whole")
        self.cuda(*sets, run="resumed", env={"CTRAIN_FAILPOINT": "step:11"}, expect=COMM)
        self.cuda(*sets, run="resumed")
        self.assertGreater(self.metrics("resumed", "run")[-1]["resumed_step"], 7)
        self.assertEqual(self.results("resumed")[2], self.results("whole")[2])

    def test_out_of_memory(self):
        """If the memory for a data set cannot be allocated, `auto` leaves both on the host."""
        self.idx("digits", "train", 70)
        self.idx("digits", "t10k", 21)
        sets = ("data.name=mnist", f"data.dir={self.path('digits')}", *MLP, "train.max_steps=1")
        self.cuda(*sets, run="whole", env={"SOFT_GPU_LOG": self.path("calls")})
        n = read_text(self.path("calls")).count("call cudaMalloc ->")
        on_host = 0
        for i in range(1, n + 1):
            env = {"CTRAIN_CUDA_LIBS": SOFT, "SOFT_GPU_FAULT": f"cudaMalloc:{i}:2"}
            r = self.start_training("device=cuda", *SMALL, *sets, run=f"run {i}", env=env).wait()
            if r.code == OK:
                self.assertRegex(self.log(f"run {i}"), "stay in the memory of the host: allocating 0.. MiB of GPU memory for data sets .*out of memory")
                self.assertEqual(self.results(f"run {i}"), self.results("whole"))
                on_host += 1
            else:
                self.assert_code(r, DEVICE)
                self.assertIn("cudaErrorMemoryAllocation", r.err)
        self.assertEqual(on_host, 2)

    def test_eval(self):
        """`ctrain eval` copies the evaluation data only."""
        self.cuda(*SYNTHETIC, *MLP, run="run")
        loss = {}
        for where in ("on", "off"):
            r = self.run_ctrain("eval", self.config(), f"run.dir={self.path('run')}", "device=cuda", *SYNTHETIC, *MLP,
                                f"data.on_device={where}", "--procs", 1, "--checkpoint", "last", "--json", env={"CTRAIN_CUDA_LIBS": SOFT})
            loss[where] = {k: v for k, v in r.json().items() if "seconds" not in k}
        self.assertEqual(loss["on"], loss["off"])

    def test_refused(self):
        """`on` names the reason. `auto` logs it and prepares batches on the host."""
        for key, reason in (("data.augment.degrees=5", "only crops, flips and erasing"),
                            ("data.augment.brightness=0.5", "only crops, flips and erasing")):
            r = self.cuda(*SYNTHETIC, *MLP, key, "data.on_device=on", run="refused", expect=USAGE)
            self.assertIn(reason, r.err)
            self.cuda(*SYNTHETIC, *MLP, key, run=f"host {key}")
            self.assertIn("the data sets stay in the memory of the host: " + reason, self.log(f"host {key}"))
        self.idx("digits", "train", 2000)
        self.idx("digits", "t10k", 21)
        files = ("data.name=mnist", f"data.dir={self.path('digits')}", *MLP, "train.max_steps=2")
        self.cuda(*files, run="full", env={"SOFT_GPU_MEMORY": str(5 << 20)})
        self.assertRegex(self.log("full"), "stay in the memory of the host: they need 1.5 MiB, but 4.. MiB of the memory of the device are free, and")
        r = self.cuda(*files, "data.on_device=on", run="small", env={"SOFT_GPU_MEMORY": str(1 << 20)}, expect=USAGE)
        self.assertRegex(r.err, "cannot be copied to the device: they need 1.5 MiB, but 0.. MiB of the memory of the device are free\n")
        r = self.train("data.on_device=on", *SMALL, *MLP, run="cpu", expect=USAGE)
        self.assertIn("data.on_device is on, but on the device cpu batches are prepared by the host", r.err)


if __name__ == "__main__":
    main()
