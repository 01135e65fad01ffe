"""From a directory of images to a trained model: `ctrain init`, data.val_fraction, and what is said about directories that do not fit."""

import json
import os
import re
import shlex
import shutil

from harness import DATA, OK, USAGE, Case, main, read_text
from test_images import CLASSES, MODEL, png

COLORS = ((160, 30, 30), (30, 160, 30), (30, 30, 160), (120, 120, 20))
SPLIT = """\
model: {name: layers, layers: %s}
data:
  name: imagefolder
  dir: %%s
  train: {path: ., size: 24}
  val_fraction: 0.25
  workers: 1
  augment: {flip: true}
batch: {global: 12, eval: 8}
optim: {lr: 0.05, momentum: 0.9}
train: {epochs: 2}
launch: {procs: 1, threads: 1}
log: {every: 1}
""" % MODEL


class OwnImages(Case):
    def directory(self, per_class=(12, 12, 12, 12), name="photos", suffix=".png"):
        for label, n in enumerate(per_class):
            for i in range(n):
                self.write(f"{name}/{CLASSES[label]}/{i:03d}{suffix}", png(20 + i, 20, label * 100 + i, COLORS[label]))
        return self.path(name)

    def init_fails(self, path, *says, code=DATA):
        self.assert_last_says(self.run_ctrain("init", path, expect=code), *says)
        self.assertFalse(os.path.exists(self.path("photos.yaml")))

    def test_init_and_train(self):
        """The written config trains as it is, and never replaces a file without --force."""
        self.directory(suffix=".PNG")
        self.write("photos/cat/broken.png", b"\x89PNG\r\n\x1a\n and no more")
        self.write("photos/cat/notes.txt", "not an image")
        os.symlink("notes.csv", self.path("photos/notes.csv"))  # cannot be opened
        r = self.run_ctrain("init", "photos")
        self.assertRegex(r.out, r"(?m)^found +4 classes, 49 images in ")
        self.assertRegex(r.out, r"(?m)^classes +from 12 images \(dog\) to 13 \(cat\)$")
        self.assertRegex(r.out, r"(?s)damaged +1 of 49 images .*photos/cat/broken\.png: ")
        self.assert_says(r, r"1 file is ignored because it is not")
        self.assertIn("  ctrain photos.yaml", r.out)
        text = read_text(self.path("photos.yaml"))
        self.assertRegex(text, r"(?m)^  name: resnet20 ")
        self.assertRegex(text, r"(?m)^  val_fraction: 0\.2 ")
        # The mean of the channels of the four colors, with noise of 0..59 around them.
        mean = json.loads(re.search(r"(?m)^  mean: (.*)$", text)[1])
        for k in range(3):
            self.assertAlmostEqual(mean[k], (sum(c[k] for c in COLORS) / 4 + 29.5) / 255, delta=0.01)
        self.run_ctrain("init", "photos", expect=USAGE)
        self.assertEqual(read_text(self.path("photos.yaml")), text)
        self.run_ctrain("init", "photos", "--force")
        self.assertRegex(self.run_ctrain("plan", self.path("photos.yaml"), "data.max_bad=5").out,
                         rf"(?m)^normalize +mean {mean[0]:g} {mean[1]:g} {mean[2]:g}, .*\(data\.mean, data\.std\)$")
        # Images of all classes, although the directories are sorted.
        self.directory(name="intact")
        self.run_ctrain("init", "intact")
        shown = self.run_ctrain("data", "show", self.path("intact.yaml"), "--count", "8", "--out", "eight.png").out
        self.assertEqual(re.findall(r"class (\d)", shown), ["0", "0", "1", "1", "2", "2", "3", "3"])
        self.train("train.epochs=2", "schedule.warmup_epochs=0", "data.max_bad=5", config=self.path("photos.yaml"))
        self.assertEqual([m["images"] for m in self.metrics(kind="epoch")], [40, 40])
        self.assertEqual({m["count"] + m["bad_samples"] for m in self.metrics(kind="eval")}, {9})

    def test_init_with_a_name_of_several_lines(self):
        """The name of the config is also that of the run, so init refuses it before it writes the file."""
        self.directory((2, 2))
        for end in ("\n", "\r", "\u0085", "\u2028", "\u2029"):
            name = f"a b{end}on: {{end: touch x}}{end}#.yaml"
            r = self.run_ctrain("init", "photos", "--out", name, expect=USAGE)
            escaped = "".join(f"\\\\x{b:02x}" for b in end.encode())
            self.assert_says(r, f'the name of the config to write is not plain text: "a b{escaped}on: ')
            self.assertFalse(os.path.exists(self.path(name)), ascii(end))

    def test_init_with_val(self):
        self.directory(name="photos/train")
        self.directory((3, 3, 3, 0), name="photos/validation")
        r = self.run_ctrain("init", "photos", "--out", "my.yaml")
        self.assert_says(r, r'1 of the 4 classes of the training data have no directory here.*"owl"')
        text = read_text(self.path("my.yaml"))
        self.assertIn('    path: "validation"\n', text)
        self.assertNotIn("val_fraction", text)
        self.train("train.epochs=1", "schedule.warmup_epochs=0", config=self.path("my.yaml"))
        self.assertEqual([m["count"] for m in self.metrics(kind="eval")], [9])
        self.write("photos/validation/zebra/1.png", png(8, 8, 1, COLORS[0]))
        self.assert_last_says(self.run_ctrain("init", "photos", expect=DATA), "validation/zebra: this class is only in the evaluation data")

    def labels(self, name="photos", images="images", per_class=(13, 12, 9, 8), end="\n"):
        """Images in one directory, and a CSV file with their classes. Returns the rows."""
        rows = []
        for label, n in enumerate(per_class):
            for i in range(n):
                self.write(f"{name}/{images}/{label}-{i:03d}.png", png(20 + i, 20, label * 100 + i, COLORS[label]))
                rows.append((f"{label}-{i:03d}", CLASSES[label]))
        self.write_rows(f"{name}/labels.csv", rows, end)
        return rows

    def write_rows(self, path, rows, end="\n", header="id,animal"):
        self.write(path, "".join(line + end for line in [header] + [",".join(row) for row in rows]))

    def test_labels_in_csv(self):
        """`ctrain init` finds the file; training does not depend on ranks, nor on the order and form of the rows."""
        rows = self.labels()
        self.write("photos/sample_submission.csv", "id,animal\n9-000,cat\n")
        r = self.run_ctrain("init", "photos")
        self.assertRegex(r.out, r'(?m)^labels +from labels\.csv: images in column "id", classes in column "animal"$')
        self.assertRegex(r.out, r"(?m)^classes +from 8 images \(owl\) to 13 \(cat\)$")
        short = ("schedule.warmup_epochs=0", "train.epochs=1", "batch.global=12", "launch.threads=1")
        digests = set()
        for run, procs, end in (("one", 1, "\n"), ("two", 2, "\r\n")):
            self.train(*short, f"launch.procs={procs}", run=run, config=self.path("photos.yaml"))
            self.assertEqual([m["images"] for m in self.metrics(run, "epoch")], [33])
            self.assertEqual([m["count"] for m in self.metrics(run, "eval")], [9])
            with open(self.path(run, "checkpoints", "last", "state.json"), encoding="utf-8") as f:
                digests.add(json.load(f)["data_digest"])
            self.write_rows("photos/labels.csv", [(f'"{a}.png"', f" {b} ") for a, b in reversed(rows)], end, "\ufeffid,animal")
        self.assertEqual(len(digests), 1)
        first = self.run_ctrain("predict", self.path("one"), self.path("photos/images/2-000.png"), "--json").json()["images"][0]
        self.assertEqual(sorted(t["name"] for t in first["top"]), sorted(CLASSES))
        got = self.run_ctrain("data", "stats", self.path("photos.yaml"), "--json").json()
        self.assertEqual([(c["name"], c["images"]) for c in got["sets"][1]["classes"]], [("cat", 3), ("dog", 2), ("fox", 2), ("owl", 2)])
        # The same directory, given as that of the images; and a file for evaluation images.
        self.assertIn("labels.csv", self.run_ctrain("init", "photos/images", "--out", "beside.yaml").out)
        self.write_rows("photos/train.csv", rows[:-3])
        self.write_rows("photos/validate.csv", rows[-4:])
        os.remove(self.path("photos/labels.csv"))
        r = self.run_ctrain("init", "photos", "--out", "two.yaml")
        self.assertRegex(r.out, r"(?m)^evaluate +on 4 images of validate\.csv$")
        self.assert_says(r, r'validate\.csv:2: "3-004" is also training data \(1 such image\)')
        self.assertIn('  val_labels: "validate.csv"\n', read_text(self.path("two.yaml")))
        self.assertRegex(self.run_ctrain("data", "check", self.path("two.yaml")).out, r"(?m)^val: 4 samples, 0 bad")

    def test_labels_with_a_split_column(self):
        rows = self.labels(per_class=(4, 4))
        self.write_rows("photos/labels.csv", [(a, b, "valid" if a.endswith("3") else "train") for a, b in rows], header="file,label,data set")
        r = self.run_ctrain("init", "photos")
        self.assertRegex(r.out, r'(?m)^evaluate +on 2 images of the same file, which column "data set" selects$')
        text = read_text(self.path("photos.yaml"))
        self.assertIn('    split: "data set" ', text)
        self.assertNotIn("val_fraction", text)
        got = self.run_ctrain("data", "stats", self.path("photos.yaml"), "--json").json()
        self.assertEqual([s["images"] for s in got["sets"]], [6, 2])

    def test_large_tables(self):
        """Only the start of a table is read to determine whether it is a list of labels; the list is read completely."""
        rows = self.labels(per_class=(60, 60))
        self.write_rows("photos/labels.csv", [(a, b, "valid" if a >= "1-050" else "train") for a, b in rows], header="id,animal,split")
        self.write_rows("photos/features.csv", [(f"{i}", "1", "0.5") for i in range(100000)], header="id,target,width")
        os.truncate(self.path("photos/features.csv"), (1 << 30) + 1)
        r = self.run_ctrain("init", "photos", "--out", "list.yaml")
        self.assertRegex(r.out, r'(?m)^evaluate +on 10 images of the same file, which column "split" selects$')
        os.remove(self.path("photos/labels.csv"))
        self.init_fails("photos", r'features\.csv:2: there is no image "0" in ')

    def test_check_of_a_directory_with_labels(self):
        """`ctrain data check DIR` reports that it does not check the list of labels; with --labels, it checks the list and its images."""
        rows = self.labels(per_class=(3, 3))
        self.write("photos/images/extra.png", "not in the list")
        r = self.run_ctrain("data", "check", "photos", expect=DATA)
        self.assert_says(r, r"photos: the labels in .*/photos/labels\.csv are not checked; .*ctrain data check .*/photos --labels .*/photos/labels\.csv")
        self.assertRegex(r.out, r"(?m)^photos: 7 samples, 1 bad")
        r = self.run_ctrain("data", "check", "photos", "--labels", "none", expect=DATA)
        self.assertNotIn("labels.csv", r.err)
        check = ("data", "check", "photos", "--labels", "photos/labels.csv")
        self.assertRegex(self.run_ctrain(*check).out, r"^train: 6 samples, 0 bad.*\n$")
        self.write_rows("photos/labels.csv", [(a, b, "val" if a.endswith("2") else "train") for a, b in rows], header="id,animal,split")
        self.assertRegex(self.run_ctrain(*check).out, r"^train: 4 samples, 0 bad.*\nval: 2 samples, 0 bad.*\n$")
        self.write("photos/images/1-002.png", "this is text")
        self.assertRegex(self.run_ctrain(*check, expect=DATA).out, r"(?m)^val: 2 samples, 1 bad")
        self.write_rows("photos/labels.csv", rows + [("2-000", "fox")])
        self.assert_last_says(self.run_ctrain(*check, expect=DATA), r'labels\.csv:8: there is no image "2-000"')
        self.assert_last_says(self.run_ctrain("data", "check", "my.yaml", *check[3:], expect=USAGE), "--labels .* not with a configuration")
        self.assert_last_says(self.run_ctrain(*check, "photos", expect=USAGE), "only one directory")

    def test_check_names_the_command(self):
        """The command also works if the list is beside the directory, and with spaces in names."""
        rows = self.labels(name="my photos", images="im", per_class=(2, 2))
        self.write_rows("my photos/labels.csv", [(f"im/{a}.png", b) for a, b in rows])
        root = os.path.realpath(self.path("my photos"))
        for path, code in (("my photos/im", DATA), ("my photos", OK)):  # a flat directory has no classes
            r = self.run_ctrain("data", "check", path, expect=code)
            words = shlex.split(re.search(r"with: ctrain (.*)", r.err)[1])
            self.assertEqual(words, ["data", "check", root, "--labels", f"{root}/labels.csv"])
            self.assertRegex(self.run_ctrain(*words).out, r"^train: 4 samples, 0 bad")

    def test_check_reports_an_unusable_list(self):
        rows = self.labels(per_class=(2, 2))
        self.write("photos/about.csv", "photographer,year\nx,2000\n")
        advice = "; add --labels FILE.csv or --labels none"
        for bad, says in ((rows + [("1-000", "")], r'labels\.csv:6: the label of "1-000" is empty'),
                          ([("gone", "cat")] + rows, r'labels\.csv:2: there is no image "gone" in .*')):
            self.write_rows("photos/labels.csv", bad)
            r = self.run_ctrain("data", "check", "photos")
            self.assert_says(r, rf"photos: labels are not checked: .*{says}{advice}")
            self.assertNotIn("labels.csv", self.run_ctrain("data", "check", "photos", "--labels", "none").err)
        # Also if the directories can be the classes.
        os.rename(self.path("photos/images"), self.path("photos/cat"))
        self.write("photos/dog/1.png", png(8, 8, 1, COLORS[0]))
        self.assert_says(self.run_ctrain("data", "check", "photos"), rf'photos: labels are not checked: .*no image "gone" in .*{advice}')
        os.remove(self.path("photos/labels.csv"))
        self.assertNotIn("labels", self.run_ctrain("data", "check", "photos").err)
        for name in ("a.csv", "b.csv"):
            self.write_rows(f"photos/{name}", rows)
        two = rf"labels are not checked: .*/photos contains 2 lists of labels: a\.csv, b\.csv{advice}"
        self.assert_says(self.run_ctrain("data", "check", "photos"), two)
        shutil.rmtree(self.path("photos/dog"))
        self.assert_says(self.run_ctrain("data", "check", "photos/cat", expect=DATA), two)

    def test_labels_mistakes(self):
        rows = self.labels(per_class=(2, 2))
        self.write_rows("photos/labels.csv", rows + [("2-000", "fox")])
        self.init_fails("photos", r'labels\.csv:6: there is no image "2-000" in .*photos/images \(1 of 5 rows', "add the file, or remove")
        self.write_rows("photos/labels.csv", rows + [("0-001", "dog")])
        self.init_fails("photos", r'labels\.csv:6: "0-001" has the label "dog", but "cat" in line 3', "remove the line")
        self.write("photos/labels.csv", "id,animal\n0-000\n")
        self.init_fails("photos", r"labels\.csv:2: the number of fields is 1")
        for name in ("a.csv", "b.tsv"):
            self.write_rows("photos/" + name, rows)
        self.init_fails("photos", "2 lists of labels: a.csv, b.tsv", "--labels .*/a.csv")
        self.run_ctrain("init", "photos", "--labels", "photos/a.csv", "--out", "good.yaml")
        self.directory((1, 1))
        self.init_fails("photos", "2 lists of labels: a.csv, b.tsv", "--labels .*/a.csv; --labels none uses the directories")
        for setting, code, says in (("data.labels=none.csv", DATA, r"data\.labels: there is no .*photos/none\.csv"),
                                    ("data.val_labels=none.csv", DATA, r"data\.val_labels: there is no .*photos/none\.csv"),
                                    ("data.labels=", USAGE, r"data\.labels\.image requires data\.labels"),
                                    ("data.val=images", USAGE, r"data\.val requires data\.val_labels")):
            r = self.run_ctrain("check", self.path("good.yaml"), setting, expect=code)
            self.assert_says(r, says)

    def test_init_mistakes(self):
        self.init_fails("photos", "cannot open the directory photos", code=DATA)
        os.makedirs(self.path("photos"))
        self.init_fails("photos", "neither class directories nor images", "hint:")
        self.write("photos/1.png", png(8, 8, 1, COLORS[0]))
        self.init_fails("photos", "contains 1 image but no class directories")
        os.remove(self.path("photos/1.png"))
        self.directory((2,))
        self.init_fails("photos", 'only one class directory, "cat"')
        os.makedirs(self.path("outer"))
        os.rename(self.path("photos"), self.path("outer/photos"))
        self.directory((2, 2), name="outer/photos")
        self.init_fails("outer", 'only the directory "photos", which itself contains 2 directories', "ctrain init .*outer/photos")
        self.directory((2, 2))
        os.makedirs(self.path("photos/nothing"))
        self.assert_says(self.run_ctrain("init", "photos", "--out", "x.yaml"), 'the class directory "nothing" is empty')
        for name in ("photos/cat/000.png", "photos/cat/001.png", "photos/dog/000.png", "photos/dog/001.png"):
            self.write(name, "this is text")
        self.init_fails("photos", "none of the 4 images that were read can be decoded")

    def test_split_does_not_depend_on_ranks(self):
        """1 and 2 ranks have the same split, the same losses and the same digest of the data; a resumed run continues with them."""
        config = self.config(SPLIT % self.directory((13, 12, 9, 8)), "split.yaml")
        losses, digests = {}, {}
        for procs in (1, 2):
            self.train(f"launch.procs={procs}", run=f"run{procs}", config=config)
            steps = self.metrics(f"run{procs}", "step")
            losses[procs] = [m["loss"] for m in steps] + [m["loss"] for m in self.metrics(f"run{procs}", "eval")]
            self.assertEqual([m["count"] for m in self.metrics(f"run{procs}", "eval")], [10, 10])
            with open(self.path(f"run{procs}", "checkpoints", "last", "state.json"), encoding="utf-8") as f:
                digests[procs] = json.load(f)["data_digest"]
        self.assertEqual(digests[1], digests[2])
        for a, b in zip(losses[1], losses[2]):
            self.assertAlmostEqual(a, b, delta=1e-6 * abs(a) + 1e-7)
        whole = self.metrics("run1", "end")[0]["weights_digest"]
        self.train("train.max_steps=4", run="parts", config=config)
        self.train(run="parts", config=config)
        self.assertEqual(self.metrics("parts", "end")[-1]["weights_digest"], whole)
        # Evaluation without the rest of the run uses the same images.
        r = self.run_ctrain("eval", config, f"run.dir={self.path('run1')}", "--checkpoint", "last", "--json")
        self.assertEqual(r.json()["count"], 10)
        self.assertAlmostEqual(r.json()["loss"], losses[1][-1], places=6)

    def test_stats(self):
        """Counts, damaged files and duplicates, also between training and evaluation data."""
        self.directory((6, 4), name="photos/train")
        self.directory((1, 1), name="photos/val")
        for name, of in (("train/dog/900.png", "train/cat/001.png"), ("val/dog/901.png", "train/dog/002.png")):
            with open(self.path("photos", of), "rb") as f:
                self.write("photos/" + name, f.read())
        self.write("photos/train/cat/broken.jpg", b"\xff\xd8\xff")
        got = self.run_ctrain("data", "stats", "photos", "--json").json()
        train, val = got["sets"]
        self.assertEqual([(c["name"], c["images"]) for c in train["classes"]], [("cat", 7), ("dog", 5)])
        self.assertEqual((train["images"], val["images"]), (12, 3))
        self.assertEqual((train["width"], train["height"]), ({"min": 20, "median": 22, "max": 25}, {"min": 20, "median": 20, "max": 20}))
        self.assertEqual([d["key"] for d in train["damaged"]], ["cat/broken.jpg"])
        groups = [[f"{i['set']} {i['key']}" for i in g] for g in got["duplicates"]["groups"]]
        self.assertEqual(sorted(groups), sorted([["train cat/000.png", "val cat/000.png"], ["train dog/000.png", "val dog/000.png"],
                                                 ["train cat/001.png", "train dog/900.png"], ["train dog/002.png", "val dog/901.png"]]))
        self.assertEqual((got["duplicates"]["across_sets"], got["duplicates"]["different_labels"]), (3, 1))
        text = self.run_ctrain("data", "stats", "photos").out
        self.assertIn("train cat/001.png (cat) = train dog/900.png (dog)", text)
        self.assertRegex(text, r"3 images of val are also in train")
        self.assertRegex(text, r"photos/train/cat/broken\.jpg: |train/cat/broken\.jpg: ")

    def test_class_weights(self):
        """Equal weights change nothing; others change the loss alike on every engine and for every number of ranks."""
        config = self.config(SPLIT % self.directory((16, 8, 4, 4)), "split.yaml")
        losses = {}
        for run, sets in {"none": [], "equal": ["train.class_weights=2,2,2,2"], "auto": ["train.class_weights=auto"],
                          "list": ["train.class_weights=1,2,4,4"], "ref": ["train.class_weights=auto", "train.engine=ref"],
                          "ranks": ["train.class_weights=auto", "launch.procs=2"]}.items():
            self.train(*sets, "train.epochs=1", run=run, config=config)
            losses[run] = [m["loss"] for m in self.metrics(run, "step")]
        self.assertEqual(losses["equal"], losses["none"])
        self.assertEqual(self.metrics("equal", "end")[0]["weights_digest"], self.metrics("none", "end")[0]["weights_digest"])
        self.assertEqual(losses["list"], losses["auto"])  # 12, 6, 3 and 3 training images
        self.assertGreater(max(abs(a - b) for a, b in zip(losses["auto"], losses["none"])), 1e-3)
        for run in ("ref", "ranks"):
            for a, b in zip(losses["auto"], losses[run]):
                self.assertAlmostEqual(a, b, delta=2e-6 * abs(a))
        self.assertNotIn("class_weights", self.config_digest_lines("none"))
        r = self.train("train.class_weights=1,2", run="bad", config=config, expect=USAGE)
        self.assert_last_says(r, "class_weights has 2 entries, but there are 4 classes")
        self.assert_last_says(self.train("train.class_weights=1,2,x,4", run="bad", config=config, expect=USAGE), '"x" is not a number')

    def test_balanced(self):
        """All classes occur equally often; the order is the same for 1 and 2 ranks and after a resume in the middle of an epoch."""
        config = self.config(SPLIT % self.directory((24, 8, 4, 4)), "split.yaml")
        sets = ("data.shuffle=balanced", "data.augment.mixup=0.2")
        for procs in (1, 2):
            self.train(*sets, f"launch.procs={procs}", run=f"run{procs}", config=config)
            self.assertEqual([m["images"] for m in self.metrics(f"run{procs}", "epoch")], [30, 30])
        for a, b in zip(self.metrics("run1", "step"), self.metrics("run2", "step")):
            self.assertAlmostEqual(a["loss"], b["loss"], delta=1e-6 * a["loss"])
        self.train(*sets, "train.max_steps=4", run="parts", config=config)
        self.train(*sets, run="parts", config=config)
        self.assertEqual(self.metrics("parts", "end")[-1]["weights_digest"], self.metrics("run1", "end")[0]["weights_digest"])
        self.assert_last_says(self.train("data.name=synthetic_regression", "data.shuffle=balanced", run="none", expect=USAGE), "class labels")

    def config_digest_lines(self, run):
        """The lines of the config that a checkpoint compares."""
        with open(self.path(run, "checkpoints", "last", "state.json"), encoding="utf-8") as f:
            return f.read()

    def test_changed_images_are_noticed(self):
        config = self.config(SPLIT % self.directory(), "split.yaml")
        self.train("train.max_steps=2", config=config)
        self.write("photos/cat/more.png", png(20, 20, 7, COLORS[0]))
        self.assert_last_says(self.train(config=config, expect=USAGE), "training data")
        r = self.run_ctrain("check", config, "data.val=none")
        self.assert_code(r, OK)


if __name__ == "__main__":
    main()
