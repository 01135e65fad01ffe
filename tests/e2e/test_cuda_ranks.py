"""Several ranks on the device "cuda", on the software GPU of the tests. The communicators of the CPU work on pinned memory (they are staged):
the results are those of one rank, whatever the order in which the streams run."""

import os
import re

from harness import CTRAIN, DEVICE, Case, main, read_text

SOFT = os.path.join(os.path.dirname(os.path.abspath(CTRAIN)), "soft_cudart")
NET = "model.layers=[conv2d 4 kernel=3, batch_norm, relu, conv2d 4 kernel=3, batch_norm, relu, dropout 0.2, global_avg_pool, linear 10]"
SMALL = ("data.n_train=236", "train.epochs=2", "dist.first_bucket_mib=0.0005", "dist.bucket_mib=0.0005")  # the last batch has 44 rows
SETS = {
    "mlp": ("model.dropout=0.2", "train.ema=0.9", "optim.name=adamw", "train.accumulate=2"),
    "convnet": ("model.name=layers", NET, "model.bn=sync", "optim.clip_norm=0.5", "schedule.name=cosine"),
}


class Ranks(Case):
    always = ("train.autotune=off",)

    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(SOFT, "libctrain_cuda.so")):
            self.skipTest("built without CUDA's headers")

    def soft(self, procs, seed=1, env=None):
        return {"CTRAIN_CUDA_LIBS": SOFT, "SOFT_GPU_DEVICES": str(procs), "SOFT_GPU_SEED": str(seed), **(env or {})}

    def cuda(self, *sets, procs=2, run="run", seed=1, env=None, **more):
        """Returns the losses and the digest, which is the same on all ranks."""
        self.train("device=cuda", "log.level=info,train=debug", "--procs", procs, *SMALL, *sets, run=run, env=self.soft(procs, seed, env), **more)
        digests = {self.digest(run)}
        for rank in range(1, procs):
            digests |= set(re.findall(r"weights ([0-9a-f]{64})", read_text(self.path(run, "log", f"rank-{rank:05d}.log"))))
        self.assertEqual(len(digests), 1, digests)
        return self.all_losses(run), digests.pop()

    def all_losses(self, run):
        return [*self.losses(run).values(), *(m["loss"] for m in self.metrics(run, "eval"))]

    def assert_close(self, got, want, tolerance, what):
        self.assertEqual(len(got), len(want), what)
        for i, (x, y) in enumerate(zip(got, want)):
            self.assertLess(abs(x / y - 1), tolerance, f"{what}: loss {i}: {x}, {y}")

    def test_equals_one_rank(self):
        for name, sets in SETS.items():
            self.train("train.engine=ref", "--procs", 1, *SMALL, *sets, run=f"ref-{name}")
            one = self.cuda(*sets, procs=1, run=f"one-{name}")[0]
            self.assert_close(one, self.all_losses(f"ref-{name}"), 1e-5, name)
            for procs, seeds in ((2, (1, 2, 3)), (3, (4, 5))):
                digests = set()
                for seed in seeds:
                    with self.subTest(sets=name, procs=procs, seed=seed):
                        losses, digest = self.cuda(*sets, procs=procs, run=f"{name}-{procs}-{seed}", seed=seed)
                        self.assert_close(losses, one, 1e-6, name)
                        digests.add(digest)
                self.assertEqual(len(digests), 1, name)


if __name__ == "__main__":
    main()
