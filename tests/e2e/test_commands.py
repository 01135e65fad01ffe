"""What a newcomer types first: commands that must protect data, name mistakes and say what they did."""

import gzip
import json
import math
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest
import zlib

from test_data import png
from harness import DATA, IO, NUMERIC, OK, TINY, USAGE, Case, die_with_parent, main, pause, read_text


def contents(folder):
    out = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as f:
            out[name] = f.read()
    return out


class Digits(Case):
    SIZES = ("--train", 100, "--test", 20)

    def draw(self, folder, *args, expect=OK):
        return self.run_ctrain("data", "digits", "--out", self.path(folder), *self.SIZES, *args, expect=expect)

    def test_real_data_are_kept(self):
        """A set that ctrain did not draw is not replaced, whether complete or not; one that it drew is."""
        self.draw("drawn")
        for name in os.listdir(self.path("drawn")):
            with open(self.path("drawn", name), "rb") as f:
                self.write(f"real/{name}", gzip.compress(gzip.decompress(f.read())))
        for missing in (None, "train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
            with self.subTest(missing=missing):
                shutil.rmtree(self.path("m"), ignore_errors=True)
                shutil.copytree(self.path("real"), self.path("m"))
                if missing:
                    os.unlink(self.path("m", missing))
                before = contents(self.path("m"))
                r = self.draw("m", "--seed", 7, expect=USAGE)
                self.assert_last_says(r, self.path("m") + r"/[a-z0-9-]*-ubyte\.gz exists and was not drawn by ctrain", "hint:.*--out.*--force")
                self.assertEqual(contents(self.path("m")), before)
        self.draw("m", "--seed", 7, "--force")
        self.draw("drawn", "--seed", 7)
        self.assertEqual(contents(self.path("m")), contents(self.path("drawn")))
        # What was interrupted half-way is drawn again.
        os.unlink(self.path("m", "t10k-labels-idx1-ubyte.gz"))
        self.draw("m", "--seed", 7)
        self.assertEqual(contents(self.path("m")), contents(self.path("drawn")))


class Check(Case):
    BASE = "model: {name: resnet18}\ntrain: {epochs: 1}\ndata:\n  name: imagefolder\n"

    def check(self, data, *args, expect=DATA):
        return self.run_ctrain("check", self.write("c.yaml", self.BASE + data), *args, expect=expect)

    def test_missing_data(self):
        """Data that does not exist is found, all of it, with its place in the config."""
        for name in ("train", "val"):
            os.makedirs(self.path("d", name, "cat"))
        root = self.path("d")
        self.assert_last_says(self.check("  dir: /nonexistent\n"), r"c\.yaml:5:8: error: data\.dir: the directory /nonexistent does not exist\n")
        r = self.check(f"  dir: {root}\n  train:\n    path: trian\n  val: vla\n")
        self.assert_last_says(r, r"c\.yaml:7:11: error: data\.train: .*/d/trian", r"\n\S*c\.yaml:8:8: error: data\.val: .*/d/vla", "hint: ")
        self.assertIn("the data files exist", self.check(f"  dir: {root}\n", expect=OK).out)
        self.check(f"  dir: {root}\n  train: train\n", expect=OK)
        # An absolute path needs no data.dir.
        paths = f"  train: {root}/train\n  val: {root}/val\n"
        self.check("  dir: /nonexistent\n" + paths, expect=OK)
        self.assert_last_says(self.check("  dir: /nonexistent\n" + paths.replace("/val", "/vla")), r"c\.yaml:7:8: error: data\.val: .*/d/vla")
        # What nobody named follows from data.name; a key of the command line is named as such.
        self.assert_last_says(self.check(""), r"c\.yaml:4:9: error: data\.dir: the directory datasets/imagefolder does not exist\n")
        self.assert_last_says(self.check("", "data.dir=/nowhere"), r"argument 3: error: data\.dir: the directory /nowhere does not exist\n")

    def test_other_missing_files(self):
        """model.weights and data.classes_file, too; a run that has a checkpoint does not read its model.weights again."""
        r = self.run_ctrain("check", self.config(), "model.weights=no.safetensors", expect=DATA)
        self.assert_last_says(r, r"argument 3: error: model\.weights: there is no no\.safetensors$")
        self.train("train.max_steps=1")
        self.run_ctrain("check", self.config(), "model.weights=no.safetensors", f"run.dir={self.path('run')}")
        os.makedirs(self.path("d", "train", "cat"))
        r = self.check(f"  dir: {self.path('d')}\n  val: none\n  classes_file: no.txt\n")
        self.assert_last_says(r, r"c\.yaml:7:\d+: error: data\.classes_file: there is no .*/d/no\.txt$")

    def test_missing_files_of_each_format(self):
        os.mkdir(self.path("d"))
        for name, words, hint in (("mnist", "train-images-idx3-ubyte", "get_mnist"), ("cifar10", "cannot find the images of cifar10", "binary version"),
                                  ("cifar100", "cannot find the images of cifar100", "binary version"), ("shards", "no shards", "data.train")):
            more = ["data.classes=10"] if name == "shards" else []
            config = self.write(f"{name}.yaml", f"model: {{name: resnet20}}\ntrain: {{epochs: 1}}\ndata: {{name: {name}, dir: {self.path('d')}}}\n")
            r = self.run_ctrain("check", config, *more, expect=DATA)
            # Both splits, at the place of the directory in which they were expected.
            self.assert_last_says(r, rf"{name}\.yaml:3:\d+: error: data\.train: [^\n]*{words}", rf"\n\S*{name}\.yaml:3:\d+: error: data\.val: ", f"hint: [^\n]*{hint}")


class Assume(Case):
    CONFIG = "model: {name: resnet20}\ntrain: {epochs: 90}\ndata: {name: imagefolder}\nbatch: {per_rank: 256}\n"

    def test_without_data(self):
        """plan --assume needs no data; batches of any size are computed, not allocated."""
        config = self.config(self.CONFIG)
        r = self.run_ctrain("plan", config, "--procs", 1, "--assume", "train=1281167,val=50000,classes=1000,size=32", "batch.per_rank=1000000")
        self.assertRegex(r.out, r"data +assumed, imagefolder: 1281167 training samples \[3,32,32\], 50000 evaluation samples")
        self.assertRegex(r.out, r"resnet20: 336824 parameters(?s:.*)\n  fc +linear +\[1000,1,1\] +65000 (?s:.*)\n  all +336824 ")
        self.assertRegex(r.out, r"memory +per rank about \d{3,}\.\d GiB")
        for text, words in (("val=3", "number of training samples"), ("train=5", "number of classes"), ("train=x,classes=3", '"train=x" is not'),
                            ("train=5,sise=3", '"sise=3" is not'), ("train=0,classes=3", '"train=0" is not')):
            self.assert_last_says(self.run_ctrain("plan", config, "--assume", text, expect=USAGE), f"--assume.*{words}", "hint: for example --assume train=1281167")
        r = self.run_ctrain("plan", self.config(), "--assume", "train=100,size=64", expect=USAGE)
        self.assert_says(r, "--assume: error: data.train.size does not apply")


class Plan(Case):
    CONFIG = "model: {name: resnet20}\ntrain: {epochs: 1}\ndata: {name: synthetic, shape: [3, 32, 32], n_train: 2000000000, val: none}\nlaunch: {threads: 1}\n"

    def memory(self, rows, **more):
        out = self.run_ctrain("plan", self.config(self.CONFIG), f"batch.per_rank={rows}", "--procs", 1, "--no-measure", **more).out
        about, total, unit = re.search(r"^memory +per rank (about )?([\d.]+) (MiB|GiB):", out, re.M).groups()
        return bool(about), float(total) * {"MiB": 1 << 20, "GiB": 1 << 30}[unit], out

    def test_more_than_the_host_has(self):
        """`plan` says what a batch needs that no memory can hold."""
        about, total, out = self.memory(1000000)
        self.assertTrue(about)
        self.assertGreater(total, 1 << 40)
        self.assertRegex(out, r"\n +1 rank here needs [\d.]+ TiB, this host has [\d.]+ GiB: use a smaller batch")
        self.assertRegex(out, r"\nbuckets +\d+")

    @unittest.skipIf(os.environ.get("CTRAIN_E2E_SLOW"), "a limit on the address space leaves no room for a sanitizer's shadow memory")
    def test_estimate(self):
        """What is estimated where memory is short is what is measured where it is not."""
        about, measured, _ = self.memory(1536)
        self.assertFalse(about)
        limit = int(measured * 0.8)
        self.assertGreater(limit, 1 << 30)
        about, estimated, _ = self.memory(1536, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        self.assertTrue(about)
        self.assertLess(abs(estimated / measured - 1), 0.05, f"{estimated} is no estimate of {measured}")

    def simulate(self, *args):
        return self.run_ctrain("plan", self.config(), "--simulate", "1x1..4x1", "--link-inter", "0,0.001", "--json", *args).json()

    def test_simulate(self):
        j = self.simulate("--step-ms", "4,8,1")
        one, two, four = j["rows"]
        self.assertEqual((j["measured"], j["images"], j["allreduce"]), (False, 24, "hier"))
        self.assertEqual([(row["buckets"], row["reduce_dtype"]) for row in j["rows"]], 3 * [(1, "fp32")])
        # 4970 parameters, and padding, in one bucket, which nothing hides. The link carries 1 MB/s; 2 (p-1)/p of the bytes pass it.
        self.assertGreaterEqual(two["comm_ms"], 4970 * 4 / 1000)
        self.assertLess(two["comm_ms"], 1.2 * 4970 * 4 / 1000)
        self.assertAlmostEqual(four["comm_ms"], 1.5 * two["comm_ms"])
        for row, ranks in ((one, 1), (two, 2), (four, 4)):
            self.assertAlmostEqual(row["exposed_comm_ms"], row["comm_ms"])
            self.assertAlmostEqual(row["step_ms"], 13 + row["comm_ms"])
            self.assertAlmostEqual(row["images_per_sec"], ranks * 24 / row["step_ms"] * 1000)
            self.assertAlmostEqual(row["efficiency"], 13 / row["step_ms"])
            self.assertEqual(row["total_steps"], 2 * math.ceil(1000 / (24 * ranks)))  # of 2 epochs
            self.assertAlmostEqual(row["training_seconds"], row["total_steps"] * row["step_ms"] / 1000)
        self.assertEqual((j["first_inefficient_row"], j["changes_row"]), (1, 1))
        gains = {c["setting"]: c["gain"] for c in j["changes"]}
        self.assertAlmostEqual(gains["batch.per_rank=48"], 2 * two["step_ms"] / (25 + two["comm_ms"]) - 1)
        # The weights have almost all of the elements.
        self.assertAlmostEqual(gains["dist.reduce_dtype=bf16"], two["step_ms"] / (13 + two["comm_ms"] / 2) - 1, delta=0.1)
        # The config may say so already.
        j = self.simulate("--step-ms", "4,8,1", "dist.reduce_dtype=bf16")
        self.assertAlmostEqual(j["rows"][1]["step_ms"], two["step_ms"] / (1 + gains["dist.reduce_dtype=bf16"]))
        self.assertNotIn("dist.reduce_dtype=bf16", [c["setting"] for c in j["changes"]])

    def test_simulate_the_measured_step(self):
        j = self.simulate("--steps", 5, "launch.threads=1")
        self.assertTrue(j["measured"])
        self.assertAlmostEqual(j["rows"][0]["step_ms"], j["forward_ms"] + j["backward_ms"] + j["optim_ms"])
        self.assertAlmostEqual(j["rows"][0]["step_ms"], j["measured_step_ms"])
        self.assertGreater(min(j["forward_ms"], j["backward_ms"]), 0)
        for last, row in zip(j["rows"], j["rows"][1:]):
            self.assertGreater(row["step_ms"], last["step_ms"])
        words = ("plan", self.config(), "--simulate", "1x1,1x4", "--link-intra", "nvlink4", "--step-ms", "4,8,1")
        out = self.run_ctrain(*words).out
        self.assertRegex(out, r"\n +1 x 4 +4 +1 of fp32 +13\.0\d+ .* 99\.\d % +0\.29s\n")
        self.assertRegex(out, r"all-reduce +fastest\n")
        # Four ranks have no complete batch of 96 images.
        out = self.run_ctrain(*words, "data.n_train=50", "data.drop_last=true").out
        self.assertRegex(out, r"\n +1 x 1 .* 0\.05s\n +1 x 4 .* -\n")
        # The last batch of four ranks has 2 images, so that two of the ranks have none.
        bn = [*words, "model.name=resnet20", "model.bn=sync", "data.n_train=98"]
        self.assertRegex(self.run_ctrain(*bn).out, r"\n +1 x 1 .* 0\.13s\n +1 x 4 .* -\n")
        self.assertRegex(self.run_ctrain(*bn, "data.drop_last=true").out, r"\n +1 x 1 .* 0\.10s\n +1 x 4 .* 0\.0\ds\n")

    def test_simulate_states_the_batch(self):
        words = ("plan", self.config(), "--simulate", "1x1", "--step-ms", "4,8,1")
        out = self.run_ctrain(*words, "launch.procs=2", "train.accumulate=2").out
        self.assertRegex(out, r"\nbatch +24 images per rank and step \(batch\.global=48 over the 2 ranks of this config\), as 2 micro-batches\n")
        out = self.run_ctrain(*words, "batch.per_rank=24", "batch.global=0").out
        self.assertRegex(out, r"\nbatch +24 images per rank and step\n")

    def test_simulate_states_the_buckets(self):
        words = ("plan", self.config(), "--simulate", "1x1", "--step-ms", "4,8,1", "dist.first_bucket_mib=0.5")
        for size, says in ((0, "4 MiB"), (0.1, "0.1 MiB"),
                           ("auto", r"4 MiB \(dist\.bucket_mib=auto is chosen when training starts; 4 MiB is assumed\)")):
            self.assertRegex(self.run_ctrain(*words, f"dist.bucket_mib={size}").out, rf"\nbuckets +first cap 0\.5 MiB, cap {says}\n")

    def test_simulate_states_the_links_that_it_uses(self):
        words = ("plan", self.config(), "--step-ms", "4,8,1", "--link-intra", "pcie4", "--link-inter", "eth10", "--simulate")
        for shapes, links in (("1x1", []), ("1x1,2x1", ["across"]), ("1x2", ["within node"]), ("1x2,2x1", ["within node", "across"])):
            self.assertEqual(re.findall(r"\n(within node|across) ", self.run_ctrain(*words, shapes).out), links)

    def test_simulate_mistakes(self):
        for words, *says in ((("--simulate", "2x1"), "--link-inter", "between nodes", "hint: [^\n]*ib400"), (("--simulate", "1x2"), "--link-intra"),
                             (("--simulate", "2by1"), "--simulate 2by1"), (("--link-inter", "ib400"), "--link-inter needs --simulate"),
                             (("--simulate", "1x1", "--step-ms", "1,2"), "--step-ms 1,2"),
                             (("--simulate", "1x1", "--step-ms", "1,2,3", "--steps", 5), "--steps cannot be used with --step-ms"),
                             (("--simulate", "1x1", "launch.pipeline=2"), "does not model launch.pipeline=2"),
                             (("--simulate", "1x1", "--allreduce", "star"), "--allreduce star is not one of ring")):
            with self.subTest(words=words):
                self.assert_last_says(self.run_ctrain("plan", self.config(), *words, expect=USAGE), *says)

    def test_plan_does_not_train(self):
        r = self.run_ctrain("plan", self.config(), "optim.lr=0.2", f"run.dir={self.path('run')}", "--procs", 3)
        self.assertFalse(os.path.exists(self.path("run")))
        self.assertEqual(self.marked(), {})
        for word in ("ranks", "batch", "48 global", "lr ", "4970 parameters", "FLOP", "memory", "buckets", "MiB", "steps", "tiny.yaml:4"):
            self.assertIn(word, r.out)
        self.assertRegex(r.out, r"ranks +3 ")
        self.assertRegex(r.out, r"\n  optim:\n(    .*\n)*    lr: 0\.2 .*argument 3")
        self.assertNotRegex(r.out, r"# default|\n  checkpoint:|rank 0 +cpu|warm-up")

    def test_plan_shows_the_buckets(self):
        layers = ",".join(["linear 8", "relu"] * 30 + ["linear 10"])
        args = ("plan", self.config(), "model.name=layers", f"model.layers=[flatten,{layers}]", "dist.first_bucket_mib=0.0001", "--procs", 2)
        r = self.run_ctrain(*args, "dist.bucket_mib=0.0001", "--json").json()
        b = r["buckets"]
        self.assertEqual((b["cap_from"], b["cap_mib"], r["world_size"]), ("config", 0.0001, 2))
        self.assertEqual(sum(k["params"] for k in b["list"]), r["params"])
        self.assertEqual(sum(k["bytes"] for k in b["list"]), b["traffic_bytes"])
        self.assertGreaterEqual(b["traffic_bytes"], 4 * r["params"])
        done = [k["complete"] for k in b["list"]]
        self.assertEqual((done, done[-1]), (sorted(done), 1))
        # In the forward pass, the last layer takes 170 operations, 29 layers take 136 each, and the first one takes 2312. In the backward
        # pass, all but the first one take twice as many.
        self.assertAlmostEqual(done[0], 340 / (340 + 29 * 272 + 2312), delta=1e-9)
        self.assertEqual({k["type"] for k in b["list"]}, {"f32"})
        out = self.run_ctrain(*args, "dist.bucket_mib=0.0001").out
        self.assertRegex(out, rf"\nbuckets +{len(done)}, reduced in this order")
        lines = re.findall(r"\n  (\d+) +[\d.]+ f32 +\d+ +[\d.]+ %", out)
        self.assertEqual([int(n) for n in lines], [*range(12), *range(len(done) - 8, len(done))])
        self.assertIn(f"...   {len(done) - 20} buckets of 0.001 to 0.001 MiB", out)
        self.assertIn("dist.bucket_mib=auto: the cap is chosen at start", self.run_ctrain(*args, "dist.bucket_mib=auto").out)
        r = self.run_ctrain(*args, "dist.bucket_mib=auto", "--procs", 1, "--json").json()
        self.assertEqual(r["buckets"]["cap_from"], "default")  # nothing is measured

    def test_plan_counts_the_memory_of_evaluation(self):
        def activations(*sets):
            out = self.run_ctrain("plan", self.config(), "data.n_val=8192", *sets).out
            return float(re.search(r"activations ([\d.]+)", out)[1])
        self.assertGreater(activations("batch.eval=4096"), activations("batch.eval=64") + 1)
        self.assertLess(activations("data.val=none", "batch.eval=4096"), activations("batch.eval=4096") - 1)
        # A batch is never larger than the data set.
        self.assertEqual(activations("batch.eval=4096", "data.n_val=64"), activations("batch.eval=64", "data.n_val=64"))


    def time(self, *args, config=None):
        return self.run_ctrain("plan", config or self.config(), "--json", *args).json()["time"]

    def test_time(self):
        """The time of a training, and whether it was measured. 2 epochs of 21 steps; evaluations of 230 samples, 24 in a batch."""
        t = self.time("--step-ms", "24,48,4", "launch.procs=2")
        self.assertEqual((t["step_source"], t["evaluations"]), ("given", 2))
        for key, want in (("step_ms", 76), ("first_epoch_seconds", 21 * 0.076), ("evaluation_seconds", 115 * 0.001), ("total_seconds", 42 * 0.076 + 0.23)):
            self.assertAlmostEqual(t[key], want, places=9)
        # Two micro-batches; an evaluation every half epoch, and one at the end; later epochs with other images.
        self.assertAlmostEqual(self.time("--step-ms", "24,48,4", "launch.procs=2", "train.accumulate=2", "batch.global=48")["step_ms"], 148)
        counts = [self.time("--step-ms", "1,1,1", *s)["evaluations"] for s in (["train.eval_every=0.5"], ["train.max_steps=30"], ["train.eval_every=0"], ["data.val=none"])]
        self.assertEqual(counts, [4, 2, 1, 0])
        self.assertEqual(self.time("--no-measure")["step_source"], "unknown")
        for more in ((), ("--step-ms", "1,2,3")):
            t = self.time("launch.procs=2", "launch.pipeline=2", "model.name=convnet", *more)
            self.assertEqual(t["step_source"], "unknown")
            self.assertIn("pipeline", t["why"])
        t = self.time()
        self.assertEqual((t["step_source"], t["synthetic"], t["measured_rows"]), ("measured", False, 24))
        self.assertTrue(1 <= t["measured_steps"] <= 20 and 0 < t["step_ms"] * 42e-3 <= t["total_seconds"], t)

    def test_time_without_data(self):
        r = self.run_ctrain("plan", self.config("model: {name: resnet18}\ntrain: {epochs: 4}\ndata: {name: imagefolder}\nbatch: {per_rank: 64}\n"), "--procs", 1,
                            "--assume", "train=640,val=100,classes=10,size=96")
        self.assertRegex(r.out, r"time +about [0-9.hms]+: 40 steps of [0-9.]+ m?s \([0-9.hms]+ for the first epoch\), and 4 evaluations of [0-9.hms]+\n")
        self.assertRegex(r.out, r"step: predicted from \d+ steps? of one rank with \d+ threads? and \d+ samples instead of 64 and synthetic samples; evaluation: predicted")
        self.assertRegex(r.out, r"not included: checkpoints, reading and decoding of samples\n")
        sizes = [self.time("--step-ms", "1,1,0", "--procs", 1, "--assume", "train=6400,classes=10", f"data.train.size={s}", "train.epochs=2", config=self.path("tiny.yaml"))["total_seconds"] for s in ("64", "[[0,64],[1,128]]")]
        self.assertAlmostEqual(sizes[1], sizes[0] * 2.5)


class Bottleneck(Case):
    def hog(self, cpu):
        """A busy loop on one CPU, which has begun when this returns. In a session of its own: the scheduler may give each session, not each
        process, the same share of a CPU."""
        def on_cpu():
            die_with_parent()
            os.sched_setaffinity(0, {cpu})
        p = subprocess.Popen([sys.executable, "-c", "import os\nos.write(1, b'1')\nwhile True: pass"], stdout=subprocess.PIPE,
                             preexec_fn=on_cpu, start_new_session=True)
        self.addCleanup(lambda: (p.kill(), p.wait(), p.stdout.close()))
        self.assertEqual(p.stdout.read(1), b"1")

    def test_other_programs(self):
        """What waits for a CPU is not called communication. Both ranks share one CPU with four busy loops, so one of them waits for it most
        of the time, and there is a busy loop on every CPU of the host: what else runs on the machine can only add to that."""
        cpus = sorted(os.sched_getaffinity(0))
        for cpu in [*cpus, *[cpus[0]] * 3]:
            self.hog(cpu)
        self.train("data.n_train=20000", "train.epochs=4", "model.hidden=[256,256]", "train.eval_every=0", "log.every=100", timeout=180,
                   preexec_fn=lambda: os.sched_setaffinity(0, {cpus[0]}))
        epochs = self.metrics(kind="epoch")
        self.assertEqual(len(epochs), 4)
        found = [e for e in epochs if e["bound_by"] == "other programs"]
        self.assertGreaterEqual(len(found), 3, epochs)
        self.assertRegex(found[0]["verdict"], r"^bound by other programs: they used \d+ % of the \d+ CPUs?; rank [01] was ready to run, but had no CPU, for \d+ %")


class Exposed(Case):
    def until_blocked(self, pid, process):
        """Waits until the main thread of a process sleeps, and has used no CPU time in many looks at it."""
        looks = []

        def blocked():
            fields = read_text(f"/proc/{pid}/task/{pid}/stat").rpartition(")")[2].split()
            looks.append((fields[0], *fields[11:13]))
            return fields[0] == "S" and len(looks) >= 50 and len(set(looks[-50:])) == 1
        self.until(blocked, f"process {pid} waited", process)

    def test_batch_norm(self):
        """The time for which a rank waits for another one in the middle of the forward pass is exposed communication."""
        p = self.start_training("model.name=layers", "model.layers=[conv2d 4 kernel=3, batch_norm, relu, flatten, linear 10]", "model.bn=sync",
                                "train.epochs=1", env={"CTRAIN_FAILPOINT": "step:7@1=stop"})
        pid = self.until_stopped(1, p)
        self.until_blocked(self.rank_pid(0), p)
        start = time.monotonic()
        while time.monotonic() - start < 0.3:
            pause()
        waited = time.monotonic() - start
        os.kill(pid, signal.SIGCONT)
        self.assert_code(p.wait(), OK)
        self.assertGreaterEqual(sum(m["exposed_comm_ms"] for m in self.metrics(kind="step")), 1000 * waited)

    def test_single_rank(self):
        self.train("--procs", 1, "train.epochs=1")
        self.assertEqual({m["exposed_comm_ms"] for m in self.metrics(kind="step")}, {0})


class Weights(Case):
    def test_few_that_fit(self):
        """model.strict=false says on the console and in the log how much of a file was used, and what was not."""
        self.train("train.max_steps=2", run="other")
        r = self.train("model.hidden=[40,10]", "model.strict=false", f"model.weights={self.path('other')}", "train.max_steps=2")
        said = r"only 1 of the model's 6 tensors were loaded from \S+; the other 5 start from random values\. [^\n]*fc1\.weight"
        self.assert_says(r, said)
        self.assertRegex(read_text(self.path("run", "log", "rank-00000.log")), said)


class BenchStep(Case):
    def test_allocations_and_medians(self):
        """The program of an epoch's smaller last batch is not an allocation of a step; phases are medians, as the step is."""
        config = self.config(TINY.replace("procs: 2", "procs: 1"))
        j = self.run_ctrain("bench", "step", config, "--steps", 63, "--json").json()  # 21 steps an epoch, the last one of 40 rows
        self.assertEqual((j["allocations"], j["loader_allocations"]), (0, 0))
        parts = sum(j[key] for key in ("data_ms", "forward_ms", "backward_ms", "optim_ms"))
        self.assertLess(parts, 1.5 * j["step_ms_median"])


class Submit(Case):
    def test_no_job_id(self):
        """An sbatch, such as a wrapper of a site, that succeeds but does not print the id of the job."""
        for printed in ("", "\n"):
            os.chmod(self.write("bin/sbatch", f"#!/bin/sh\nprintf '{printed}'\n"), 0o755)
            r = self.run_ctrain("slurm", self.config(), "--submit", expect=IO, env={"PATH": self.path("bin") + ":" + os.environ["PATH"]})
            self.assert_last_says(r, r"sbatch \S*\.sbatch succeeded, but did not print the id", "hint: .*squeue")


class Words(Case):
    def test_epochs_count_from_one(self):
        """On the console and in messages, a NaN has no sign, and one epoch is one."""
        r = self.train("data.name=synthetic_regression", "model.name=mlp", "optim.lr=1000", "optim.momentum=0.9", "train.epochs=3", expect=NUMERIC)
        self.assert_last_says(r, r"the loss is (nan|-?inf) at step [0-9]+ \(epoch 1\)")
        self.assertNotIn("-nan", r.err + r.out)
        out = self.run_ctrain("check", self.config(), "train.epochs=1").out + self.run_ctrain("plan", self.config(), "train.epochs=1").out
        self.assertRegex(out, r"1 epoch\n")
        self.assertRegex(out, r"\(1 epoch\)")
        self.assertNotIn("1 epochs", out)

    def test_data_warnings_once(self):
        """What every rank finds in the same data is on the console once, and in each rank's log."""
        pixels = struct.pack(">I", 0) * 8
        chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        png = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)) +
               chunk(b"IDAT", zlib.compress((b"\0" + pixels[:24]) * 8)) + chunk(b"IEND", b""))
        for split in ("train", "val"):
            for i in range(8):
                self.write(f"d/{split}/class_{i % 2}/{i}.png", png)
            os.mkdir(self.path("d", split, "empty"))
        config = self.config("model: {name: layers, layers: [conv2d 4 kernel=3, global_avg_pool, linear 3]}\ntrain: {epochs: 1}\nbatch: {global: 4}\n"
                             f"data: {{name: imagefolder, dir: {self.path('d')}, train: {{path: train, size: 8}}}}\nlaunch: {{procs: 2, threads: 1}}\n", "images.yaml")
        r = self.train(config=config)
        for split in ("train", "val"):
            self.assertEqual(len(re.findall(rf"warn [^\n]*d/{split}: [^\n]*empty", r.err)), 1, r.err)
            for rank in (0, 1):
                self.assertRegex(read_text(self.path("run", "log", f"rank-0000{rank}.log")), rf"d/{split}: [^\n]*empty")


class NotFinite(Case):
    """The report after a loss that is not finite names the layer, the rank and the samples."""

    def report(self, *sets, run, config=None):
        r = self.train("optim.lr=1000", *sets, run=run, config=config, expect=NUMERIC)
        with open(self.path(run, "nan.json"), encoding="utf-8") as f:
            return r, json.load(f)

    def test_output_of_a_layer(self):
        """Every number is that of the failed step. Samples of one rank are those of two."""
        images = self.config(TINY.replace("{name: synthetic, n_train: 1000, n_val: 230, shape: [1, 12, 12]}",
                                          "{name: imagefolder, dir: %s, train: {path: ., size: 12}, val: none}" % self.path("src")), "images.yaml")
        for i in range(96):
            self.write(f"src/c{i % 3}/{50 * 'é'}{i:03d}.png", png(12, 12, i))  # the message contains the complete names
        reports = {}
        for procs in (1, 2):
            r, j = self.report("--procs", procs, "train.epochs=9", run=f"run{procs}", config=images)
            reports[procs] = j
            step = j["step"]
            self.assertEqual((j["v"], j["epoch"], j["first"], j["op"], j["rank"]), (1, (step - 1) // 2, "activation", "linear", 0))
            said = rf"at step {step} .*; the first values that are not finite are in the output of layer {j['layer']} \(linear\)"
            said += r" on rank 0" if procs > 1 else ""
            self.assert_last_says(r, said + rf": {j['not_finite']} of {j['values']} values", r"hint: .*nan\.json")
            self.assertGreater(j["not_finite"], 0)
            self.assertEqual(j["values"] % (48 // procs), 0)
            # The layers before it are finite and grow; the weights are finite.
            self.assertEqual([layer["not_finite"] for layer in j["layers"]], [0] * (len(j["layers"]) - 1) + [j["not_finite"]])
            self.assertEqual(j["layers"][-1]["name"], j["layer"])
            self.assertEqual([w["not_finite"] for w in j["weights"]], [0] * len(j["weights"]))
            logged = self.metrics(f"run{procs}", "step")
            self.assertEqual([m["step"] for m in j["last_steps"]], list(range(1, step)))
            for a, b in zip(j["last_steps"], logged):
                self.assertEqual([a[k] for k in ("step", "loss", "lr", "grad_norm", "weight_norm")],
                                 [b[k] for k in ("step", "loss", "lr", "grad_norm", "weight_norm")])
            samples = [s["sample"] for s in j["samples"]]
            self.assertEqual(len(set(samples)), 48 // procs)
            for s in j["samples"]:
                self.assertIn("src/c", s["where"])
            for i in j["suspicious_samples"]:
                self.assertIn(i, samples)
                self.assertRegex(r.err, rf"{i} \(c\d/é{{50}}\d+\.png\)")
            if j["suspicious_samples"]:
                command = re.search(r"`ctrain (data show [^`]*)`", r.err)[1].split()
                self.assertEqual(command[3:], [str(i) for i in j["suspicious_samples"]])
                self.run_ctrain(*command, "--force", "--out", self.path("grid.png"))
            line, = self.metrics(f"run{procs}", "nan")
            self.assertEqual([line[k] for k in ("step", "layer", "rank", "message")], [j[k] for k in ("step", "layer", "rank", "message")])
            self.assertIn("The loss or the gradient is not finite: " + j["message"], read_text(self.path(f"run{procs}", "report.html")))
        if reports[1]["step"] == reports[2]["step"]:  # with other instructions of the CPU, rounding may decide
            self.assertEqual(reports[2]["samples"], reports[1]["samples"][:24])
        # The file is that of the last failure only.
        self.train("train.resume=never", "optim.lr=0.01", "train.max_steps=1", run="run1", config=images)
        self.assertFalse(os.path.exists(self.path("run1", "nan.json")))

    def test_statistics_of_a_batch_norm(self):
        """A variance that is out of range makes the results of a norm 0: only its statistics show which layer it is."""
        sets = ("model.name=resnet20", "data.shape=[3,16,16]", "data.n_train=192", "data.val=none")
        for bn in ("local", "sync"):
            _, j = self.report(*sets, f"model.bn={bn}", run=bn)
            self.assertEqual((j["first"], j["op"]), ("statistics", "batch_norm"))
            self.assertEqual([layer["not_finite"] for layer in j["layers"]], [0] * len(j["layers"]))

    def test_sum_of_the_ranks(self):
        """The gradients of each rank are finite, but their sum in fp16 is not. A pipeline has only the last steps."""
        r, j = self.report("dist.reduce_dtype=fp16", run="sum")
        self.assert_last_says(r, "all values of each rank are finite, but the sum of their gradients is not")
        r, j = self.report("launch.pipeline=2", "train.accumulate=2", run="pipeline")
        self.assertEqual([m["step"] for m in j["last_steps"]], list(range(1, j["step"])))
        self.assertNotIn("layer", j)


class Evaluate(Case):
    def test_run_directory(self):
        """`eval RUN` and `eval RUN/checkpoints/STEP` are `eval CONFIG --checkpoint ...`, wherever the run was moved to."""
        self.train("checkpoint.keep_last=5", run="first")
        os.rename(self.path("first"), self.path("moved"))
        numbers = lambda j: (j["loss"], j["top1"], j["count"])
        run = f"run.dir={self.path('moved')}"
        for what in ("best", "last"):
            want = self.run_ctrain("eval", self.config(), run, "--checkpoint", what, "--json").json()
            for args in ((self.path("moved"), "--checkpoint", what), (self.path("moved", "checkpoints", what),)):
                j = self.run_ctrain("eval", *args, "--json").json()
                self.assertEqual(numbers(j), numbers(want))
        self.assertEqual(numbers(self.run_ctrain("eval", self.path("moved"), "--json").json()),
                         numbers(self.run_ctrain("eval", self.config(), run, "--json").json()))
        # Keys and ranks as with a config.
        j = self.run_ctrain("eval", "moved", "data.n_val=100", "--json").json()
        self.assertEqual(j["count"], 100)
        j = self.run_ctrain("eval", "moved", "--procs", 1, "--json").json()
        self.assertEqual(j["count"], 230)
        os.mkdir(self.path("empty"))
        self.assert_last_says(self.run_ctrain("eval", self.path("empty"), expect=USAGE), "neither a run directory nor a checkpoint", "hint:")
        r = self.run_ctrain("eval", self.path("moved", "checkpoints", "best"), "--checkpoint", "last", expect=USAGE)
        self.assert_last_says(r, "is already a checkpoint")


class Dump(Case):
    def test_normalization(self):
        """The mean and the standard deviation that are in effect are shown as comments: the dump loads to the same config."""
        for sets, mean, std in ((["data.name=mnist"], "0.1307", "0.3081"), (["data.name=imagefolder"], "0.485, 0.456, 0.406", "0.229, 0.224, 0.225")):
            for origins, before in (([], "  # "), (["--origins"], "  # default, ")):
                text = self.run_ctrain("config", "dump", self.config("model: {name: resnet18}\ntrain: {epochs: 1}\n"), *sets, *origins).out
                self.assertIn(f"  mean: []{before}in effect: [{mean}]\n  std: []{before}in effect: [{std}]\n", text)
                again = self.run_ctrain("config", "dump", self.config(text, "again.yaml")).out
                self.assertEqual(re.sub("  #.*", "", again), re.sub("  #.*", "", text))
        text = self.run_ctrain("config", "dump", self.config(), "data.mean=[0.5]", "data.std=[0.5]").out
        self.assertIn("  mean: [0.5]\n  std: [0.5]\n", text)
        text = self.run_ctrain("config", "dump", self.config(), "data.shape=[64,8,8]").out  # more channels than a normalization may have
        self.assertNotIn("in effect", text)


class Mistakes(Case):
    def test_directory_instead_of_a_config(self):
        os.mkdir(self.path("images"))
        self.assert_last_says(self.run_ctrain(self.path("images"), expect=USAGE), "not a regular file but a directory; if it contains images, `ctrain init ")
        self.write("run/config.yaml", TINY)
        self.assert_last_says(self.run_ctrain("check", self.path("run"), expect=USAGE), "the configuration in it is .*run/config.yaml")

    def test_launch_options_in_help(self):
        """The page of a command that starts no ranks does not list them."""
        self.assertIn("--master-addr", self.run_ctrain("help", "train").out)
        self.assertNotIn("--master-addr", self.run_ctrain("help", "predict").out)


class BugReport(Case):
    def test_report_of_a_run(self):
        """The report has what a developer asks for, and no secrets."""
        self.train("train.max_steps=2", "on.end=true https://hooks.example/SECRET1", "model.weights=", run="run")
        with open(self.path("run", "log", "rank-00000.log"), "a", encoding="utf-8") as f:
            f.write("a" * 100000 + "\n" + "".join(f"line {i} of https://me:SECRET2/a@host/x?token=SECRET4\n" for i in range(40)))
            f.write("tcp://host:29500\nfrom user@host\n")
        env = {"CTRAIN_TOKEN": "SECRET3", "NCCL_DEBUG": "WARN", "OMP_NUM_THREADS": "3", "HARMLESS": "unrelated"}
        r = self.run_ctrain("info", "--report", self.path("run"), env=env)
        for part in (re.escape(self.run_ctrain("version").out.split()[1]), r"compiler +\w+", "memory +[0-9]", "libraries .*libyaml", "onednn",
                     "CTRAIN_TOKEN=\\(removed\\)", "NCCL_DEBUG=WARN", "OMP_NUM_THREADS=3", "train.max_steps: 2\n", "on.end: \\(removed\\)",
                     '"kind":"end"', "line 39 of https://\\(removed\\)@host/x\\?\\(removed\\)\ntcp://host:29500\nfrom user@host\n", "Last lines of log/rank-00000.log"):
            self.assertRegex(r.out, part)
        for absent in ("SECRET", "HARMLESS", "line 19 ", "schedule.name"):
            self.assertNotIn(absent, r.out)
        self.assertEqual(r.out.count("```\n") % 2, 0)
        self.assert_says(r, "before you publish")

    def test_without_a_run(self):
        self.run_ctrain("info", "--report", "--out", self.path("report.md"))
        self.assertIn("### ctrain ", read_text(self.path("report.md")))
        self.assert_last_says(self.run_ctrain("info", "--report", self.path(), expect=DATA), "is not a run directory", "ctrain runs")
        self.assert_last_says(self.run_ctrain("info", "runs/x", expect=USAGE), "needs --report to describe a run", "ctrain info --report runs/x")


if __name__ == "__main__":
    main()
