"""`ctrain data pack|check|show`: shards that any tar can read, packing that is killed or runs out of disk space, unreadable samples in reports, images after augmentation."""

import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import unittest
import zlib

from harness import DATA, IO, OK, USAGE, Case, libc, main, own_mounts, shared

BAD = shared("data", "bad")
CONFIG = """\
model: {{name: resnet18}}
data:
  name: shards
  dir: {dir}
  train: {{path: train-*.tar, size: 32}}
  val: none
  classes: 3
  augment: {{flip: true}}
batch: {{global: 8}}
train: {{epochs: 1}}
"""


NO_MOUNTS = own_mounts() if __name__ == "__main__" else None


def png(w, h, seed):
    """An RGB image of noise in large cells, as a PNG file."""
    r = random.Random(seed)
    cells = [[bytes(r.randrange(256) for _ in range(3)) for _ in range(w // 8 + 1)] for _ in range(h // 8 + 1)]
    rows = b"".join(b"\0" + b"".join(cells[y // 8][x // 8] for x in range(w)) for y in range(h))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows, 1)) +
            chunk(b"IEND", b""))


def read_ppm(path):
    with open(path, "rb") as f:
        data = f.read()
    magic, w, h, depth, rest = data.split(None, 4)[:4] + [data]
    assert (magic, depth) == (b"P6", b"255"), data[:20]
    return int(w), int(h), rest[len(data) - int(w) * int(h) * 3:]


def files_of(folder):
    out = {}
    for name in sorted(os.listdir(folder)):
        if os.path.isfile(os.path.join(folder, name)):
            with open(os.path.join(folder, name), "rb") as f:
                out[name] = f.read()
    return out


class Pack(Case):
    def source(self, n=24, name="src"):
        for i in range(n):
            self.write(f"{name}/class_{i % 3}/img_{i:03d}.png", png(24 + 5 * i, 60 - i, i))
        return self.path(name)

    def pack(self, out, *args, expect=OK, src=None, **more):
        return self.run_ctrain("data", "pack", src or self.path("src"), self.path(out), "--json", *args, expect=expect, **more)

    def test_any_tar_reads_it(self):
        src = self.source()
        j = self.pack("out/train-%06d.tar", "--shard-size", 10).json()
        self.assertEqual((j["kind"], j["samples"], j["n_shards"], j["n_kept"], j["left_out"], j["classes"]), ("data_pack", 24, 3, 0, 0, 3))
        self.assertTrue(j["shards"].endswith("train-{000000..000002}.tar"))
        seen = []
        for s in range(3):
            path = self.path("out", f"train-{s:06d}.tar")
            listed = subprocess.run(["tar", "-tf", path], stdout=subprocess.PIPE, check=True).stdout.decode().split()
            with open(self.path("out", f"train-{s:06d}.idx"), encoding="ascii") as f:
                head, *lines = f.read().splitlines()
            with tarfile.open(path) as tar, open(path, "rb") as raw:
                members = tar.getmembers()
                self.assertEqual([m.name for m in members], listed)
                self.assertEqual(head, f"v1.2 {len(members) // 2}")
                for image, label, line in zip(members[::2], members[1::2], lines):
                    self.assertEqual((image.uid, image.mtime, image.mode), (0, 0, 0o644))
                    key = image.name[:-4]
                    self.assertEqual((image.name, label.name), (key + ".png", key + ".cls"))
                    with open(os.path.join(src, image.name), "rb") as f:
                        self.assertEqual(tar.extractfile(image).read(), f.read())
                    self.assertEqual(tar.extractfile(label).read().decode(), key[6])
                    ext, offset, size, name = line.split()[:4]
                    raw.seek(int(offset))
                    self.assertEqual((ext, name, raw.read(int(size))), ("png", image.name, tar.extractfile(image).read()))
                    seen.append(key)
        self.assertEqual(seen, sorted(f"class_{i % 3}/img_{i:03d}" for i in range(24)))
        self.assertEqual(self.pack("out/train-%06d.tar", "--shard-size", 10).json()["n_kept"], 3)

    def test_killed_at_any_place(self):
        self.source()
        self.pack("whole/t-%d.tar", "--shard-size", 5, "--short", 30)
        whole = {k: v for k, v in files_of(self.path("whole")).items() if not k.startswith(".")}
        for place in ("pack.start", "pack.sample:1", "pack.sample:13", "pack.rename:1", "pack.rename:4"):
            with self.subTest(place=place):
                shutil.rmtree(self.path("out"), ignore_errors=True)
                self.pack("out/t-%d.tar", "--shard-size", 5, "--short", 30, "--threads", 1, env={"CTRAIN_FAILPOINT": place}, expect=-9)
                left = files_of(self.path("out"))
                for name, data in left.items():
                    if not name.endswith(".part"):
                        self.assertEqual(data, whole[name], name)
                kept = sum(n.endswith(".tar") for n in left)
                self.assertEqual(kept, {"pack.sample:13": 2, "pack.rename:4": 3}.get(place, 0))
                self.assertEqual(self.pack("out/t-%d.tar", "--shard-size", 5, "--short", 30).json()["n_kept"], kept)
                self.assertEqual(files_of(self.path("out")), whole)

    @unittest.skipIf(NO_MOUNTS, NO_MOUNTS)
    def test_full_disk(self):
        self.source()
        self.pack("whole/t-%d.tar", "--shard-size", 4, "--threads", 1)
        whole = files_of(self.path("whole"))
        os.makedirs(self.path("out"))
        libc("mount", "none", self.path("out"), "tmpfs", 0, "size=128k")
        self.addCleanup(libc, "umount", self.path("out"))
        r = self.pack("out/t-%d.tar", "--shard-size", 4, "--threads", 1, expect=IO)
        self.assert_last_says(r, "space")
        left = files_of(self.path("out"))
        self.assertFalse([n for n in left if n.endswith(".part")])
        kept = sum(n.endswith(".tar") for n in left)
        self.assertGreater(kept, 0)
        libc("mount", "none", self.path("out"), "tmpfs", 32, "size=8m")  # MS_REMOUNT
        self.assertEqual(self.pack("out/t-%d.tar", "--shard-size", 4).json()["n_kept"], kept)
        self.assertEqual(files_of(self.path("out")), whole)

    def test_seekable(self):
        self.write("src/a/large.png", png(300, 200, 1))
        for out, args in (("plain", ()), ("fast", ("--seekable",))):
            self.run_ctrain("data", "pack", self.path("src"), self.path(out + "/t-%d.tar"), "--short", 160, *args)
        with open(self.path("plain/t-0.tar"), "rb") as plain, open(self.path("fast/t-0.tar"), "rb") as fast:
            self.assertNotIn(b"\xff\xdd\0\4", plain.read())
            self.assertIn(b"\xff\xdd\0\4\0", fast.read())  # the interval of restart markers
        self.assertIn("1 samples, 0 bad", self.run_ctrain("data", "check", self.path("fast")).out)
        r = self.run_ctrain("data", "pack", self.path("src"), self.path("fast/t-%d.tar"), "--short", 160, expect=USAGE)
        self.assert_last_says(r, "t-pack.json")

    def test_refused(self):
        self.source()
        self.pack("out/t-%d.tar")
        r = self.pack("out/t-%d.tar", "--shard-size", 5, expect=USAGE)
        self.assert_last_says(r, "t-pack.json")
        self.write("flat/ILSVRC2012_val_00000001.JPEG", png(8, 8, 1))
        r = self.pack("val/v-%d.tar", src=self.path("flat"), expect=DATA)
        self.assert_last_says(r, "--val-map")
        r = self.pack("val/v-%d.tar", "--val-map", self.write("map.txt", "ILSVRC2012_val_00000001.JPEG class_2\n"), src=self.path("flat"))
        self.assertEqual(r.json()["samples"], 1)
        for args, says in ((("--shard-size", "10x"), "10x"), (("--quality", "80"), "short side"), (("--short", "-1"), "-1"), (("--shuffle", "x"), "x")):
            r = self.pack("bad/v-%d.tar", *args, expect=USAGE)
            self.assert_last_says(r, says)
        r = self.run_ctrain("data", "pack", self.path("src"), self.path("bad/v-0.tar"), self.path("bad/v-1.tar"), expect=USAGE)
        self.assert_last_says(r, "quotes")
        self.assertFalse(os.path.exists(self.path("bad")))


class Check(Case):
    def shards(self):
        for i in range(12):
            self.write(f"src/class_{i % 3}/i{i:02d}.png", png(60, 50, i))
        self.run_ctrain("data", "pack", self.path("src"), self.path("out/train-%d.tar"), "--shard-size", 6, "--short", 40)
        return self.write("c.yaml", CONFIG.format(dir=self.path("out")))

    def damage(self):
        """The second image of shard 1 loses its middle; the index is of before."""
        path = self.path("out/train-1.tar")
        with tarfile.open(path) as tar:
            m = [m for m in tar.getmembers() if m.name.endswith(".jpg")][1]
        when = os.stat(path)
        with open(path, "r+b") as f:
            f.seek(m.offset_data + 2)
            f.write(b"\0" * (m.size - 4))
        os.utime(path, ns=(when.st_atime_ns, when.st_mtime_ns))
        return m.name[:-4]

    def test_good(self):
        config = self.shards()
        for args in ((config,), (self.path("out"),), (self.path("out/train-{0..1}.tar"),), (self.path("src"), self.path("out"))):
            r = self.run_ctrain("data", "check", *args, "--threads", 2)
            self.assertIn("12 samples, 0 bad, 0 not indexed", r.out)

    def test_training_and_evaluation_directories(self):
        """DIR/train and DIR/val are two sets with the same classes."""
        for name in ("train/a/1", "train/a/2", "train/b/3", "val/a/4"):
            self.write(f"two/{name}.png", png(16, 16, 1))
        r = self.run_ctrain("data", "check", self.path("two"))
        self.assertRegex(r.out, r"(?m)^\S+/two/train: 3 samples, 0 bad.*\n\S+/two/val: 1 samples, 0 bad")
        self.assert_says(r, 'two/val: 1 of the 2 classes of the training data have no directory here; the first one is "b"')
        r = self.run_ctrain("data", "check", self.path("two"), self.path("two/"), "--json")
        self.assertEqual([s["samples"] for s in r.json()["sets"]], [3, 1, 3, 1])
        self.write("two/val/c/5.png", png(16, 16, 1))
        r = self.run_ctrain("data", "check", self.path("two"), expect=DATA)
        self.assertRegex(r.out, r"(?m)^\S+/two/train: 3 samples, 0 bad")
        self.assert_last_says(r, "two/val/c: this class is only in the evaluation data")
        # As ImageNet's validation images are after extraction.
        shutil.rmtree(self.path("two/val"))
        self.write("two/val/1.png", png(16, 16, 1))
        r = self.run_ctrain("data", "check", self.path("two"), expect=DATA)
        self.assert_last_says(r, "two/val")
        # Without validation data, and classes that are called train and val.
        shutil.rmtree(self.path("two/val"))
        self.assertIn("/two/train: 3 samples, 0 bad", self.run_ctrain("data", "check", self.path("two")).out)
        for name in ("train/1", "train/2", "val/3"):
            self.write(f"vehicles/{name}.png", png(16, 16, 1))
        self.assertIn("/vehicles: 3 samples, 0 bad", self.run_ctrain("data", "check", self.path("vehicles")).out)

    def test_row_120_imagenet(self):
        """The classes of ImageNet, with one image each."""
        image = self.write("train/n01440764/a.png", png(16, 16, 1))
        for i in range(1, 1000):
            os.mkdir(self.path("train", f"n02{i:06d}"))
            os.link(image, self.path("train", f"n02{i:06d}", "a.png"))
        os.symlink("train", self.path("val"))
        r = self.run_ctrain("data", "check", self.path("train"), self.path("val/"), "--threads", 2)
        self.assertRegex(r.out, r"(?s)/train: 1000 samples.*ImageNet's complete training set has 1281167 images: 1280167 are missing.*"
                                r"/val/: 1000 samples.*complete validation set has 50000 images: 49000 are missing")
        os.rename(self.path("train/n02000999"), self.path("other"))
        r = self.run_ctrain("data", "check", self.path("val"), "--threads", 2)
        self.assertNotIn("complete", r.out)
        self.assertIn("ImageNet has 1000 classes: 1 are missing", r.out)
        self.write("flat/ILSVRC2012_val_00000001.JPEG", png(16, 16, 1))
        r = self.run_ctrain("data", "check", self.path("flat"), expect=DATA)
        self.assert_last_says(r, "--val-map")

    def test_bad(self):
        config = self.shards()
        key = self.damage()
        r = self.run_ctrain("data", "check", config, "--out", self.path("r.jsonl"), "--json", expect=DATA)
        self.assert_last_says(r, "1 of 12 samples are unusable")
        j = json.loads(r.out)
        self.assertEqual((j["sets"][0]["samples"], j["sets"][0]["bad"]), (12, 1))
        self.assertEqual(sum(j["bad_by_tag"].values()), 1)
        with open(self.path("r.jsonl"), encoding="utf-8") as f:
            rows = [json.loads(line) for line in f]
        self.assertEqual([(x["set"], x["kind"], x["key"]) for x in rows], [("train", "bad", key)])
        self.assertIn("train-1.tar", rows[0]["where"])
        self.assertTrue(rows[0]["reason"].startswith(rows[0]["tag"] + ": "), rows)
        r = self.run_ctrain("data", "check", self.path("out"), "--out", self.path("r.tsv"), expect=DATA)
        with open(self.path("r.tsv"), encoding="utf-8") as f:
            head, line = f.read().splitlines()
        self.assertEqual(len(head.split("\t")), len(line.split("\t")))
        self.assertIn(rows[0]["reason"], r.out)

    def test_left_out_of_the_index(self):
        self.shards()
        with tarfile.open(self.path("out/train-7.tar"), "w") as tar:
            for name, data in (("x.png", png(8, 8, 1)), ("x.cls", b"cat"), ("y.png", png(8, 8, 2)), ("y.cls", b"1")):
                with open(self.write("member", data), "rb") as f:
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    tar.addfile(info, f)
        r = self.run_ctrain("data", "check", self.path("out"), "--json", expect=DATA)
        j = json.loads(r.out)
        self.assertEqual((j["sets"][0]["samples"], j["sets"][0]["left_out"]), (13, 1))
        self.assertEqual(len(j["left_out_by_tag"]), 1)

    def test_damaged_shards(self):
        """Each of them is reported, and the samples of the others are decoded all the same."""
        config = self.shards()
        key = self.damage()
        os.truncate(self.path("out/train-0.tar"), 3000)
        self.write("out/train-8.tar", "<html>not found</html>")
        r = self.run_ctrain("data", "check", config, "--out", self.path("r.jsonl"), "--json", expect=DATA)
        self.assert_last_says(r, "2 shards cannot be used at all, and 1 of the 6 samples in the other shards")
        j = json.loads(r.out)
        self.assertEqual([j["sets"][0][k] for k in ("samples", "damaged", "bad")], [6, 2, 1])
        self.assertEqual(sum(j["damaged_by_tag"].values()), 2)
        with open(self.path("r.jsonl"), encoding="utf-8") as f:
            rows = [json.loads(line) for line in f]
        self.assertEqual([(x["kind"], x["key"]) for x in rows], [("damaged", ""), ("damaged", ""), ("bad", key)])
        for row, name, tag in zip(rows, ("train-0.", "train-8.tar"), ("idx-", "tar-header")):
            self.assertIn(name, row["where"])
            self.assertTrue(row["tag"].startswith(tag), row)
        paths = [self.path(f"out/train-{i}.tar") for i in range(2)]
        r = self.run_ctrain("data", "check", *paths, expect=DATA)
        self.assertRegex(r.out, "0 samples, 0 bad.*; 1 damaged shard\n.*6 samples, 1 bad")
        self.assert_last_says(r, "1 shard cannot be used at all, and 1 of the 6 samples in the other shards", "remove them from the list")

    def test_blank_in_a_folder(self):
        for i in range(4):
            self.write(f"my images/class_{i % 2}/i{i}.png", png(20, 20, i))
        self.run_ctrain("data", "pack", self.path("my images"), self.path("my shards/train-%d.tar"), "--shard-size", 2)
        for path in ("my images", "my shards", "my shards/train-1.tar"):
            r = self.run_ctrain("data", "check", self.path(path))
            self.assertIn(f"{path}: {2 if path.endswith('tar') else 4} samples, 0 bad", r.out)

    def test_usage(self):
        config = self.shards()
        for args, code in (((config, config), USAGE), ((self.path("nowhere"),), DATA), ((self.path("out"), "data.exif=true"), USAGE),
                           ((config, "--threads", "0"), USAGE)):
            self.run_ctrain("data", "check", *args, expect=code)
        # What was checked before an error is not lost.
        r = self.run_ctrain("data", "check", self.path("out"), self.path("nowhere"), "--out", self.path("r.tsv"), expect=DATA)
        self.assertIn("12 samples, 0 bad", r.out)
        self.assert_last_says(r, "nowhere")
        self.assertTrue(os.path.exists(self.path("r.tsv")))

    @unittest.skipUnless(BAD, "no ../shared/data/bad")
    def test_files_that_are_known_to_be_bad(self):
        """A directory of such files is read to its end, and the files that are unusable according to INDEX.tsv are reported."""
        with open(os.path.join(BAD, "INDEX.tsv"), encoding="utf-8") as f:
            rows = [line.rstrip("\n").split("\t") for line in f if line.startswith("jpeg/")]
        for path, *_ in rows:
            name = os.path.basename(path)
            target = self.path("src/c", name if name.endswith((".jpg", ".jpeg", ".png")) else name + ".jpg")
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(os.path.join(BAD, path), target)
        r = self.run_ctrain("data", "check", self.path("src"), "--out", self.path("r.jsonl"), expect=DATA, timeout=120)
        with open(self.path("r.jsonl"), encoding="utf-8") as f:
            found = {os.path.basename(x["key"]): x for x in map(json.loads, f) if x["kind"] == "bad"}
        for path, expectation, tag, *_ in rows:
            name = os.path.basename(path)
            bad = found.get(name) or found.get(name + ".jpg")
            with self.subTest(path=path):
                if name.startswith("png") and "huge" not in name:
                    self.assertFalse(bad)  # INDEX.tsv is about readers of JPEG alone
                elif expectation in ("skip", "reject"):
                    self.assertTrue(bad, r.describe())
                elif bad:
                    self.fail(f"{path} is {expectation} ({tag}), but: {bad}")


class Show(Case):
    def idx(self):
        """Four images of 4 x 5 whose pixels count up."""
        pixels = bytes(range(80))
        self.write("d/train-images-idx3-ubyte", struct.pack(">IIII", 0x803, 4, 4, 5) + pixels)
        self.write("d/train-labels-idx1-ubyte", struct.pack(">II", 0x801, 4) + bytes([3, 1, 2, 0]))
        text = "model: {name: mlp}\ndata: {name: idx, dir: %s, val: none}\nbatch: {global: 2}\ntrain: {epochs: 1}\n" % self.path("d")
        return self.write("c.yaml", text), pixels

    def show(self, config, *args, out="x.ppm"):
        """(standard output, (width, height, pixels))"""
        r = self.run_ctrain("data", "show", config, *args, "--out", self.path(out), "--force")
        return r.out, read_ppm(self.path(out))

    # Images of 4 x 5 are enlarged 32 times, to cells of 160 x 128; 10 between cells, and captions of 25.
    def cell(self, image, i, columns, sample, pixels, left=0, top=0, cell_w=160):
        w, _, rgb = image
        for y in range(4):
            for x in range(5):
                at = ((10 + top + i // columns * 163 + 32 * y + 16) * w + 10 + left + i % columns * (cell_w + 10) + 32 * x + 16) * 3
                self.assertEqual(rgb[at:at + 3], bytes([pixels[sample * 20 + y * 5 + x]]) * 3, (i, y, x))

    def test_pixels(self):
        config, pixels = self.idx()
        out, image = self.show(config, 2, 0, 3)
        self.assertIn("image 2  class 2", out)
        self.assertEqual(image[:2], (10 + 2 * 170, 10 + 2 * 163))
        for i, sample in enumerate((2, 0, 3)):
            self.cell(image, i, 2, sample, pixels)
        # Captions: each image has dark pixels below it, the empty cell has none.
        for i, has in enumerate((True, True, True, False)):
            rows = range(10 + i // 2 * 163 + 128, 10 + i // 2 * 163 + 153)
            dark = any(image[2][(y * image[0] + 10 + i % 2 * 170) * 3:(y * image[0] + 170 + i % 2 * 170) * 3].count(22) for y in rows)
            self.assertEqual(dark, has, i)
        # One image alone has exactly the pixels that the model reads.
        _, (w, h, rgb) = self.show(config, 2)
        self.assertEqual((w, h, rgb), (5, 4, bytes(v for p in pixels[40:60] for v in (p, p, p))))

    def test_before_after(self):
        """The stored image on the left; on the right, the augmented one."""
        config, pixels = self.idx()
        mirrored = bytes(pixels[s * 20 + y * 5 + 4 - x] for s in range(4) for y in range(4) for x in range(5))
        flips = set()
        for seed in range(1, 9):
            _, image = self.show(config, 1, "--before-after", "data.augment.flip=true", f"run.seed={seed}")
            self.cell(image, 0, 1, 1, pixels, top=25, cell_w=324)
            flipped = image[2][((10 + 25 + 16) * image[0] + 10 + 164 + 16) * 3] == mirrored[20]
            self.cell(image, 0, 1, 1, mirrored if flipped else pixels, left=164, top=25, cell_w=324)
            flips.add(flipped)
        self.assertEqual(flips, {True, False})
        # Compressed images are shown completely, whatever part of them the model reads.
        config = Check.shards(self)
        out, (w, h, _) = self.show(config, 0, 1, "--before-after")
        self.assertEqual((w, h), (10 + 2 * (2 * 160 + 4 + 10), 10 + 25 + 160 + 10 + 25))
        self.assertIn("2 images of 32 x 32 pixels", out)

    def test_mixup(self):
        config, _ = self.idx()
        self.assert_last_says(self.run_ctrain("data", "show", config, "--mixup", expect=USAGE), "uses neither", r"data\.augment\.mixup=0\.2")
        out, _ = self.show(config, "--mixup", "data.augment.mixup=1", "batch.global=4")
        rows = re.findall(r"image (\d)  (\d) ([\d.]+) %, (\d) ([\d.]+) %", out)
        self.assertEqual(sorted(r[0] for r in rows), ["0", "1", "2", "3"])
        labels = (3, 1, 2, 0)
        for a, b in (rows[:2], rows[2:]):
            self.assertEqual((a[1], a[3]), (str(labels[int(a[0])]), str(labels[int(b[0])])))
            self.assertEqual((a[2], a[4]), (b[2], b[4]))
            self.assertAlmostEqual(float(a[2]) + float(a[4]), 100, delta=0.11)
        self.run_ctrain("data", "show", config, 0, "--mixup", "data.augment.mixup=1", expect=USAGE)

    def test_choice(self):
        """Random images of all classes, one column or more per class, which depend only on the seed."""
        config = Check.shards(self)
        shown = {}
        for name, args in (("a", ()), ("again", ("--epoch", 1)), ("seed", ("--seed", 7)), ("few", ("--count", 3))):
            out, _ = self.show(config, *args)
            shown[name] = re.findall(r"column (\d+)  image (\d+)  class (\d+)", out)
        self.assertEqual(shown["a"], shown["again"])
        self.assertNotEqual(shown["a"], shown["seed"])
        self.assertEqual(len(shown["few"]), 3)
        for rows in shown.values():
            self.assertEqual(len({i for _, i, _ in rows}), len(rows), "an image is shown twice")
        by_column = {}
        for column, _, label in shown["a"]:
            by_column.setdefault(column, set()).add(label)
        self.assertEqual({len(labels) for labels in by_column.values()}, {1})
        self.assertEqual(list(by_column), sorted(by_column, key=lambda c: min(map(int, by_column[c]))))

    def test_as_training_sees_it(self):
        config = Check.shards(self)
        pictures = {name: self.show(config, 5, 6, *args)[1] for name, args in
                    (("a", ()), ("again", ()), ("epoch", ("--epoch", 1)), ("seed", ("run.seed=2",)))}
        self.assertEqual(pictures["a"], pictures["again"])
        self.assertNotEqual(pictures["a"], pictures["epoch"])
        self.assertNotEqual(pictures["a"], pictures["seed"])
        # Image 5 is the same alone: augmentation does not depend on other images. Here, it is enlarged 5 times.
        w, _, rgb = pictures["a"]
        cell = b"".join(rgb[((10 + 5 * y) * w + 10 + 5 * x) * 3:][:3] for y in range(32) for x in range(32))
        self.assertEqual((32, 32, cell), self.show(config, 5)[1])

    def test_an_existing_file_is_kept(self):
        config, _ = self.idx()
        self.run_ctrain("data", "show", config)
        with open(self.path("grid.png"), "rb") as f:
            before = f.read()
        self.assertEqual(before[:8], b"\x89PNG\r\n\x1a\n")
        self.assert_last_says(self.run_ctrain("data", "show", config, 1, expect=USAGE), r"grid\.png exists", "--out .* --force")
        with open(self.path("grid.png"), "rb") as f:
            self.assertEqual(f.read(), before)
        self.run_ctrain("data", "show", config, 1, "--force")
        with open(self.path("grid.png"), "rb") as f:
            self.assertNotEqual(f.read(), before)

    def test_usage(self):
        config, _ = self.idx()
        for args in ((4,), ("x",), (1, "--count", 2), (1, "--seed", 2), ("--epoch", "x")):
            self.run_ctrain("data", "show", config, *args, expect=USAGE)
        self.run_ctrain("data", "show", config, 0, "--out", self.path("no/x.png"), expect=DATA)


if __name__ == "__main__":
    main()
