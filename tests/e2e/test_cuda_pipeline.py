"""Pipelines on the device "cuda" (launch.pipeline), on the software GPU of the tests: the losses of one rank, with communicators of the CPU,
which work on pinned memory, and with NCCL."""

import test_cuda_ranks as ranks
import test_pipeline as pipeline
from harness import COMM, USAGE, main, read_text
from test_pipeline import MLP, RESNET, UNEVEN, stages


class Gpu(ranks.Soft):
    always = ("train.autotune=off",)

    def gpu(self, *sets, procs=2, run, **more):
        return self.train("device=cuda", *sets, run=run, env=self.soft(procs, env=more.pop("env", None)), **more)


class Equal(Gpu):
    compare = pipeline.Equal.compare

    def check(self, *sets, replicas=1, pipelines, name="whole"):
        self.gpu("dist.backend=shm", *sets, "--procs", replicas, procs=replicas, run=name)
        for i, (n, procs, backend) in enumerate(pipelines):
            with self.subTest(sets=sets, stages=n, procs=procs, backend=backend):
                self.gpu(*sets, *stages(n, procs), f"dist.backend={backend}", procs=procs, run=f"{name}-{i}")
                self.compare(f"{name}-{i}", name, exactly=False)

    def test_mlp(self):
        self.check(*MLP, *UNEVEN, "optim.clip_norm=0.5", pipelines=((2, 2, "shm"), (2, 2, "gloo"), (3, 3, "nccl")))

    def test_resnet(self):
        self.check(*RESNET, pipelines=((2, 2, "shm"), (3, 3, "nccl")))

    def test_row_2_with_data_parallelism(self):
        for bn in "sync", "broadcast":
            self.check(*RESNET, f"model.bn={bn}", "data.drop_last=true", "model.drop_path=0.2", replicas=2, name=bn,
                       pipelines=((2, 4, "shm"), (2, 4, "nccl")))

    def test_auto(self):
        """The ranks of a stage choose their communicator as those of the world do: with NCCL, unless two of them share a GPU."""
        self.gpu(*MLP, "--procs", 1, procs=1, run="whole")
        for devices, shared in (("0,1,2,3", False), ("0,1,0,1", True)):
            with self.subTest(devices=devices):
                self.gpu(*MLP, *stages(2, 4), "dist.backend=auto", f"launch.devices={devices}", procs=4, run=devices)
                self.compare(devices, "whole", exactly=False)
                self.assertEqual({m["backend"] for m in self.metrics(devices, "run")}, {"shm" if shared else "nccl"})
                self.assertEqual("rank 1 and rank 3 share a GPU" in read_text(self.path(devices, "log", "rank-00001.log")), shared)

    def test_16_bits(self):
        self.check(*RESNET, "precision=bf16", pipelines=((2, 2, "nccl"),))


class Others(Gpu):
    def test_continued_with_other_stages(self):
        self.gpu(*MLP, "--procs", 1, procs=1, run="whole")
        for run, first, second in (("split", stages(1), stages(2)), ("merged", stages(2), stages(1))):
            self.gpu(*MLP, "train.max_steps=12", *first, run=run)
            self.gpu(*MLP, *second, run=run)
            self.assertAlmostEqual(self.losses(run)[40] / self.losses("whole")[40], 1, delta=1e-6)

    def test_killed_stage(self):
        for backend in "shm", "nccl":
            with self.subTest(backend=backend):
                p = self.start_training("device=cuda", *self.always, *MLP, *stages(2), f"dist.backend={backend}", run=backend,
                                        env=self.soft(2, env={"CTRAIN_FAILPOINT": "step:7@1"}))
                self.assert_code(p.wait(30), COMM)
                self.assertRegex(p.err, "rank 1")

    def test_refused(self):
        for sets, *says in ((("precision=fp16",), "precision fp16", "bf16"), (("train.cuda_graph=on",), "train.cuda_graph=on", "pipeline"),
                            (("data.on_device=on",), "data.on_device is on", "pipeline")):
            with self.subTest(sets=sets):
                r = self.gpu(*MLP, *stages(2), *sets, run="refused", expect=USAGE)
                for text in says:
                    self.assertIn(text, r.err)


if __name__ == "__main__":
    main()
