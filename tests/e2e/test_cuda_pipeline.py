"""Pipelines on the device "cuda" (launch.pipeline), on the software GPU of the tests: the losses of one rank, with communicators of the CPU,
which work on pinned memory, and with NCCL."""

import test_cuda_ranks as ranks
import test_pipeline as pipeline
from harness import COMM, DEVICE, OK, USAGE, main, read_text
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


class AutoProcs(Gpu):
    """How many ranks launch.procs=auto starts, and on which device."""

    SETS = (*MLP, "launch.pipeline=2", "launch.procs=auto", "train.max_steps=1")

    def auto(self, gpus, *sets, run, **more):
        """Returns the output, the number of ranks and whether they are on GPUs."""
        r = self.train(*self.SETS, *sets, run=run, env=self.soft(gpus), **more)
        m = self.metrics(run, "run")[-1]
        return r, m["world_size"], "cuDNN" in m["engine"]

    def test_largest_multiple(self):
        r, world, on_gpus = self.auto(5, run="five")
        self.assertEqual((world, on_gpus), (4, True))
        self.assertIn("4 ranks for 5 GPUs, because launch.pipeline=2 must divide the number of ranks", r.err)
        r, world, on_gpus = self.auto(4, "device=cuda", run="four")
        self.assertEqual((world, on_gpus), (4, True))
        self.assertIn("4 ranks, one for each GPU", r.err)

    def test_too_few_gpus(self):
        r, world, on_gpus = self.auto(1, run="cpu")
        self.assertEqual((world, on_gpus), (2, False))
        self.assertIn("device=auto trains on the CPU: 2 ranks would have to share 1 GPU (launch.pipeline=2 needs 2 on each node)", r.err)
        r = self.gpu(*self.SETS, procs=1, run="cuda", expect=DEVICE)
        self.assertIn("2 ranks would have to share 1 GPU", r.err)
        self.assertIn("use fewer stages, because launch.pipeline=2 needs 2 GPUs on each node", r.err)
        r = self.gpu(*self.SETS, "launch.procs=4", procs=3, run="explicit", expect=DEVICE)
        self.assertIn("use launch.procs=2;", r.err)

    def test_several_nodes(self):
        """The stages of a replica may be on several nodes."""
        r = self.run_ctrain("plan", self.config(), *self.SETS, "device=auto", "--nodes", 2, "--master-addr", "a", env=self.soft(1))
        self.assertRegex(r.out, r"ranks +2 on 2 nodes, 1 here;.*\n.*\n.*\ndevice +cuda:")

    def test_started_by_another_launcher(self):
        """Each rank sees only its own GPU, and the other launcher determines the number of ranks."""
        world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.free_port())}
        running = [self.start_training(*self.always, *self.SETS, run="run",
                                       env=self.soft(2, env={**world, "RANK": str(i), "LOCAL_RANK": str(i), "CUDA_VISIBLE_DEVICES": str(i)}))
                   for i in range(2)]
        for p in running:
            self.assert_code(p.wait(30), OK)
        self.assertIn("cuDNN", self.metrics("run", "run")[-1]["engine"])


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
        for key in "precision=fp16", "train.cuda_graph=on", "data.on_device=on":
            with self.subTest(key=key):
                r = self.gpu(*MLP, *stages(2), key, run="refused", expect=USAGE)
                self.assertIn(f"{key} with launch.pipeline=2", r.err)


if __name__ == "__main__":
    main()
