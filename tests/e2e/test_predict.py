"""`ctrain predict`: lists of images, formats of the output, accuracy by directory, test-time augmentation."""

import csv
import io
import json
import os
import struct
import subprocess

from harness import DATA, MODEL_CASES, USAGE, Case, main, png_file


def pixels(width, height, seed):
    """Rows of RGB bytes."""
    return [bytes((x * (seed + 5) + y * 11 + c * 60 + (x * y) % 17) % 256 for x in range(width) for c in range(3)) for y in range(height)]


def png(rows):
    return png_file(len(rows[0]) // 3, len(rows), b"".join(b"\0" + row for row in rows))


def mirror(row):
    return b"".join(row[i:i + 3] for i in range(len(row) - 3, -1, -3))


def cut(rows, x, y, size):
    return [row[3 * x:3 * (x + size)] for row in rows[y:y + size]]


class Predict(Case):
    def model(self, name):
        r = subprocess.run([MODEL_CASES, self.tmp, name], capture_output=True, text=True)
        self.assertEqual(r.returncode, 0, r.stderr)
        return self.path(name + ".safetensors")

    def images(self):
        """Three of class zero, two of class d, one of no class, a damaged one, and what is not an image."""
        for i, name in enumerate(("zero/b.png", "zero/a.PNG", "zero/more/zero/c.png", "d/1.png", "d/2.png", "other.png")):
            self.write("set/" + name, png(pixels(40, 30, i)))
        self.write("set/d/bad.jpg", "not an image")
        self.write("set/d/readme.txt", "")
        self.write("set/.hidden/x.png", png(pixels(8, 8, 1)))
        # bytewise order in each directory
        return [self.path("set", *n.split("/")) for n in ("d/1.png", "d/2.png", "d/bad.jpg", "other.png", "zero/a.PNG", "zero/b.png", "zero/more/zero/c.png")]

    def predict(self, *words, expect=0):
        return self.run_ctrain("predict", *words, "--json", expect=expect).json()

    def test_formats(self):
        """All formats have the same images and results; an unreadable image is reported and does not stop the others."""
        model, files = self.model("windows"), self.images()
        whole = self.predict(model, self.path("set"), "--top", 2, expect=DATA)
        self.assertEqual([i["path"] for i in whole["images"]], files)
        self.assertEqual(["error" in i for i in whole["images"]], [False, False, True] + 4 * [False])
        self.assertEqual([i.get("label") for i in whole["images"]], [3, 3, 3, None, 0, 0, 0])
        self.assertGreater(whole["images_per_sec"], 0)
        first = [i["top"][0]["class"] for i in whole["images"] if i["top"]]
        right = {"zero": sum(c == 0 for c in first[3:]), "d": sum(c == 3 for c in first[:2])}
        self.assertEqual(whole["accuracy"], {"count": 5, "top1": sum(right.values()) / 5, "classes": [
            {"name": "zero", "count": 3, "top1": right["zero"] / 3}, {"name": "d", "count": 2, "top1": right["d"] / 2}]})
        r = self.run_ctrain("predict", model, self.path("set"), "--top", 2, "--jsonl", expect=DATA)
        self.assertEqual([json.loads(line) for line in r.out.splitlines()], whole["images"])
        self.assert_last_says(r, "1 of 7 images")
        r = self.run_ctrain("predict", model, self.path("set"), "--csv", "--top", 2, expect=DATA)
        rows = list(csv.DictReader(io.StringIO(r.out)))
        self.assertEqual(len(rows), 6 * 2 + 1)
        for row, (image, top) in zip((row for row in rows if not row["error"]), ((i, t) for i in whole["images"] for t in i["top"])):
            self.assertEqual((row["path"], int(row["class"]), row["name"]), (image["path"], top["class"], top["name"]))
            self.assertAlmostEqual(float(row["probability"]), top["p"], delta=1e-5)
            self.assertEqual(row["label"], str(image.get("label", "")))
        self.assertIn("neither JPEG nor PNG", [row for row in rows if row["error"]][0]["error"])
        r = self.run_ctrain("predict", model, self.path("set"), expect=DATA)
        self.assertRegex(r.out, rf"(?m)^accuracy {100 * whole['accuracy']['top1']:.2f} % \({sum(right.values())} of 5 images")
        self.assertRegex(r.err, r"(?m)^7 images in \d+\.\d\d s: [\d.e+]+ images/s$")
        # A list from standard input is in its own order.
        self.write("list.txt", f"{files[4]}\n\n{files[0]}\r\n")
        with open(self.path("list.txt"), "rb") as f:
            r = self.start("predict", model, "-", "--jsonl", "--top", "2", stdin=f).wait()
        self.assertEqual([json.loads(line)["path"] for line in r.out.splitlines()], [files[4], files[0]])

    def test_names_with_control_characters(self):
        """Paths and names of classes are escaped in text, and complete in the other formats."""
        with open(self.model("windows"), "rb") as f:
            content = f.read()
        size = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8:8 + size])
        description = json.loads(header["__metadata__"]["ctrain"])
        names = description["classes"] = ["z\x1b[2J\n0", 'a,"b"\r\nc', "d\u2028", "\u00e9", "e\x9b"]
        header["__metadata__"]["ctrain"] = json.dumps(description)
        header = json.dumps(header).encode()
        model = self.write("names.safetensors", struct.pack("<Q", len(header)) + header + content[8 + size:])
        image = self.write(f"set/{names[0]}/b\t.png", png(pixels(40, 30, 1)))
        r = self.run_ctrain("predict", model, image)
        lines = r.out.split("\n")
        shown = ["z\\x1b[2J\\x0a0", 'a,"b"\\x0d\\x0ac', "d\\xe2\\x80\\xa8", "\u00e9", "e\\xc2\\x9b"]
        self.assertEqual(lines[0], self.path("set", shown[0], "b\\x09.png"))
        self.assertEqual(sorted(line.split(" %  ", 1)[1] for line in lines[1:6]), sorted(shown))
        self.assertEqual(lines[7].split(" %  ", 1)[1][:len(shown[0]) + 2], shown[0] + " (")
        self.assertEqual(lines[8:], [""])
        found = self.predict(model, image)["images"][0]
        self.assertEqual((found["path"], sorted(t["name"] for t in found["top"])), (image, sorted(names)))
        r = self.run_ctrain("predict", model, image, "--csv", "--top", 5)
        rows = list(csv.DictReader(io.StringIO(r.out, newline="")))
        self.assertEqual(({row["path"] for row in rows}, sorted(row["name"] for row in rows)), ({image}, sorted(names)))

    def test_mistakes(self):
        model = self.model("windows")
        image = self.write("a.png", png(pixels(20, 20, 1)))
        os.mkdir(self.path("empty"))
        for words, code, says in (((image, "--csv", "--jsonl"), USAGE, "use only one of"), ((image, "--tta", "both"), USAGE, "flip,crops"),
                                  ((self.path("empty"),), DATA, "contains no"), (("-",), DATA, "standard input is empty")):
            self.assert_last_says(self.run_ctrain("predict", model, *words, expect=code), says)

    def test_views(self):
        """The probabilities are the means over the views, which are computed one by one here."""
        model = self.model("resnet20")
        with open(model, "rb") as f:
            content = f.read()
        # The same model with the size of a crop, so that a crop in a file is not resized.
        size = struct.unpack("<Q", content[:8])[0]
        header = content[8:8 + size].replace(b'\\"resize\\":36', b'\\"resize\\":32')
        self.assertNotEqual(header, content[8:8 + size])
        plain = self.write("plain.safetensors", content[:8] + header + content[8 + size:])
        rows = pixels(36, 36, 3)
        image = self.write("image.png", png(rows))
        crops = [cut(rows, x, y, 32) for x, y in ((2, 2), (0, 0), (4, 0), (0, 4), (4, 4))]

        def probabilities(model, files, *words):
            images = self.predict(model, *files, "--top", 10, *words)["images"]
            return [[t["p"] for t in sorted(i["top"], key=lambda t: t["class"])] for i in images]

        def mean(views):
            files = [self.write(f"view-{i}.png", png(v)) for i, v in enumerate(views)]
            values = probabilities(plain, files)
            return [sum(p) / len(p) for p in zip(*values)]

        flipped = lambda views: [[mirror(row) for row in v] for v in views]
        for words, views in (((), crops[:1]), (("--tta", "flip"), crops[:1] + flipped(crops[:1])), (("--tta", "crops"), crops),
                             (("--tta", "flip,crops"), crops + flipped(crops))):
            with self.subTest(words=words):
                for got, want in zip(probabilities(model, [image], *words)[0], mean(views)):
                    self.assertAlmostEqual(got, want, delta=1e-5)
        self.assertNotEqual(mean(crops), mean(crops[:1]))
        r = self.run_ctrain("predict", plain, image, "--tta", "crops", expect=USAGE)
        self.assert_last_says(r, "leaves no other crops", "--tta flip")


if __name__ == "__main__":
    main()
