"""Gradients that are summed over ranks in 16-bit types (dist.reduce_dtype): the losses stay close to those of fp32, and all ranks have
the same weights, on the CPU and on the software GPU, whatever the communicator and the order in which the streams run."""

import os
import re

import test_cuda_ranks as ranks
from harness import NUMERIC, main, read_text

NET = "model.layers=[conv2d 4 kernel=3 bias=false, batch_norm, relu, max_pool 2, dropout 0.2, linear 10]"
CONV = ("model.name=layers", NET, "model.bn=sync", "optim.clip_norm=0.5", "data.n_train=203", "dist.first_bucket_mib=0.0005",
        "dist.bucket_mib=0.0005")
SETS = {
    "mlp": ("optim.name=adamw", "optim.lr=0.001"),
    "convnet": (*CONV, "train.accumulate=2"),
    "weights only": ("model.name=layers", "model.layers=[linear 16 bias=false, relu, linear 10 bias=false]"),
}
TOLERANCE = {"bf16": 0.03, "fp16": 0.005}  # of each loss, relative to fp32; docs/DISTRIBUTED.md


class Ranks(ranks.Soft):
    """Helpers: the results of a run whose ranks have equal weights."""

    always = ()

    def results(self, *sets, run, procs=2, **more):
        self.train("log.level=info,train=debug", "--procs", procs, *sets, run=run, **more)
        digests = {self.digest(run)}
        for rank in range(1, procs):
            digests |= set(re.findall(r"weights ([0-9a-f]{64})", read_text(self.path(run, "log", f"rank-{rank:05d}.log"))))
        self.assertEqual(len(digests), 1, digests)
        return self.all_losses(run), digests.pop()


class Cpu(Ranks):
    def test_close_to_fp32(self):
        for name, sets in SETS.items():
            losses, digest = self.results(*sets, run=f"{name}-fp32")
            self.assertEqual(self.results(*sets, "dist.reduce_dtype=fp32", run=f"{name}-same")[1], digest)
            for dtype, tolerance in TOLERANCE.items():
                for procs in (2, 3) if name == "convnet" else (2,):
                    with self.subTest(sets=name, dtype=dtype, procs=procs):
                        got = self.results(*sets, f"dist.reduce_dtype={dtype}", procs=procs, run=f"{name}-{dtype}-{procs}")
                        self.assert_close(got[0], losses, tolerance, name)
                        self.assertNotEqual(got[1], digest)

    def test_one_rank_sums_nothing(self):
        want = self.results(procs=1, run="plain")
        self.assertEqual(self.results("dist.reduce_dtype=bf16", procs=1, run="bf16"), want)

    def test_any_communicator_device_and_bucket_size(self):
        """Two numbers have one sum, and posted work gives the same one."""
        want = self.results(*CONV, "dist.reduce_dtype=bf16", "train.engine=ref", run="shm")
        info = self.run_ctrain("info", "--json").json()
        others = [("large", ("dist.bucket_mib=4",)), ("lazy", ("device=lazy",))]
        if {c["name"]: c for c in info["communicators"]}["gloo"]["available"]:
            others.append(("gloo", ("dist.backend=gloo",)))
        for name, sets in others:
            with self.subTest(name):
                self.assertEqual(self.results(*CONV, "dist.reduce_dtype=bf16", "train.engine=ref", *sets, run=name), want)

    def test_plan(self):
        r = self.run_ctrain("plan", self.config(), *CONV, "dist.reduce_dtype=bf16", "--procs", 2)
        self.assertRegex(r.out, r"\n  0 +[0-9.]+ bf16 .* 1: \S+\.weight \.\.\. ")
        self.assertRegex(r.out, r"\n  2 +[0-9.]+ f32 .* 3: \S+\.bias \.\.\. ")

    def test_out_of_range(self):
        """The largest number of fp16 is 65504. The update finds the infinite gradient, and does not change the weights."""
        sets = ("data.name=synthetic_regression", "optim.lr=1e3", "--procs", 2)
        for dtype, message in (("bf16", "the loss is (inf|nan) at step"), ("fp16", "the norm of the gradient is not finite at step")):
            r = self.train(*sets, f"dist.reduce_dtype={dtype}", run=dtype, expect=NUMERIC)
            self.assert_says(r, message, "hint: .*dist.reduce_dtype=bf16" if dtype == "fp16" else "hint: ")


class Gpu(Ranks):
    always = ("train.autotune=off",)

    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(ranks.SOFT, "libctrain_cuda.so")):
            self.skipTest("built without CUDA's headers")

    def test_recorded_equals_posted(self):
        for precision, dtype, backend in (("bf16", "auto", "nccl"), ("fp32", "fp16", "shm")):
            sets = (*ranks.RECORDED["convnet"], f"precision={precision}", f"dist.backend={backend}", "train.epochs=3")
            with self.subTest(precision=precision, dtype=dtype, backend=backend):
                fp32 = self.cuda(*sets, "dist.reduce_dtype=fp32", run=f"{precision}-fp32")
                want = self.cuda(*sets, f"dist.reduce_dtype={dtype}", "train.cuda_graph=off", run=f"{precision}-off")
                got = self.cuda(*sets, f"dist.reduce_dtype={dtype}", "train.cuda_graph=on", run=f"{precision}-on", seed=2)
                self.assertEqual(got, want)
                self.assert_close(got[0], fp32[0], TOLERANCE["bf16"], precision)
                self.assertNotEqual(got[1], fp32[1])

    def test_simulated(self):
        """dist.reduce_dtype=auto means fp32 for one rank, and for more than 64."""
        def rows(*sets):
            return self.run_ctrain("plan", self.config(), "device=cuda", "precision=bf16", *sets, "--simulate", "1x1,8x8,16x8", "--link-intra", "0,0.001",
                                   "--link-inter", "0,0.001", "--allreduce", "ring", "--step-ms", "4,8,1", "--json", env=self.soft(1)).json()["rows"]

        auto = rows()
        self.assertEqual([row["reduce_dtype"] for row in auto], ["fp32", "bf16", "fp32"])
        self.assertEqual(auto, [rows(f"dist.reduce_dtype={dtype}")[i] for i, dtype in enumerate(("fp32", "bf16", "fp32"))])
        self.assertLess(auto[1]["comm_ms"], 0.6 * auto[2]["comm_ms"])

    def test_rank_without_rows(self):
        """The last batch has one row. The other rank does not contribute the gradients of its last step again."""
        sets = ("data.n_train=49", "train.epochs=1", "optim.lr=0.2", "precision=bf16", "dist.backend=shm")
        fp32 = self.cuda(*sets, "dist.reduce_dtype=fp32", run="fp32")
        self.assert_close(self.cuda(*sets, run="auto")[0], fp32[0], 0.002, "losses")


if __name__ == "__main__":
    main()
