"""Damaged data, full and unwritable directories, damaged and foreign checkpoints: the error names them, and valid files remain valid."""

import hashlib
import json
import os
import re
import shutil
import signal
import sys
import unittest

from harness import DATA, DEVICE, IO, NUMERIC, OK, USAGE, Case, both_ways_to_save, libc, main, own_mounts, read_text, shared

BAD = shared("data", "bad")
MS_RDONLY, MS_REMOUNT = 1, 32
# What the message must say for each tag of INDEX.tsv.
WORDS = {
    "gzip-isize": "gzip|length|size|damaged|truncated|trailer|check",
    "magic": "web page|IDX|dimensions|magic",
    "empty": "empty",
    "short-header": "header",
    "dtype": "type 0x07",
    "ndim": "dimensions",
    "extra-body": "more|extra|after|longer|behind",
    "short-body": "truncated|short|fewer|ends|missing|less",
    "huge": "more than|declares|too large",
    "zero-dim": "dimension . is 0",
    "shape": "27 x 28.*28 x 28",
    "count-mismatch": "16 images.*15 labels",
    "label-range": "label 255",
}
SETS = ("checkpoint.every_steps=4", "checkpoint.keep_last=3", "checkpoint.best=false", "train.eval_every=0", "checkpoint.every_epochs=0")


NO_MOUNTS = own_mounts() if __name__ == "__main__" else None


def bad_idx():
    rows = []
    if BAD:
        with open(os.path.join(BAD, "INDEX.tsv"), encoding="utf-8") as f:
            rows = [line.rstrip("\n").split("\t") for line in f]
    return [r for r in rows if r[0].startswith("idx/")]


class BadIdx(Case):
    def folder(self, name, images="idx/good-images.gz", labels="idx/good-labels.gz"):
        os.makedirs(self.path(name))
        for split in ("train", "t10k"):
            os.symlink(os.path.join(BAD, images), self.path(name, f"{split}-images-idx3-ubyte.gz"))
            os.symlink(os.path.join(BAD, labels), self.path(name, f"{split}-labels-idx1-ubyte.gz"))
        return self.path(name)

    @unittest.skipUnless(BAD, "no ../shared/data/bad and no CTRAIN_SHARED")
    def test_every_file(self):
        rows = bad_idx()
        self.assertGreater(len(rows), 20)
        for path, expectation, tag, _ in rows:
            with self.subTest(file=path):
                name = path.replace("/", "-")
                part = {"labels" if "labels" in path else "images": path}
                folder = self.folder(name, **part)
                sets = ("data.name=mnist", f"data.dir={folder}", "batch.global=8", "train.epochs=1")
                if expectation == "ok":
                    self.train(*sets, run=f"run-{name}")
                    self.assertEqual(self.metrics(f"run-{name}", "epoch")[0]["images"], 16)
                    continue
                self.assertEqual(expectation, "reject")
                # Far less address space than bomb.gz or the declared sizes would take, far more than the program does.
                limit = ["prlimit", f"--as={4 << 30}"] if shutil.which("prlimit") and "asan" not in os.environ.get("CTRAIN_BIN", "") else []
                r = self.train(*sets, run=f"run-{name}", expect=DATA, prefix=limit)
                self.assert_last_says(r, re.escape(os.path.join(folder, "train-" + next(iter(part)))), WORDS[tag])
                self.assertNotRegex(r.err, r"Sanitizer|[\x00-\x08\x0e-\x1f]")
                self.assertFalse(os.path.exists(self.path(f"run-{name}", "metrics.jsonl")), "training had begun")

    @unittest.skipUnless(BAD, "no ../shared/data/bad and no CTRAIN_SHARED")
    def test_bad_evaluation_data(self):
        folder = self.folder("data")
        os.remove(os.path.join(folder, "t10k-labels-idx1-ubyte.gz"))
        os.symlink(os.path.join(BAD, "idx/labels-255.gz"), os.path.join(folder, "t10k-labels-idx1-ubyte.gz"))
        r = self.train("data.name=mnist", f"data.dir={folder}", "batch.global=8", expect=DATA)
        self.assert_last_says(r, "t10k-labels", "label 255")

    def test_missing_data_names_both_remedies(self):
        r = self.train("data.name=mnist", f"data.dir={self.path('nowhere')}", expect=DATA)
        self.assert_last_says(r, re.escape(self.path("nowhere")), "scripts/get_mnist.sh", "ctrain data digits --out", "hint:")
        r = self.run_ctrain("plan", self.config(), "data.name=mnist", f"data.dir={self.path('nowhere')}", expect=DATA)
        self.assert_last_says(r, "scripts/get_mnist.sh", "ctrain data digits --out")

    def test_folder_in_the_place_of_a_file(self):
        os.makedirs(self.path("data", "train-images-idx3-ubyte"))
        r = self.train("data.name=mnist", f"data.dir={self.path('data')}", run="run", expect=None)
        self.assertIn(r.code, (DATA, IO), r.describe())
        self.assert_last_says(r, "train-images-idx3-ubyte")

    def assert_code(self, r, code):
        if code is not None:
            super().assert_code(r, code)


class Disks(Case):
    def tmpfs(self, name, options):
        os.makedirs(self.path(name))
        libc("mount", "tmpfs", self.path(name), "tmpfs", 0, options)
        self.addCleanup(libc, "umount2", self.path(name), 2)
        return self.path(name)

    def fill(self, folder):
        """Leaves not a byte free."""
        path = os.path.join(folder, "filler")
        with open(path, "wb", buffering=0) as f:
            size = 1 << 20
            while size:
                try:
                    if f.write(bytes(size)) < size:
                        size //= 2
                except OSError:
                    size //= 2
        return path


class RunFolders(Disks):
    def test_unwritable(self):
        self.write("file", "")
        os.makedirs(self.path("closed"), mode=0o555)
        closed = [] if os.geteuid() == 0 else [self.path("closed", "run")]
        for where in (self.path("file"), self.path("file", "run"), "/proc/ctrain-run", *closed):
            with self.subTest(where=where):
                r = self.run_ctrain(self.config(), f"run.dir={where}", expect=IO)
                self.assert_last_says(r, re.escape(where), "hint:.*run.dir")
                self.assertEqual(self.marked(), {})

    @unittest.skipIf(NO_MOUNTS, NO_MOUNTS)
    def test_read_only(self):
        where = self.tmpfs("ro", "size=1m")
        libc("mount", "tmpfs", where, "tmpfs", MS_REMOUNT | MS_RDONLY, None)
        r = self.run_ctrain(self.config(), f"run.dir={where}/run", expect=IO)
        self.assert_last_says(r, re.escape(where), "read-only")

    @unittest.skipIf(NO_MOUNTS, NO_MOUNTS)
    def test_too_small_from_the_start(self):
        # 144*1000 weights and two states of them are 1.7 MB a checkpoint.
        where = self.tmpfs("small", "size=2m")
        r = self.run_ctrain(self.config(), f"run.dir={where}/run", "model.hidden=1000", expect=IO)
        self.assert_last_says(r, re.escape(where), "free", "MiB", "hint:")
        self.fill(where)
        r = self.run_ctrain(self.config(), f"run.dir={where}/other", expect=IO)
        self.assert_last_says(r, re.escape(where), "no space|free")


@both_ways_to_save
class DamagedWhileTraining(Disks):
    @unittest.skipIf(NO_MOUNTS, NO_MOUNTS)
    def test_full_disk(self):
        where = self.tmpfs("disk", "size=8m")
        # All checkpoints are kept: if a save that is on its way removed an old one, there would be room for another.
        sets = (*SETS, "checkpoint.keep_last=100")
        for i, point in enumerate(("step:10", "ckpt.optim:8", "ckpt.model:12", "ckpt.state:3", "ckpt.link:3", "step:41")):
            with self.subTest(point=point):
                run = f"disk/run-{i}"
                p = self.start_training(*sets, run=run, env={"CTRAIN_FAILPOINT": f"{point}@0=stop"})
                pid = self.until_stopped(0, p)
                filler = self.fill(where)
                os.kill(pid, signal.SIGCONT)
                r = p.wait()
                os.remove(filler)
                self.assert_code(r, IO)
                self.assert_last_says(r, re.escape(self.path("disk", f"run-{i}")), "no space left")
                self.assert_checkpoints_whole(run)
                self.train(*sets, run=run)
                self.assert_equals_reference(*sets, run=run)
                shutil.rmtree(self.path(run))

    def test_folder_that_vanishes(self):
        """If the run directory is removed, an error says so; ctrain does not crash and does not lose results silently."""
        p = self.start_training(*SETS, env={"CTRAIN_FAILPOINT": "step:10@0=stop"})
        pid = self.until_stopped(0, p)
        os.rename(self.path("run"), self.path("gone"))
        os.kill(pid, signal.SIGCONT)
        r = p.wait()
        self.assert_code(r, IO)
        # That of step 8 may have been on its way: it is not published into a directory that is no longer the run's.
        self.assert_checkpoints_whole("gone", 1)


class Damage(Case):
    """On a run of 30 steps with checkpoints of steps 24, 28 and 30."""

    def setUp(self):
        super().setUp()
        self.train(*SETS, "train.max_steps=30")
        self.names = self.checkpoints()
        self.assertEqual(len(self.names), 3, self.names)
        self.newest = self.path("run", "checkpoints", self.names[-1])

    def damage(self, name, how):
        path = os.path.join(self.newest, name)
        with open(path, "rb") as f:
            data = bytearray(f.read())
        if how == "truncated":
            data = data[:-1]
        elif how == "cut to half":
            data = data[:len(data) // 2]
        elif how == "empty":
            data = b""
        elif how == "longer":
            data += b"\0"
        elif how == "one bit at the end":
            data[-5] ^= 1
        elif how == "one bit in the middle":
            data[len(data) // 2] ^= 0x10
        elif how == "other bytes":
            data[:] = b"\xff" * len(data)
        os.remove(path)
        if how != "missing":
            with open(path, "wb") as f:
                f.write(data)

    def check(self, name, how):
        before = self.path("before")
        shutil.copytree(self.path("run"), before, symlinks=True)
        try:
            self.damage(name, how)
            r = self.run_ctrain("ckpt", "verify", self.newest, expect=DATA)
            self.assert_last_says(r, re.escape(os.path.join(self.newest, name)))
            r = self.train(*SETS, f"train.resume={self.newest}", expect=DATA)
            self.assert_last_says(r, re.escape(os.path.join(self.newest, name)))
            # Evaluation needs no optimizer.
            needed = name != "optim.safetensors"
            r = self.run_ctrain("eval", self.config(), *SETS, f"run.dir={self.path('run')}", "--checkpoint", "last", expect=DATA if needed else OK)
            if needed:
                self.assert_last_says(r, re.escape(os.path.join(self.names[-1], name)))
            r = self.train(*SETS)
            self.assert_says(r, rf"{self.names[-1]} is not used", re.escape(name))
            self.assertEqual(self.metrics(kind="run")[-1]["resumed_step"], int(self.names[-2][-12:]))
            self.assert_equals_reference(*SETS)
            self.assert_checkpoints_whole()
        finally:
            shutil.rmtree(self.path("run"))
            os.rename(before, self.path("run"))

    def test_damaged_files(self):
        for name, how in (("model.safetensors", "truncated"), ("model.safetensors", "one bit at the end"), ("optim.safetensors", "missing"),
                          ("optim.safetensors", "one bit in the middle"), ("state.json", "cut to half"), ("state.json", "empty"),
                          ("state.json", "one bit in the middle"), ("model.safetensors", "longer"), ("state.json", "missing"),
                          ("optim.safetensors", "other bytes")):
            with self.subTest(file=name, how=how):
                self.check(name, how)

    def test_all_damaged(self):
        for name in self.names:
            os.truncate(self.path("run", "checkpoints", name, "model.safetensors"), 100)
        for resume in ("must", "auto"):
            r = self.train(*SETS, f"train.resume={resume}", expect=DATA)
            for name in self.names:
                self.assert_says(r, rf"{name} is not used")
            self.assert_last_says(r, "none of the 3 checkpoints", "train.resume=never")
        self.train(*SETS, "train.resume=never")
        self.assert_equals_reference(*SETS)
        self.assertEqual(self.checkpoints("run.old-1"), self.names)

    def test_broken_links(self):
        os.remove(self.path("run", "checkpoints", "last"))
        os.symlink("step-000000009999", self.path("run", "checkpoints", "last"))
        self.train(*SETS)
        self.assert_equals_reference(*SETS)

    def test_must(self):
        r = self.train("train.resume=must", run="fresh", expect=DATA)
        self.assert_last_says(r, "fresh", "no valid checkpoint")

    def test_rubbish_beside(self):
        """Names that look like checkpoints or nearly so, and what a crash leaves."""
        for name in ("step-000000000050", "step-9", "step-000000000060x", ".tmp-step-000000000034-1-1", "notes"):
            self.write(f"run/checkpoints/{name}/model.safetensors", b"rubbish")
        r = self.train(*SETS)
        self.assert_says(r, "step-000000000050 is not used")
        self.assert_equals_reference(*SETS)
        self.assertFalse(os.path.exists(self.path("run", "checkpoints", ".tmp-step-000000000034-1-1")))
        self.assertTrue(os.path.exists(self.path("run", "checkpoints", "notes", "model.safetensors")))

    def test_torn_metrics(self):
        """A crash of the machine leaves half a line; later steps than the checkpoint's are there, too."""
        path = self.path("run", "metrics.jsonl")
        with open(path, "r+", encoding="utf-8") as f:
            text = f.read()
            f.seek(0)
            f.write(text + '{"v":1,"kind":"step","step":31,"epoch":1,"loss":9}\n{"v":1,"kind":"st')
        self.train(*SETS)
        self.assert_equals_reference(*SETS)
        with open(path, encoding="utf-8") as f:
            for line in f:
                json.loads(line)


class Foreign(Case):
    def test_another_config(self):
        for sets, words in ((["optim.lr=0.07"], ("optim.lr", "0.05", "0.07")), (["model.hidden=48"], ("model.hidden", "32", "48")),
                            (["run.seed=5"], ("run.seed", "1", "5")), (["batch.global=96"], ("batch.global", "48", "96")),
                            (["data.n_train=900"], ("data.n_train", "1000", "900"))):
            with self.subTest(sets=sets):
                shutil.rmtree(self.path("run"), ignore_errors=True)
                self.train(*SETS, "train.max_steps=10")
                r = self.train(*SETS, *sets, expect=USAGE)
                self.assert_last_says(r, "step-000000000010", *map(re.escape, words), "hint:", "run.dir")
                self.assertEqual(self.checkpoints()[-1], "step-000000000010")
        # Keys that one of two models does not have are no differences of their own.
        r = self.train("model.name=convnet", "data.shape=1,28,28", expect=USAGE)
        self.assert_last_says(r, r"saved with another config: model\.name was mlp and is now convnet; data\.shape was \[1, 12, 12\] and is now \[1, 28, 28\]\n")

    def test_keys_of_one_side(self):
        """A checkpoint of a version of ctrain with other keys, as its state.json says."""
        self.train(*SETS, "train.max_steps=10")
        path = self.path("run/checkpoints/last/state.json")
        text = read_text(path)
        digest = json.loads(text)["config_digest"]
        text = text.replace("optim.lr=0.05\\n", "optim.old=3\\n").replace(digest, "0" * 64)
        text = re.sub('"checksum": "[0-9a-f]*"', f'"checksum": "{"0" * 64}"', text)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace("0" * 64, hashlib.sha256(text.encode()).hexdigest(), 1))
        r = self.train(*SETS, expect=USAGE)
        self.assert_last_says(r, r"saved with another config: optim\.old=3 is only in the checkpoint; optim\.lr=0\.05 is only in this config")

    def test_per_rank_batch_on_another_world(self):
        sets = ("batch.global=0", "batch.per_rank=16")
        self.train(*sets, "train.max_steps=5")
        r = self.train(*sets, "--procs", 3, expect=USAGE)
        self.assert_last_says(r, "batch", "32", "48")
        # A batch of the same size would not help a run of another config.
        r = self.train(*sets, "--procs", 3, "optim.lr=0.2", expect=USAGE)
        self.assert_last_says(r, r"saved with another config: optim\.lr was 0\.05 and is now 0\.2", "restore the old values")
        self.assertNotIn("batch.global=", r.err)

    def test_other_data(self):
        for name, seed in (("one", 1), ("two", 2)):
            self.run_ctrain("data", "digits", "--out", self.path(name), "--train", 300, "--test", 50, "--seed", seed)
        self.train("data.name=mnist", f"data.dir={self.path('one')}", "train.max_steps=3")
        r = self.train("data.name=mnist", f"data.dir={self.path('two')}", expect=USAGE)
        self.assert_last_says(r, "training data")
        os.rename(self.path("one"), self.path("moved"))
        self.train("data.name=mnist", f"data.dir={self.path('moved')}", "train.max_steps=5")

    def test_other_model(self):
        self.train("train.max_steps=3", run="mlp")
        self.train("train.max_steps=3", "model.name=lenet", "data.shape=1,28,28", run="lenet")
        other = self.path("lenet", "checkpoints", "last")
        r = self.train(f"train.resume={other}", run="new", expect=USAGE)
        self.assert_last_says(r, re.escape(other), "model.name")
        r = self.run_ctrain("eval", self.config(), f"run.dir={self.path('mlp')}", "--checkpoint", other, expect=DATA)
        self.assert_last_says(r, "0 of the model's 4 tensors match", "another shape", "are not in the model", "model.name")

    def test_few_weights_match(self):
        """model.strict=false says on the console how much of the file was used (one bias here)."""
        self.train("train.max_steps=1", run="old")
        old = f"model.weights={self.path('old')}"
        r = self.train("train.max_steps=1", old, "model.strict=false", "model.hidden=48", "--procs", 2, run="few")
        self.assertEqual(len(re.findall(r"only 1 of the model's 4 tensors were loaded from .*/model\.safetensors; the other 3 start from random "
                                        r"values\. 3 have another shape or type: fc1\.weight is ", r.err)), 1, r.err)
        r = self.train("train.max_steps=1", old, "model.strict=false", run="all")
        self.assertNotIn("tensors", r.err)
        with open(self.path("all", "log", "rank-00000.log")) as log:
            self.assertIn("all of the model's 4 tensors were loaded from ", log.read())

    def test_not_a_checkpoint(self):
        os.makedirs(self.path("empty"))
        self.write("weights/model.safetensors", b"\x02\0\0\0\0\0\0\0{}")
        self.write("archive.pth", b"PK\x03\x04 something of PyTorch")
        for what, code in (("empty", DATA), ("nowhere", DATA), ("weights", DATA), ("archive.pth", DATA)):
            with self.subTest(what=what):
                r = self.train(f"train.resume={self.path(what)}", run=f"run-{what}", expect=code)
                self.assert_last_says(r, re.escape(self.path(what)))
                r = self.run_ctrain("ckpt", "verify", self.path(what), expect=code)
                self.assert_last_says(r, re.escape(self.path(what)))


class Numbers(Case):
    def test_loss_that_is_no_number(self):
        toy = ("data.name=synthetic_regression", "data.shape=10,1,1", "data.targets=5", "model.hidden=10")
        r = self.train(*toy, *SETS, "optim.lr=1000", "train.epochs=20", expect=NUMERIC)
        self.assert_last_says(r, r"loss is -?(nan|inf)", r"step \d+", "hint:", r"optim\.lr")
        end = self.metrics(kind="end")[-1]
        self.assertEqual((end["status"], end["error"]), ("failed", "NUMERIC"))
        self.assertEqual(self.marked(), {})
        for m in self.metrics(kind="step"):
            self.assertIsNotNone(m["loss"])
        for name in self.checkpoints():
            self.run_ctrain("ckpt", "verify", self.path("run", "checkpoints", name))


class Unavailable(Case):
    def test_what_there_is_not(self):
        for sets, words in ((["device=cuda"], ("no cuda device", "cpu")), (["precision=fp16"], ("precision", "fp32")),
                            (["train.engine=onedn"], ("train.engine", "onednn")), (["train.engine=cuda"], ("no cuda device", "cpu")),
                            (["train.engine=cuda", "device=cpu"], ("engine", "onednn", "ref")),
                            (["dist.backend=nccl"], ("nccl", "hint:")), (["dist.backend=glo"], ("dist.backend", 'mean "gloo"')),
                            (["model.name=resnet51"], ("model.name", "resnet50")), (["data.name=imagenet"], ("data.name", "mnist")),
                            (["optim.name=adamo"], ("optim.name", "adamw")), (["log.level=loud"], ("log.level", "info"))):
            with self.subTest(sets=sets):
                r = self.train(*sets, expect=DEVICE if "no cuda device" in words else USAGE)
                self.assert_says(r, *map(re.escape, words))
                self.assertNotIn("[rank", r.err)
        self.assertFalse(os.path.exists(self.path("run", "metrics.jsonl")))

    def test_interfaces(self):
        """What dist.iface selects is checked before the files of an earlier run are moved."""
        self.train("train.max_steps=1")
        for value, says in (("nosuch0", 'no network interface "nosuch0"; its usable interfaces are .*lo'), ("lo,", "neither the name"),
                            ("^0.0.0.0/0,::/0", "excludes all interfaces of this host: .*lo")):
            with self.subTest(value=value):
                r = self.train("--procs", 2, f"dist.iface={value}", "train.resume=never", expect=USAGE)
                self.assert_last_says(r, "error: dist.iface: .*" + says)
                self.assertFalse(os.path.exists(self.path("run.old-1")))
        self.train("--procs", 1, "dist.iface=nosuch0", "train.max_steps=1", "train.resume=never")

    def test_all_problems_at_once(self):
        r = self.train("optim.lr=-1", "model.hiden=3", "train.epochs=two", "--procs", "0", expect=USAGE)
        self.assert_says(r, r"optim\.lr", r"model\.hiden", r"train\.epochs", "procs")

    def test_batch_that_cannot_be_cut(self):
        r = self.train("--procs", 5, expect=USAGE)
        self.assert_last_says(r, r"batch\.global 48", "5 ranks", r"batch\.global=50")
        self.assertNotIn("rank 0", r.err)
        self.assertFalse(os.path.exists(self.path("run")), "processes had been started")

    def test_more_ranks_than_samples(self):
        r = self.train("--procs", 4, "batch.global=4", "data.n_train=3", "data.n_val=1", "train.epochs=2")
        self.assertEqual([m["images"] for m in self.metrics(kind="epoch")], [3, 3], r.describe())

    def test_no_end(self):
        r = self.train("train.epochs=0", expect=USAGE)
        self.assert_says(r, r"train\.epochs", r"train\.max_steps")


if __name__ == "__main__":
    if NO_MOUNTS:
        print(f"  {NO_MOUNTS}: some cases are skipped", file=sys.stderr)
    main()
