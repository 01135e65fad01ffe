"""Several ranks on the device "cuda", on the software GPU of the tests. The communicators of the CPU work on pinned memory (they are staged):
the results are those of one rank, whatever the order in which the streams run."""

import glob
import os
import re
import signal
import time

from harness import BUG, COMM, CTRAIN, DEVICE, OK, Case, main, read_text

SOFT = os.path.join(os.path.dirname(os.path.abspath(CTRAIN)), "soft_cudart")
NET = "model.layers=[conv2d 4 kernel=3, batch_norm, relu, conv2d 4 kernel=3, batch_norm, relu, dropout 0.2, global_avg_pool, linear 10]"
SMALL = ("data.n_train=236", "train.epochs=2", "dist.first_bucket_mib=0.0005", "dist.bucket_mib=0.0005")  # the last batch has 44 rows
SETS = {
    "mlp": ("model.dropout=0.2", "train.ema=0.9", "optim.name=adamw", "train.accumulate=2"),
    "convnet": ("model.name=layers", NET, "model.bn=sync", "optim.clip_norm=0.5", "schedule.name=cosine"),
}
RECORDED = {
    "mlp": (*SETS["mlp"], "train.epochs=6", "train.graph_steps=2"),
    "convnet": (*SETS["convnet"], "train.epochs=4", "train.graph_steps=1", "train.ema=0.9"),
}


class Soft(Case):
    always = ("train.autotune=off", "dist.backend=shm")

    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(SOFT, "libctrain_cuda.so")):
            self.skipTest("built without CUDA's headers")

    def soft(self, procs, seed=1, env=None):
        return {"CTRAIN_CUDA_LIBS": SOFT, "SOFT_GPU_DEVICES": str(procs), "SOFT_GPU_SEED": str(seed), **(env or {})}

    def start_each(self, *sets, envs, run="run"):
        """Starts ranks without a launcher, each with its environment."""
        world = {"WORLD_SIZE": str(len(envs)), "LOCAL_WORLD_SIZE": str(len(envs)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.free_port())}
        return [self.start_training("device=cuda", *self.always, *sets, run=run,
                                    env=self.soft(len(envs), env={**world, "RANK": str(i), "LOCAL_RANK": str(i), **env})) for i, env in enumerate(envs)]

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


class Contexts(Soft):
    def test_row_16_one_device_for_each_rank(self):
        """A rank has a context on its own GPU only, and the launcher has none: each would occupy memory of the first GPU."""
        self.train("device=cuda", "--procs", 3, *SMALL, env=self.soft(3, env={"SOFT_GPU_LOG": self.path("gpu.log")}))
        contexts = re.findall(r"^process (\d+): context on device (\d+)$", read_text(self.path("gpu.log")), re.M)
        self.assertEqual(sorted(device for _, device in contexts), ["0", "1", "2"])
        self.assertEqual(len({pid for pid, _ in contexts}), 3, contexts)


class Equality:
    """The results of several ranks, for a Soft. test_cuda_nccl.py tests the same with NCCL."""

    def losses_of_one_rank(self, name, sets):
        return self.cuda(*sets, procs=1, run=f"one-{name}")[0]

    def test_equals_one_rank(self):
        for name, sets in SETS.items():
            one = self.losses_of_one_rank(name, sets)
            for procs, seeds in ((2, (1, 2)), (3, (3,))):
                digests = set()
                for seed in seeds:
                    with self.subTest(sets=name, procs=procs, seed=seed):
                        losses, digest = self.cuda(*sets, procs=procs, run=f"{name}-{procs}-{seed}", seed=seed)
                        self.assert_close(losses, one, 1e-6, name)
                        digests.add(digest)
                self.assertEqual(len(digests), 1, name)

    def check_calls(self, calls):
        """What the recorded run has called."""
        self.assertIn("call cudaGraphLaunch", calls)

    def test_recorded_equals_posted(self):
        for name, sets in RECORDED.items():
            with self.subTest(sets=name):
                want = self.cuda(*sets, "train.cuda_graph=off", run=f"off-{name}")
                log = self.path(f"log-{name}")
                got = self.cuda(*sets, "train.cuda_graph=on", run=f"on-{name}", seed=2, env={"SOFT_GPU_LOG": log})
                self.assertEqual(got, want)
                self.assertTrue(all(m["exposed_comm_ms"] > 0 for m in self.metrics(f"on-{name}", "step")))
                self.check_calls(read_text(log))


class Ranks(Equality, Soft):
    def losses_of_one_rank(self, name, sets):
        self.train("train.engine=ref", "--procs", 1, *SMALL, *sets, run=f"ref-{name}")
        one = super().losses_of_one_rank(name, sets)
        self.assert_close(one, self.all_losses(f"ref-{name}"), 1e-5, name)
        self.assertEqual({m["exposed_comm_ms"] for m in self.metrics(f"one-{name}", "step")}, {0})
        return one

    def test_any_communicator_and_bucket_size(self):
        """Two numbers have one sum."""
        want = self.cuda(*SETS["mlp"], run="shm")
        self.assertEqual(self.cuda(*SETS["mlp"], "dist.first_bucket_mib=25", run="large"), want)
        self.assertEqual(self.cuda(*SETS["mlp"], "launch.devices=0,0", run="shared"), want)
        self.assertEqual(self.cuda(*SETS["mlp"], "dist.bucket_mib=auto", run="auto"), want)
        self.assertEqual(self.metrics("auto", "run")[0]["bucket_choice"], "measured")
        comms = {c["name"]: c for c in self.run_ctrain("info", "--json").json()["communicators"]}
        if comms["gloo"]["available"]:
            self.assertEqual(self.cuda(*SETS["mlp"], "dist.backend=gloo", run="gloo"), want)

    def test_statistics_of_rank_0(self):
        sets = ("model.name=layers", NET, "model.bn=broadcast", "--procs", 2)
        self.train("train.engine=ref", *SMALL, *sets, run="ref")
        self.assert_close(self.cuda(*sets)[0], self.all_losses("ref"), 1e-5, "losses")

    def test_loss_scale(self):
        """All ranks skip the same updates."""
        sets = (*SETS["convnet"], "precision=fp16", f"optim.loss_scale={2.0 ** 22}", "optim.loss_scale_interval=3")
        one = self.cuda(*sets, procs=1, run="one")[0]
        self.assert_close(self.cuda(*sets, run="two")[0], one, 0.005, "losses")
        scales = [[(m["loss_scale"], m["skipped_updates"]) for m in self.metrics(run, "step")] for run in ("one", "two")]
        self.assertEqual(*scales)
        self.assertGreater(scales[0][-1][1], 0)

    def test_resumed(self):
        """Also with another number of ranks."""
        sets = (*SETS["convnet"], "train.ema=0.9", "checkpoint.every_steps=3")
        want = self.cuda(*sets, run="whole")
        self.train("device=cuda", "--procs", 2, *SMALL, *sets, env=self.soft(2, env={"CTRAIN_FAILPOINT": "step:5@1"}), expect=COMM)
        self.assertEqual(self.cuda(*sets, seed=2), want)
        self.assertGreater(self.metrics("run", "run")[-1]["resumed_step"], 0)
        self.train("device=cuda", "--procs", 2, *SMALL, *sets, run="more", env=self.soft(2, env={"CTRAIN_FAILPOINT": "step:5@0"}), expect=COMM)
        self.assert_close(self.cuda(*sets, procs=3, run="more")[0], want[0], 1e-6, "losses")


class Tuning(Soft):
    always = ()

    def test_smaller_last_step(self):
        """Ranks divide the choice of plans, while the GPU of none of them waits for another rank. No plan is chosen twice."""
        self.train("device=cuda", "--procs", 2, *SMALL, *SETS["convnet"], env=self.soft(2))
        self.assertEqual(self.metrics("run", "end")[-1]["step"], 10)
        tuned = re.findall(r"tuned (\d+) operations", "".join(read_text(self.path("run", "log", f"rank-0000{i}.log")) for i in (0, 1)))
        self.assertGreaterEqual(len(tuned), 3, tuned)  # training, the last step, evaluation
        path, = glob.glob(self.path("cache", "ctrain", "plans", "*.txt"))
        self.assertEqual(sum(map(int, tuned)), read_text(path).count("\t"))


class Faults(Soft):
    """What can happen to a rank while the others wait for it. test_cuda_nccl.py runs the same cases with NCCL."""

    SETS = (*SMALL, "train.cuda_graph=on", "checkpoint.every_steps=3")

    def start_ranks(self, procs, *sets, run, env=None):
        return self.start_training("device=cuda", "--procs", procs, *self.SETS, *sets, run=run, env=self.soft(procs, env=env))

    def start_stopping(self, procs, rank, point, *sets):
        """Returns the started run, in which the rank stops at a failpoint, and its name."""
        run = f"{procs}-{rank}-{point}"
        return self.start_ranks(procs, *sets, run=run, env={"CTRAIN_FAILPOINT": f"{point}@{rank}=stop"}), run

    def test_killed(self):
        for procs, rank, point, *sets in ((2, 0, "startup"), (3, 2, "startup"), (2, 0, "step:7"), (3, 1, "step:7"),
                                          (2, 1, "step:2", "train.cuda_graph=off"), (2, 0, "eval"), (3, 1, "eval"), (2, 0, "ckpt.optim"),
                                          (3, 0, "ckpt.state")):
            with self.subTest(procs=procs, killed=rank, point=point):
                p, run = self.start_stopping(procs, rank, point, *sets)
                # Before the first step, the ranks have no logs.
                others = set(range(procs)) - {rank} if point != "startup" else ()
                self.kill_stopped(rank, p, run, others)

    def test_launcher_killed(self):
        p, _ = self.start_stopping(2, 1, "step:7", "train.epochs=1000")
        self.until_stopped(1, p)
        p.signal(signal.SIGKILL)
        self.assert_gone(time.monotonic(), p, 5)
        self.assertEqual(p.wait(5).code, -signal.SIGKILL)

    STOPPED = "allreduce sum"

    def test_stopped(self):
        """The others wait for a rank, and time out. The runs wait at the same time."""
        limits = ("dist.timeout=4", "dist.rendezvous_timeout=4")
        runs = [(rank, point, self.start_stopping(procs, rank, point, *limits)[0])
                for procs, rank, point in ((2, 0, "ckpt.optim"), (2, 1, "step:7"), (3, 2, "eval"), (4, 3, "startup"))]
        stopped = [self.until_stopped(rank, p) for rank, _, p in runs]
        self.until(lambda: not self.marked(), "everything was gone", seconds=40)
        for (rank, point, p), pid in zip(runs, stopped):
            with self.subTest(stopped=rank, point=point):
                r = p.wait()
                self.assert_code(r, COMM)
                self.assert_last_says(r, rf"rank {rank} \(pid {pid} on host .* has (not answered|joined, but has sent no heartbeat)")
                if point == "step:7":
                    self.assert_last_says(r, "rank 0 .*failed: .*" + self.STOPPED)

    def test_crashed(self):
        p, _ = self.start_stopping(3, 2, "step:7")
        pid = self.until_stopped(2, p)
        since = time.monotonic()
        os.kill(pid, signal.SIGABRT)
        os.kill(pid, signal.SIGCONT)
        self.assert_gone(since, p, 5)
        r = p.wait(5)
        self.assert_code(r, BUG)
        self.assert_last_says(r, rf"rank 2 \(pid {pid}\b", "signal 6")


class HostFunctions(Soft):
    def test_failure_while_a_collective_waits(self):
        """Rank 0 fails while posted work waits for rank 1, which is stopped. It ends long before the timeout."""
        sets = ("train.cuda_graph=off", "train.self_check=off", *SMALL, "launch.threads=1")
        log = self.path("log")
        for p in self.start_each(*sets, "train.max_steps=1", envs=({"SOFT_GPU_LOG": log}, {}), run="one"):
            self.assert_code(p.wait(), OK)
        n = read_text(log).count("call cudaLaunchHostFunc")
        self.assertGreater(n, 2)
        p = self.start_each(*sets, envs=({"SOFT_GPU_FAULT": f"cudaLaunchHostFunc:{9 * n + 1}:1"}, {"CTRAIN_FAILPOINT": "step:7@1=stop"}))
        pid = self.until_stopped(1, p[1])
        r = p[0].wait(15)
        self.assert_code(r, DEVICE)
        self.assert_last_says(r, "cudaLaunchHostFunc: cudaErrorInvalidValue")
        os.kill(pid, signal.SIGCONT)
        r = p[1].wait(15)
        self.assert_code(r, DEVICE)
        self.assert_last_says(r, r"rank 0 .* failed .*cudaLaunchHostFunc: cudaErrorInvalidValue")


if __name__ == "__main__":
    main()
