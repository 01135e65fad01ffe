"""Training on compressed images: directories and shards, unreadable samples, growing sizes, resumes, prediction; bfloat16 and batch norm over ranks."""

import io
import json
import os
import random
import re
import signal
import struct
import tarfile

from harness import DATA, OK, SOURCE, USAGE, Case, both_ways_to_save, main, png_file, read_text, shared

CLASSES = ("cat", "dog", "fox", "owl")
# Ends in a global average, so images may have any size. Without batch norm: the same for any number of ranks.
MODEL = "[conv2d 8 kernel=3 padding=1 stride=2, relu, conv2d 8 kernel=3 padding=1, relu, global_avg_pool, flatten, linear 4]"
CONFIG = """\
model: {name: layers, layers: %s}
data:
  name: %%s
  dir: %%s
  train: {path: %%s, size: 24}
  val: {path: %%s, size: 24}
  workers: 1
  augment: {flip: true, brightness: 0.3, erasing: 0.2}
batch: {global: 12, eval: 8}
optim: {lr: 0.05, momentum: 0.9}
train: {epochs: 2}
launch: {procs: 2, threads: 1}
log: {every: 1}
""" % MODEL


def png(w, h, seed, colour):
    """Noise around a color."""
    rng = random.Random(seed)
    rows = b"".join(b"\0" + bytes(min(255, c + rng.randrange(60)) for _ in range(w) for c in colour) for _ in range(h))
    return png_file(w, h, rows)


def pictures(n, seed):
    """n pairs (label, PNG), of various sizes; the color depends on the label."""
    rng = random.Random(seed)
    out = []
    for i in range(n):
        label = i % 4
        colour = [(160, 30, 30), (30, 160, 30), (30, 30, 160), (120, 120, 20)][label]
        out.append((label, png(rng.randint(20, 48), rng.randint(20, 48), seed * 1000 + i, colour)))
    return out


class Images(Case):
    def folder(self, split, n, seed):
        for i, (label, data) in enumerate(pictures(n, seed)):
            self.write(f"data/{split}/{CLASSES[label]}/{i:04d}.png", data)

    def shards(self, split, n, seed, per_shard=10, bad=()):
        samples = pictures(n, seed)
        for first in range(0, n, per_shard):
            path = self.path("data", f"{split}-{first // per_shard:06d}.tar")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with tarfile.open(path, "w") as tar:
                for i, (label, data) in enumerate(samples[first:first + per_shard], first):
                    data = data[:60] if i in bad else data
                    for ending, body in (("png", data), ("cls", str(label).encode())):
                        info = tarfile.TarInfo(f"sample{i:04d}.{ending}")
                        info.size = len(body)
                        tar.addfile(info, io.BytesIO(body))

    def sharded(self, n=50, bad=(), bad_val=(), name="shards.yaml"):
        self.shards("train", n, 1, bad=bad)
        self.shards("val", 21, 2, bad=bad_val)
        return self.config(CONFIG % ("shards", self.path("data"), "train-*.tar", "val-*.tar"), name)

    def killed(self, *sets, at, timeout=60, **more):
        """A run of which one rank is killed at a failpoint."""
        r = self.start_training(*sets, env={"CTRAIN_FAILPOINT": at}, **more).wait(timeout)
        self.assertNotIn(r.code, (0, 2, 3), r.describe())

    def log(self, run="run"):
        folder = self.path(run, "log")
        return "".join(read_text(os.path.join(folder, n)) for n in sorted(os.listdir(folder)))


class Training(Images):
    def test_folder(self):
        self.folder("train", 50, 1)
        self.folder("val", 21, 2)
        config = self.config(CONFIG % ("imagefolder", self.path("data"), "train", "val"))
        r = self.train("train.epochs=6", config=config)
        self.assert_quiet(r)
        epochs, evals = self.metrics(kind="epoch"), self.metrics(kind="eval")
        self.assertEqual([e["images"] for e in epochs], [50] * 6)
        self.assertEqual([e["count"] for e in evals], [21] * 6)
        self.assertEqual({e["bad_samples"] for e in epochs + evals}, {0})
        self.assertLess(epochs[-1]["train_loss"], epochs[0]["train_loss"])
        for e in epochs:
            self.assertRegex(e["verdict"], f"^bound by {'rank [01]' if e['bound_by'] == 'rank' else e['bound_by']}: ")
        self.assertIn(epochs[0]["verdict"], r.err + r.out)
        self.assertEqual(read_text(self.path("run", "classes.txt")), "0 cat\n1 dog\n2 fox\n3 owl\n")
        shown = self.run_ctrain("eval", config, f"run.dir={self.path('run')}", "--checkpoint", "last", "--json").json()
        self.assertEqual(shown["count"], 21)
        self.assertAlmostEqual(shown["loss"], evals[-1]["loss"], places=5)
        # Several ranks, and without the training data.
        os.rename(self.path("data", "train"), self.path("data", "gone"))
        for procs in (1, 3):
            several = self.run_ctrain("eval", config, f"run.dir={self.path('run')}", "--checkpoint", "last", "--json", "--procs", procs).json()
            self.assertEqual(several["count"], 21)
            self.assertAlmostEqual(several["loss"], shown["loss"], places=6)
            self.assertEqual(several["top1"], shown["top1"])
        # Labels of other classes would only look like a bad model.
        os.rename(self.path("data", "val", "cat"), self.path("data", "val", "zebra"))
        r = self.run_ctrain("eval", config, f"run.dir={self.path('run')}", "--checkpoint", "last", expect=DATA)
        self.assert_last_says(r, 'class 0 was "cat" in training .*classes.txt.*, but is "dog" in the evaluation data', "classes_file")

    def test_damaged_images_are_counted(self):
        """A JPEG without its end can be decoded, with a warning: used, but neither silently nor as a bad sample."""
        with open(os.path.join(SOURCE, "tests", "fuzz", "corpus", "jpeg", "444"), "rb") as f:
            jpeg = f.read()[8:]
        for split, n in (("train", 48), ("val", 12)):
            for i in range(n):
                self.write(f"data/{split}/{CLASSES[i % 4]}/{i:04d}.jpg", jpeg[:-2] if i in (3, 17, 20) else jpeg)
        config = self.config(CONFIG % ("imagefolder", self.path("data"), "train", "val"))
        r = self.train("data.workers=0", config=config)
        for e in self.metrics(kind="epoch"):
            self.assertEqual((e["damaged_images"], e["bad_samples"]), (3, 0))
        self.assertRegex(r.out, "epoch 1  3 images are damaged.*ctrain data check")
        self.assertIn("epoch 2: 3 damaged images were decoded", self.log())

    def test_sizes_by_epoch(self):
        config = self.sharded()
        sets = ("data.train.size=[[0,16],[1,24]]", "data.val.size=32", "train.epochs=3")
        self.train(*sets, run="whole", config=config)
        self.assertIn("training images are now 24x24", self.log("whole"))
        # Saved within the epoch of the larger images, and gone on with.
        self.killed(*sets, "checkpoint.every_steps=7", "checkpoint.background=false", config=config, at="step:8@1")
        self.train(*sets, config=config)
        self.assertEqual(self.metrics(kind="run")[-1]["resumed_step"], 7)
        self.assertEqual(self.digest(), self.digest("whole"))
        # Planned for are the largest images, whenever they come.
        planned = [float(re.search(r"activations ([\d.]+)", self.run_ctrain("plan", config, f"data.train.size={s}", "data.val=none").out)[1])
                   for s in ("16", "[[0,16],[1,64]]", "[[0,64],[1,16]]")]
        self.assertGreater(planned[1], 4 * planned[0])
        self.assertEqual(planned[1], planned[2])
        # Epochs count from 1 where people read, from 0 in the configuration.
        self.assertIn("from epoch 2 on 24x24", self.run_ctrain("plan", config, *sets).out)
        # What training said of the larger evaluation images is what a program made for them alone says.
        shown = self.run_ctrain("eval", config, f"run.dir={self.path('run')}", *sets, "--checkpoint", "last", "--json", "--procs", 1).json()
        self.assertAlmostEqual(shown["loss"], self.metrics(kind="eval")[-1]["loss"], places=5)
        r = self.train(*sets, "model.name=convnet", run="convnet", config=self.config(read_text(config).replace(MODEL, "[]"), "c.yaml"),
                       expect=USAGE)
        self.assert_last_says(r, "for 24x24, fc.weight would have", "global_avg_pool")

    def test_resnet_options(self):
        """What belongs to ResNets only, mixed labels and a large-batch optimizer: all of it trains."""
        self.train("model.zero_gamma=true", "model.drop_path=0.2", "model.label_smoothing=0.1",
                   "data.augment.mixup=0.2", "data.augment.cutmix=1", "data.augment.rand_augment=2", "optim.name=lars", "schedule.name=cosine",
                   "schedule.warmup_epochs=1", "optim.lr_rule=linear",
                   "train.ema=0.9", "train.recompute=blocks", "model.bn=broadcast", "train.epochs=2",
                   config=self.config(read_text(self.sharded()).replace(f"name: layers, layers: {MODEL}", "name: resnet20"), "r.yaml"))
        self.assertEqual(self.metrics(kind="eval")[-1]["count"], 21)


class BadSamples(Images):
    BAD, BAD_VAL = (3, 17, 18, 40), (0, 20)

    def test_stages(self):
        """Every stage of a pipeline loads the same batches, of images that grow and are mixed; unreadable samples count once."""
        config = self.sharded(bad=self.BAD, bad_val=self.BAD_VAL)
        sets = ("data.max_bad=4", "data.train.size=[[0,16],[1,24]]", "data.val.size=32", "data.augment.mixup=0.2", "train.accumulate=3")
        self.train(*sets, "--procs", 1, run="whole", config=config)
        self.train(*sets, "--procs", 2, "launch.pipeline=2", run="stages", config=config)
        expected = self.losses("whole")
        for step, loss in self.losses("stages").items():
            self.assertAlmostEqual(loss / expected[step], 1, delta=1e-6, msg=f"step {step}")
        self.assertEqual([e["bad_samples"] for e in self.metrics("stages", "epoch")], [len(self.BAD)] * 2)
        for a, b in zip(self.metrics("stages", "eval"), self.metrics("whole", "eval")):
            self.assertEqual((a["count"], a["bad_samples"], a["top1"]), (19, 2, b["top1"]))
            self.assertAlmostEqual(a["loss"] / b["loss"], 1, delta=1e-6)

    def test_stages_without_evaluation(self):
        """Images grow between two steps, and no evaluation has needed more memory before."""
        config = self.sharded(bad=(), bad_val=())
        sets = ("data.val=none", "data.train.size=[[0,16],[1,40]]", "train.accumulate=3")
        self.train(*sets, "--procs", 1, run="whole", config=config)
        self.train(*sets, "--procs", 2, "launch.pipeline=2", run="stages", config=config)
        expected = self.losses("whole")
        for step, loss in self.losses("stages").items():
            self.assertAlmostEqual(loss / expected[step], 1, delta=1e-6, msg=f"step {step}")

    def test_stages_stopped_by_a_bad_sample(self):
        """A stage that fails while values are being sent ends the run with its own message."""
        config = self.sharded(bad=self.BAD, bad_val=())
        for backend in "shm", "gloo":
            r = self.train("data.max_bad=0", "train.accumulate=4", "--procs", 2, "launch.pipeline=2", f"dist.backend={backend}", run=backend,
                           config=config, expect=DATA)
            self.assert_last_says(r, "data.max_bad|unreadable")

    def test_budget(self):
        config = self.sharded(bad=self.BAD, bad_val=self.BAD_VAL)
        self.train("data.max_bad=4", config=config)
        # In every epoch, though the log names each of them once.
        self.assertEqual([e["bad_samples"] for e in self.metrics(kind="epoch")], [len(self.BAD)] * 2)
        self.assertEqual([e["images"] for e in self.metrics(kind="epoch")], [50, 50])
        for e in self.metrics(kind="eval"):
            self.assertEqual((e["count"], e["bad_samples"]), (19, 2))
        log = self.log()
        for i in self.BAD:
            self.assertRegex(log, rf'train-{i // 10:06d}\.tar: key "sample{i:04d}" at byte \d+: png-\w+: ')
        for i in self.BAD_VAL:
            self.assertRegex(log, rf'val-{i // 10:06d}\.tar: key "sample{i:04d}"')
        for run, sets in (("few", ("data.max_bad=3",)), ("none", ("data.max_bad=0",)), ("share", ("data.max_bad=0.05",))):
            with self.subTest(sets=sets):
                r = self.train(*sets, run=run, config=config, expect=DATA)
                self.assert_last_says(r, "data.max_bad|samples of shards are unreadable", "data check")
        r = self.train("data.max_bad=1", "train.epochs=1", run="val", config=self.sharded_again(), expect=DATA)
        self.assert_last_says(r, "2 of 21 evaluation samples", "data.max_bad")

    def test_odd_shards(self):
        """Samples with the key of another one and a file that ends inside a member's padding are used, with a warning on the console."""
        config = self.sharded()
        twice, cut = self.path("data", "train-000001.tar"), self.path("data", "train-000003.tar")
        with tarfile.open(twice) as tar:
            members = [(m, tar.extractfile(m).read()) for m in tar.getmembers()]
        with tarfile.open(twice, "w") as tar:
            for info, body in members + members[:4]:
                tar.addfile(info, io.BytesIO(body))
        with tarfile.open(cut) as tar:
            last = tar.getmembers()[-1]
        self.assertLess(last.size, 500)
        os.truncate(cut, last.offset_data + last.size + 10)
        r = self.train("train.epochs=1", config=config)
        self.assert_says(r, r"train-000001\.tar: duplicate-key: 2 samples", r"train-000003\.tar: truncated: the file ends inside the padding")
        self.assertEqual(self.metrics(kind="epoch")[0]["images"], 52)

    def test_budget_over_a_resume(self):
        """What was met before a resume counts in the budget, and in what is told of the epoch."""
        config = self.sharded(bad=self.BAD)
        for run, allowed in (("enough", 4), ("few", 3)):
            sets = (f"data.max_bad={allowed}", "data.shuffle=none", "checkpoint.every_steps=2", "checkpoint.background=false")
            # Three of them lie in the two steps before the checkpoint, the last behind it.
            self.killed(*sets, run=run, config=config, at="step:3@0")
            r = self.train(*sets, run=run, config=config, expect=OK if allowed == 4 else DATA)
            self.assertEqual(self.metrics(run, "run")[-1]["resumed_step"], 2)
            self.assertEqual([e["bad_samples"] for e in self.metrics(run, "epoch")], [4, 4] if allowed == 4 else [])
        self.assert_last_says(r, "4 samples of this epoch", "data.max_bad allows 3")

    def test_nothing_to_evaluate(self):
        r = self.train("data.max_bad=100", "train.epochs=1", config=self.sharded(bad_val=range(21)), expect=DATA)
        self.assert_last_says(r, "none of the 21 evaluation samples")

    def sharded_again(self):
        self.shards("train", 50, 1)
        return self.path("shards.yaml")

    def test_same_replacements(self):
        """Any number of loader threads and of ranks puts the same samples in the places of bad ones."""
        config = self.sharded(bad=self.BAD)
        losses = []
        for i, sets in enumerate((("data.workers=0",), ("data.workers=3",), ("--procs", 1), ("--procs", 3))):
            self.train("data.max_bad=8", *sets, run=f"run-{i}", config=config)
            losses.append(self.losses(f"run-{i}"))
        self.assertEqual(losses[0], losses[1])
        for other in losses[2:]:
            for step, loss in losses[0].items():
                self.assertAlmostEqual(other[step] / loss, 1, delta=1e-6, msg=f"step {step}")

    def test_shard_vanishes(self):
        """After the index was made: every sample of it is a bad one."""
        config = self.sharded()
        self.train(run="before", config=config)
        os.truncate(self.path("data", "train-000002.tar"), 2048)
        r = self.train("run.seed=2", "data.max_bad=2", run="after", config=config, expect=DATA)
        self.assert_says(r, "train-000002.tar")


@both_ways_to_save
class Resumed(Images):
    def test_killed_in_mid_epoch(self):
        config = self.sharded()
        sets = ("checkpoint.every_steps=2", "data.augment.mixup=0.5", "train.epochs=3")
        self.train(*sets, run="whole", config=config)
        for workers in (0, 1, 3):
            with self.subTest(workers=workers):
                run = f"run-{workers}"
                p = self.start_training(*sets, "data.workers=2", run=run, config=config, env={"CTRAIN_FAILPOINT": "step:8@0=stop"})
                self.until_stopped(0, p)
                p.signal(signal.SIGKILL)
                p.wait()
                self.until(lambda: not self.marked(), "everything was gone", None, 5)
                self.train(*sets, f"data.workers={workers}", run=run, config=config)
                # Unless training waits for it, the save of step 6 may still be written; that of step 5 ends the epoch.
                self.assertIn(self.metrics(run, "run")[-1]["resumed_step"], (6,) if self.always else (5, 6))
                self.assertEqual(self.digest(run), self.digest("whole"))
                self.assertEqual(self.losses(run), self.losses("whole"))

    def test_on_another_world_size(self):
        """The same samples in the same order, distorted in the same way: the same losses."""
        config = self.sharded()
        self.train("train.epochs=3", run="whole", config=config)
        for first, second in ((2, 1), (1, 3), (3, 2)):
            with self.subTest(first=first, second=second):
                run = f"run-{first}-{second}"
                self.killed("train.epochs=3", "checkpoint.every_steps=4", "--procs", first, run=run, config=config, at="step:9@0")
                self.train("train.epochs=3", "--procs", second, run=run, config=config)
                self.assertEqual([m["world_size"] for m in self.metrics(run, "run")], [first, second])
                for step, loss in self.losses("whole").items():
                    self.assertAlmostEqual(self.losses(run)[step] / loss, 1, delta=1e-6, msg=f"step {step}")

    def test_batch_cut_another_way(self):
        """A run with a batch per rank goes on with other ranks, as long as the global batch is the same."""
        config = self.sharded()
        sets = ("train.epochs=3", "batch.per_rank=6", "checkpoint.every_steps=4")
        self.train(*sets, run="whole", config=config)
        for i, cut in enumerate((("--procs", 1, "batch.per_rank=12"), ("--procs", 3, "batch.global=12"),
                                 ("--procs", 1, "batch.per_rank=6", "train.accumulate=2"))):
            with self.subTest(cut=cut):
                run = f"run-{i}"
                self.killed(*sets, run=run, config=config, at="step:9@0")
                self.train("train.epochs=3", *cut, run=run, config=config)
                self.assertIn(self.metrics(run, "run")[-1]["resumed_step"], (8,) if self.always else (5, 8))
                for step, loss in self.losses("whole").items():
                    self.assertAlmostEqual(self.losses(run)[step] / loss, 1, delta=1e-6, msg=f"step {step}")
        r = self.train("train.epochs=3", "--procs", 1, "batch.per_rank=6", run="whole", config=config, expect=USAGE)
        self.assert_last_says(r, "global batch was 12 and is now 6", "batch.global=12")

    def test_accumulated_as_at_once(self):
        config = self.sharded()
        self.train(run="once", config=config)
        for parts, procs in ((2, 2), (3, 1), (6, 1)):
            run = f"parts-{parts}"
            self.train(f"train.accumulate={parts}", "--procs", procs, run=run, config=config)
            for step, loss in self.losses("once").items():
                self.assertAlmostEqual(self.losses(run)[step] / loss, 1, delta=1e-6, msg=f"step {step}, {parts} parts")


class Prediction(Images):
    def test_predict(self):
        self.folder("train", 80, 1)
        self.folder("val", 20, 2)
        config = self.config(CONFIG % ("imagefolder", self.path("data"), "train", "val"))
        self.train("train.epochs=12", config=config)
        self.assertGreater(self.metrics(kind="eval")[-1]["top1"], 0.7)
        files = [self.path("data", "val", c, n) for c in CLASSES for n in sorted(os.listdir(self.path("data", "val", c)))]
        run = self.path("run")
        shown = self.run_ctrain("predict", run, *files, "--checkpoint", "last", "--top", 2, "--json").json()
        self.assertEqual([i["path"] for i in shown["images"]], files)
        right = sum(i["top"][0]["name"] == os.path.basename(os.path.dirname(i["path"])) for i in shown["images"])
        self.assertAlmostEqual(right / len(files), self.metrics(kind="eval")[-1]["top1"])
        for image in shown["images"]:
            self.assertEqual(len(image["top"]), 2)
            self.assertGreaterEqual(image["top"][0]["p"], image["top"][1]["p"])
        # A folder, the file alone, and one at a time: the same answers.
        weights = self.path("run", "checkpoints", "last", "model.safetensors")
        again = self.run_ctrain("predict", weights, self.path("data", "val", "cat"), "--top", 1, "--json").json()["images"]
        self.assertEqual([i["top"][0]["class"] for i in again], [i["top"][0]["class"] for i in shown["images"][:len(again)]])
        text = self.run_ctrain("predict", run, "--checkpoint", "last", files[0], "--top", 3).out.splitlines()
        self.assertEqual(text[0], files[0])
        self.assertRegex(text[1], rf"^ +\d+\.\d\d %  {shown['images'][0]['top'][0]['name']}$")
        self.assertRegex(text[3], r"^ +\d+\.\d\d %  \w+$")
        self.assertRegex("\n".join(text[4:]), r"^accuracy (100|0)\.00 % \([01] of 1 images in directories with names of classes\)\n .*\bcat \(.*\)$")

    def test_bad_images(self):
        self.folder("train", 8, 1)
        self.folder("val", 8, 2)
        self.train("train.epochs=1", config=self.config(CONFIG % ("imagefolder", self.path("data"), "train", "val")))
        good = self.path("data", "val", "cat", "0000.png")
        bad = self.write("no.png", "not a picture")
        r = self.run_ctrain("predict", self.path("run"), self.path("absent.jpg"), good, bad, "--json", expect=DATA)
        images = r.json()["images"]
        self.assertEqual([("error" in i, len(i["top"])) for i in images], [(True, 0), (False, 4), (True, 0)])
        self.assertIn("No such file", images[0]["error"])
        self.assertIn("neither JPEG nor PNG", images[2]["error"])
        self.assert_last_says(r, "2 of 3 images")
        # A file alone describes its model, unless another program has written it.
        weights = self.path("run", "checkpoints", "last", "model.safetensors")
        with open(weights, "rb") as f:
            content = f.read()
        alone = self.run_ctrain("predict", self.write("alone.safetensors", content), good, "--json").json()["images"]
        in_run = self.run_ctrain("predict", self.path("run"), "--checkpoint", "last", good, "--json").json()["images"]
        self.assertEqual(alone, in_run)
        self.assertEqual({t["name"] for t in alone[0]["top"]}, set(CLASSES))
        r = self.run_ctrain("predict", self.path("alone.safetensors"), good, "data.val.size=16", expect=USAGE)
        self.assert_last_says(r, "--config")
        size = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8:8 + size])
        del header["__metadata__"]
        header = json.dumps(header).encode()
        weights = self.write("foreign.safetensors", struct.pack("<Q", len(header)) + header + content[8 + size:])
        r = self.run_ctrain("predict", weights, good, expect=USAGE)
        self.assert_last_says(r, "--config")
        # A config.yaml above that is none of a run says nothing about them.
        self.write("config.yaml", "model: {name: mlp}\ndata: {name: mnist}\ntrain: {epochs: 1}\n")
        r = self.run_ctrain("predict", weights, good, expect=USAGE)
        self.assert_says(r, "is not in a run directory")
        r = self.run_ctrain("predict", weights, good, "--config", self.path("tiny.yaml"))
        self.assertIn("class ", r.out)
        r = self.run_ctrain("predict", self.path("nothing"), good, expect=DATA)
        self.assert_last_says(r, "nothing")

    def test_one_channel(self):
        config = "model: {name: mlp, hidden: [16]}\ndata: {name: synthetic, shape: [1, 12, 12], n_train: 64, n_val: 16}\ntrain: {epochs: 1}\n"
        self.train(config=self.config(config))
        r = self.run_ctrain("predict", self.path("run"), self.write("a.png", png(30, 20, 1, (10, 200, 30))), "--top", 1)
        self.assertRegex(r.out, r"a\.png\n +\d+\.\d\d %  class \d\n$")


class Precision(Images):
    def test_bf16(self):
        config = self.config(read_text(self.sharded()).replace(f"name: layers, layers: {MODEL}", "name: resnet20"), "r.yaml")
        if "avx512_bf16" in read_text("/proc/cpuinfo"):
            self.train("precision=bf16", run="bf16", config=config)
            self.train(run="fp32", config=config)
            for step in (1, 2):  # later two runs of so few samples have gone their own ways
                self.assertAlmostEqual(self.losses("bf16")[step] / self.losses("fp32")[step], 1, delta=0.05, msg=f"step {step}")
            self.assertNotEqual(self.losses("bf16"), self.losses("fp32"))
        else:
            r = self.train("precision=bf16", config=config, expect=USAGE)
            self.assert_last_says(r, "bfloat16", "precision=fp32")
        for command in ("train", "plan", "check"):
            r = self.run_ctrain(command, config, "precision=bf16", "train.engine=ref", f"run.dir={self.path('ref')}", expect=USAGE)
            self.assert_last_says(r, "precision bf16: the engine \"ref\" computes in fp32 only", "precision=fp32")
            for precision in ("fp16", "tf32"):
                r = self.run_ctrain(command, config, f"precision={precision}", f"run.dir={self.path('gpu')}", expect=USAGE)
                self.assert_last_says(r, f"precision {precision}: the engine \"onednn\" computes in fp32", "for GPUs", "precision=fp32")


class BatchNorm(Images):
    def test_over_ranks(self):
        """Statistics of all rows: two and three ranks learn what one rank learns."""
        def config(n):
            return self.config(read_text(self.sharded(n=n)).replace("relu", "batch_norm, relu"), f"bn-{n}.yaml")
        sync = ("model.bn=sync", "train.accumulate=1")
        self.train("--procs", 1, *sync, run="one", config=config(48))
        for procs in (2, 3):
            run = f"procs-{procs}"
            self.train("--procs", procs, *sync, run=run, config=config(48))
            for step, loss in self.losses("one").items():
                self.assertAlmostEqual(self.losses(run)[step] / loss, 1, delta=1e-5, msg=f"step {step}")
            for a, b in zip(self.metrics("one", "eval"), self.metrics(run, "eval")):
                self.assertAlmostEqual(a["loss"] / b["loss"], 1, delta=1e-4)
        self.train("--procs", 2, run="local", config=config(48))
        self.assertGreater(max(abs(self.losses("local")[s] / loss - 1) for s, loss in self.losses("one").items()), 1e-3)
        self.train("--procs", 2, "model.bn=broadcast", run="broadcast", config=config(48))
        self.assertEqual(self.digest("broadcast"), self.digest("local"))
        r = self.train("--procs", 3, *sync, run="uneven", config=config(50), expect=USAGE)
        self.assert_last_says(r, "model.bn=sync requires samples on every rank", "drop_last")
        self.train("--procs", 3, *sync, "data.drop_last=true", run="even", config=config(50))


class RealData(Images):
    def test_cifar(self):
        data = shared("data", "cifar-10-batches-bin") or shared("cifar-10-batches-bin")
        if not data:
            self.skipTest("there is no ../shared/data/cifar-10-batches-bin")
        config = os.path.join(os.path.dirname(__file__), "..", "..", "configs", "resnet20_cifar10.yaml")
        self.train(f"data.dir={data}", "train.max_steps=12", "train.eval_every=0", "log.every=1", "data.val=none", config=config)
        losses = self.losses()
        self.assertLess(losses[12], losses[1])
        self.assertEqual(read_text(self.path("run", "classes.txt")).split()[1], "airplane")

    def test_row_51_imported_command(self):
        """What `ctrain import` prints for PyTorch's ImageNet example is valid for its directories and trains by its recipe."""
        self.folder("train", 16, 1)
        self.folder("val", 8, 2)
        line = self.run_ctrain("import", f"python main.py -a resnet18 -b 8 --epochs 40 --lr 0.2 {self.path('data')}").out.splitlines()[0]
        self.assertTrue(line.startswith("ctrain configs/imagenet_folders.yaml "), line)
        command = [os.path.join(SOURCE, "configs", "imagenet_folders.yaml"), *line.split()[2:]]
        self.run_ctrain("check", *command)
        dumped = self.run_ctrain("config", "dump", *command).out
        for value in ("nesterov: false", "decay_norm_bias: true", "lr_rule: none", "momentum: 0.9", "weight_decay: 0.0001",
                      "zero_gamma: false", "step_epochs: 30", "gamma: 0.1", "lr: 0.2", "epochs: 40", "global: 8"):
            self.assertIn(f" {value}\n", dumped)
        self.assertNotIn("warmup_epochs", dumped)
        self.run_ctrain(*command, f"run.dir={self.path('run')}", "launch.procs=2", "train.max_steps=1", "data.train.size=64", "data.val.size=64",
                        timeout=120)
        self.assertEqual([(m["global_batch"], m["lr"], m["data"]) for m in self.metrics(kind="run")], [(8, 0.2, "imagefolder")])

    def test_imagenet_shards(self):
        """The config as it is but for places and for the size, which is for the sake of time."""
        data = shared("data", "imagenet-wds") or shared("imagenet-wds")
        if not data:
            self.skipTest("there is no ../shared/data/imagenet-wds")
        config = os.path.join(os.path.dirname(__file__), "..", "..", "configs", "resnet50_imagenet.yaml")
        sets = (f"data.dir={data}", "data.train=imagenet-train-{000000..000007}.tar", "data.val=imagenet-val-{000000..000001}.tar",
                f"data.index_dir={self.path('index')}", "data.train.size=64", "data.val.size=64", "model.name=resnet18", "log.every=1",
                "checkpoint.every_steps=2", "checkpoint.background=false", "train.eval_every=0", "batch.per_rank=8", "train.max_steps=4")
        self.train(*sets, config=config, timeout=200)
        self.assertEqual(self.metrics(kind="eval")[-1]["count"], 80)
        self.assertEqual(self.metrics(kind="run")[-1]["lr"], 0.1 * 16 / 256)
        self.killed(*sets, run="killed", config=config, at="step:3@1", timeout=200)
        self.train(*sets, run="killed", config=config, timeout=200)
        self.assertEqual(self.metrics("killed", "run")[-1]["resumed_step"], 2)
        self.assertEqual(self.digest("killed"), self.digest())


if __name__ == "__main__":
    main()
