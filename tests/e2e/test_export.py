"""Exported models compute what ctrain computes: ONNX, safetensors, PyTorch modules, the C library."""

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import unittest

from harness import CTRAIN, IO, MODEL_CASES, SOURCE, TINY, USAGE, Case, main, png_file, read_text
from test_images import png

HERE = os.path.dirname(os.path.abspath(__file__))
# They differ from others in their sizes only, and take most of the time (test_export_long.py).
MEDIUM = ("resnet32", "resnet44", "resnet56", "resnext50_32x4d")
LARGE = ("resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2")
TOLERANCE = 1e-5


def find_python(modules, environment):
    for python in (os.environ.get("CTRAIN_PYTORCH", ""), sys.executable, "python3", "/usr/bin/python3"):
        if python and subprocess.run([python, "-c", f"import {modules}"], env=environment, capture_output=True).returncode == 0:
            return python
    return None


# scripts/setup.sh --test installs onnx and onnxruntime there.
ONNX = {**os.environ, "PYTHONPATH": os.path.join(SOURCE, "build", "onnx")}
# What a program needs to link with a library that was built with the address sanitizer.
SANITIZE = ("-fsanitize=address,undefined",) if "asan" in os.path.basename(os.path.dirname(CTRAIN)) else ()
TORCH_PYTHON = find_python("torch", None)
ONNX_PYTHON = find_python("onnx, onnxruntime", ONNX)


def case_names():
    return subprocess.run([MODEL_CASES, "list"], capture_output=True, text=True, check=True).stdout.split()


class Cases(Case):
    def test_every_model_has_a_case(self):
        """model_cases writes every named model; "layers" has no fixed network, so its cases have other names."""
        with open(os.path.join(SOURCE, "docs", "config.schema.json"), encoding="utf-8") as f:
            names = json.load(f)["properties"]["model"]["properties"]["name"]["enum"]
        for name in set(names) - {"layers"}:
            self.assertIn(name, case_names(), "tests/infer/model_cases.c has no case of this model")


class Models(Case):
    """Models with random values, which model_cases writes together with an input and ctrain's output for it."""

    def make(self, names):
        for name in names:
            r = subprocess.run([MODEL_CASES, self.tmp, name], capture_output=True, text=True)
            self.assertEqual(r.returncode, 0, r.stderr)

    def export(self, names, suffix):
        for name in names:
            self.run_ctrain("export", self.path(name + ".safetensors"), "--out", self.path(name + suffix))

    def compare_torch(self, names):
        """Each exported module, in an interpreter of its own directory: outputs, gradients, and what it does with an image file."""
        self.make(names)
        self.export(names, ".py")
        r = subprocess.run([TORCH_PYTHON, os.path.join(HERE, "torch_peer.py"), self.tmp, *names], capture_output=True, text=True)
        self.assertEqual(r.returncode, 0, r.stderr)
        results = json.loads(r.stdout)
        self.assertEqual(set(results), set(names))
        for name, result in results.items():
            with self.subTest(name):
                self.assertLess(result["error"], TOLERANCE)
                self.assertTrue(result["trains"])
        return results

    def compare_onnx(self, names):
        self.make(names)
        self.export(names, ".onnx")
        r = subprocess.run([ONNX_PYTHON, os.path.join(HERE, "onnx_peer.py"), self.tmp, *names], env=ONNX, capture_output=True, text=True)
        self.assertEqual(r.returncode, 0, r.stderr)
        results = json.loads(r.stdout)
        for name, result in results.items():
            with self.subTest(name):
                self.assertLess(result["error"], TOLERANCE)
                self.assertGreater(result["spread"], 1000 * TOLERANCE)
                self.assertEqual(result["opset"], [["", 17]])
                self.assertEqual(result["input"][:2], ["input", "tensor(float)"])
                self.assertEqual(result["output"][0], "prediction" if name == "regression" else "logits")
                self.assertEqual((result["input"][2][0], result["output"][1][0]), ("N", "N"))
        return results


@unittest.skipUnless(ONNX_PYTHON, "no Python with onnx and onnxruntime (scripts/setup.sh --test installs them into build/onnx)")
class Onnx(Models):
    def test_every_model(self):
        names = [n for n in case_names() if n not in LARGE]
        results = self.compare_onnx(names)
        self.assertEqual(set(results), set(names))
        metadata = results["windows"]["metadata"]
        self.assertEqual(json.loads(metadata["classes"])[:3], ["zero", 'one "quoted"', "été"])
        self.assertEqual(metadata["input"], "float32 [N,3,23,30]: RGB images, values from 0 to 1; the model normalizes them")
        self.assertEqual(json.loads(metadata["ctrain"])["input"]["resize"], 33)
        self.assertEqual(results["regression"]["metadata"]["input"], "float32 [N,2,3,4]")
        # The example of the page.
        os.rename(self.path("windows.onnx"), self.path("model.onnx"))
        code = re.search(r"^```python\n(.*?)^```", read_text(os.path.join(SOURCE, "docs", "EXPORT.md")), re.S | re.M)[1]
        r = subprocess.run([ONNX_PYTHON, "-c", code], env=ONNX, cwd=self.tmp, capture_output=True, text=True)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn(r.stdout.splitlines()[1], json.loads(metadata["classes"]))

    def test_four_commands(self):
        """From a directory of images of 10 classes to a trained model, a report and an ONNX file: init, train, report, export."""
        colors = [(25 * i, 200 - 20 * i, 60 * (i % 4)) for i in range(10)]
        for label, color in enumerate(colors):
            for i in range(5):
                self.write(f"photos/class{label}/{i}.png", png(32, 32, 10 * label + i, color))
        here = {"cwd": self.tmp}
        self.run_ctrain("init", "photos", **here)
        # Fewer epochs than the written config has.
        self.run_ctrain("photos.yaml", "train.epochs=3", "schedule.warmup_epochs=0", **here)
        self.run_ctrain("report", "runs/photos", **here)
        self.run_ctrain("export", "runs/photos", "--out", "photos.onnx", **here)
        self.assertIn("class9", read_text(self.path("runs", "photos", "report.html")))
        code = """import json, numpy, onnxruntime, zlib
def pixels(path): # of a file that png() wrote: its header has 41 bytes, and 16 bytes follow the rows
    rows = zlib.decompress(open(path, "rb").read()[41:-16])
    return numpy.frombuffer(rows, numpy.uint8).reshape(32, 97)[:, 1:].reshape(32, 32, 3).transpose(2, 0, 1).astype(numpy.float32) / 255
session = onnxruntime.InferenceSession("photos.onnx")
names = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
paths = [f"photos/class{c}/{i}.png" for c in range(10) for i in range(5)]
x = numpy.stack([pixels(p) for p in paths])
y = numpy.exp(session.run(None, {"input": x})[0].astype(float))
print(json.dumps([dict(zip(names, row)) for row in (y / y.sum(1, keepdims=True)).tolist()]))"""
        r = subprocess.run([ONNX_PYTHON, "-c", code], env=ONNX, cwd=self.tmp, capture_output=True, text=True)
        self.assertEqual(r.returncode, 0, r.stderr)
        images = [f"photos/class{c}/{i}.png" for c in range(10) for i in range(5)]
        predicted = self.run_ctrain("predict", "runs/photos", *images, "--jsonl", "--top", 10, **here).out.splitlines()
        for line, row in zip(predicted, json.loads(r.stdout), strict=True):
            for top in json.loads(line)["top"]:
                self.assertAlmostEqual(top["p"], row[top["name"]], delta=TOLERANCE)


@unittest.skipUnless(TORCH_PYTHON, "no Python with torch (CTRAIN_PYTORCH names one)")
class Python(Models):
    def test_every_model(self):
        names = [n for n in case_names() if n not in LARGE + MEDIUM]
        results = self.compare_torch(names)
        self.assertEqual(results["windows"]["classes"][:3], ["zero", 'one "quoted"', "été"])
        self.assertEqual(results["regression"]["classes"], [])

    def test_image_file(self):
        """The module prepares an image as `ctrain predict` does, up to the rounding of the resize."""
        if subprocess.run([TORCH_PYTHON, "-c", "import PIL"], capture_output=True).returncode != 0:
            self.skipTest("no Pillow")
        rows = b"".join(b"\0" + bytes((x * 7 + y * 3 + c * 50) % 256 for x in range(60) for c in range(3)) for y in range(45))
        image = self.write("image.png", png_file(60, 45, rows))
        for name in ("windows", "lenet"):
            self.make([name])
            self.export([name], ".py")
            r = subprocess.run([TORCH_PYTHON, self.path(name + ".py"), image], capture_output=True, text=True)
            self.assertEqual(r.returncode, 0, r.stderr)
            ours = self.run_ctrain("predict", self.path(name + ".safetensors"), image).out
            theirs = [(n, float(p)) for p, n in re.findall(r"^ *([\d.]+) %  (.*)$", r.stdout, re.M)]
            ours = [(n, float(p)) for p, n in re.findall(r"^ *([\d.]+) %  (.*)$", ours, re.M)]
            self.assertEqual(len(theirs), 5)
            for (n, p), (m, q) in zip(sorted(theirs), sorted(ours)):
                self.assertEqual(n, m)
                self.assertAlmostEqual(p, q, delta=0.5)

    def test_existing_files(self):
        """Neither file is written if one of them exists."""
        self.make(["mlp"])
        os.rename(self.path("mlp.safetensors"), self.path("from.safetensors"))
        self.write("mlp.safetensors", "")
        self.run_ctrain("export", self.path("from.safetensors"), "--out", self.path("mlp.py"), expect=IO)
        self.assertFalse(os.path.exists(self.path("mlp.py")))
        os.unlink(self.path("mlp.safetensors"))
        self.write("mlp.py", "")
        self.run_ctrain("export", self.path("from.safetensors"), "--out", self.path("mlp.py"), expect=IO)
        self.assertFalse(os.path.exists(self.path("mlp.safetensors")))


@unittest.skipUnless(shutil.which("cmake") and shutil.which("pkg-config") and shutil.which("cc"), "needs cmake, pkg-config and a C compiler")
class Library(Case):
    """libctrain_infer as a program outside of the project uses it: from an installed prefix, found by pkg-config or by CMake."""

    def command(self, *words, **env):
        r = subprocess.run([str(w) for w in words], env={**os.environ, **env}, capture_output=True, text=True)
        self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
        return r.stdout

    def test_example(self):
        self.train("train.max_steps=20", config=self.config(TINY.replace("[1, 12, 12]", "[3, 12, 12]")))
        weights = self.path("run", "checkpoints", "last", "model.safetensors")
        width, height = 40, 30
        rgb = bytes((x * 7 + y * 3 + c * 50) % 256 for y in range(height) for x in range(width) for c in range(3))
        ppm = self.write("image.ppm", b"P6\n%d %d\n255\n" % (width, height) + rgb)
        negative = self.write("negative.ppm", b"P6\n-1 1\n255\n" + rgb)
        truncated = self.write("truncated.ppm", b"P6\n%d %d\n255\n" % (width, height) + rgb[:-1])
        rows = b"".join(b"\0" + rgb[y * width * 3:(y + 1) * width * 3] for y in range(height))
        image = self.write("image.png", png_file(width, height, rows))
        top = self.run_ctrain("predict", weights, image, "--top", 3, "--json").json()["images"][0]["top"]
        self.command("cmake", "--install", os.path.dirname(CTRAIN), "--prefix", self.path("prefix"))
        os.rename(self.path("prefix"), self.path("moved"))
        find = {"PKG_CONFIG_PATH": self.path("moved", "lib", "pkgconfig")}
        flags = lambda *words: self.command("pkg-config", *words, "ctrain_infer", **find).split()
        warnings = ("-Wall", "-Wextra", "-Werror", *SANITIZE)
        find_library = {"LD_LIBRARY_PATH": self.path("moved", "lib")}
        shared = flags("--cflags", "--libs")
        static = [*flags("--cflags"), self.path("moved", "lib", "libctrain_infer.a"),
                  *(f for f in flags("--libs", "--static") if f != "-lctrain_infer")]
        examples = self.path("moved", "share", "doc", "ctrain", "examples")
        self.command("cmake", "-S", examples, "-B", self.path("made"), "-DCMAKE_C_FLAGS=" + " ".join(warnings),
                     "-DCMAKE_PREFIX_PATH=" + self.path("moved"))
        self.command("cmake", "--build", self.path("made"))
        for name, example, libraries in (("shared", "classify", shared), ("static", "classify", static),
                                         ("threads", "classify_threads", [*shared, "-pthread"]), ("made/classify", "classify", None),
                                         ("made/classify_threads", "classify_threads", None)):
            source = os.path.join(examples, example + ".c")
            if example == "classify":
                self.assertLessEqual(len(read_text(source).splitlines()), 41)  # as docs/EXPORT.md states
            if libraries is not None:
                self.command("cc", *warnings, source, "-o", self.path(name), *libraries)
            out = self.command(self.path(name), weights, ppm, ppm, **find_library)
            found = re.findall(rf"^{re.escape(ppm)}: +([\d.]+) %  class (\d+)$", out, re.M)
            self.assertEqual(sorted(int(c) for _, c in found), sorted(2 * [t["class"] for t in top]), name)
            of_class = {t["class"]: t["p"] for t in top}
            for p, c in found:
                self.assertAlmostEqual(float(p), 100 * of_class[int(c)], delta=0.006)
            for words, wanted in (((weights, ppm, self.path("absent")), "absent"), ((self.path("no-model"), ppm), "no-model"),
                                  ((weights,), "usage"), ((weights, ppm, truncated), "truncated.ppm: "),
                                  ((weights, ppm, negative), "negative.ppm: cannot read it as a binary PPM file")):
                r = subprocess.run([self.path(name), *words], env={**os.environ, **find_library}, capture_output=True, text=True)
                self.assertEqual(r.returncode, 1, r.stderr)
                self.assertIn(wanted, r.stderr)

    def test_only_the_interface_is_visible(self):
        header = read_text(os.path.join(SOURCE, "infer", "api", "ctrain_infer.h"))
        declared = set(re.findall(r"\b(ctrain_\w+)\(", header))
        self.assertGreater(len(declared), 9)
        for words, name in ((("-D", "--defined-only"), "libctrain_infer.so"), (("-g", "--defined-only"), "libctrain_infer.a")):
            out = self.command("nm", *words, os.path.join(os.path.dirname(CTRAIN), name))
            symbols = {line.split()[2].split("@")[0] for line in out.splitlines() if re.search(r" [TDBRVW] ", line)}
            self.assertEqual(symbols, declared, name)


class Command(Case):
    def test_run_checkpoint_and_file(self):
        """A run directory, a checkpoint, a file in it and an exported file give the same model: the EMA weights, if there are any."""
        self.train("train.ema=0.5", "train.max_steps=3")
        last = self.path("run", "checkpoints", "last")
        for i, model in enumerate((self.path("run"), last, self.path("0.safetensors"))):
            r = self.run_ctrain("export", model, "--out", self.path(f"{i}.safetensors"))
            self.assertIn("4 tensors" + ("" if i == 2 else " (EMA weights)"), r.out)
            self.run_ctrain("export", model, "--out", self.path(f"{i}.onnx"))
        for suffix in ("safetensors", "onnx"):
            contents = set()
            for i in range(3):
                with open(self.path(f"{i}.{suffix}"), "rb") as f:
                    contents.add(f.read())
            self.assertEqual(len(contents), 1, suffix)
        # The file of the trained weights has other values.
        self.run_ctrain("export", os.path.join(last, "model.safetensors"), "--out", self.path("trained.onnx"))
        with open(self.path("trained.onnx"), "rb") as f:
            self.assertNotIn(f.read(), contents)
        # Nothing is overwritten.
        r = self.run_ctrain("export", self.path("run"), "--out", self.path("0.onnx"), expect=IO)
        self.assert_last_says(r, "0.onnx: File exists", "hint: .*another name")

    def test_killed(self):
        """A file has its name only when it is complete, so the export can be repeated after a kill."""
        self.train("train.max_steps=3")
        for n in (1, 4):
            self.run_ctrain("export", self.path("run"), "--out", self.path("x.safetensors"), env={"CTRAIN_FAILPOINT": f"export:{n}"}, expect=-signal.SIGKILL)
            self.assertFalse(os.path.exists(self.path("x.safetensors")))
        self.run_ctrain("export", self.path("run"), "--out", self.path("x.safetensors"))
        self.run_ctrain("export", self.path("x.safetensors"), "--out", self.path("y.onnx"))

    def test_suffixes(self):
        """A file name that promises another format is refused, and nothing is written."""
        self.train("train.max_steps=2")
        for name, hint in (("x.pth", "torch.save"), ("x.pt", "torch.save"), ("x.bin", "torch.save"), ("x", r"\.onnx .*\.safetensors .*\.py"),
                           ("onnx", r"\.onnx .*\.safetensors .*\.py"), ("x.safetensors.gz", r"\.onnx .*\.safetensors .*\.py")):
            for command in (("export",), ("ckpt", "export")):
                r = self.run_ctrain(*command, self.path("run"), "--out", self.path(name), expect=USAGE)
                self.assert_last_says(r, f"{name}: the suffix does not name a format", f"hint: .*{hint}")
                self.assertFalse(os.path.exists(self.path(name)))
        r = self.run_ctrain("export", self.path("run"), expect=USAGE)
        self.assert_last_says(r, "--out FILE is required")
        self.run_ctrain("ckpt", "export", self.path("run"), "--out", self.path("x.onnx"))
        self.run_ctrain("ckpt", "export", self.path("run"), "--out", self.path("x.safetensors"))

    def test_foreign_weights(self):
        """Weights without a description can be copied as they are, and exported with a config."""
        config = self.config()
        self.train("train.max_steps=2", config=config)
        with open(self.path("run", "checkpoints", "last", "model.safetensors"), "rb") as f:
            content = f.read()
        size = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8:8 + size])
        del header["__metadata__"]
        header = json.dumps(header).encode()
        foreign = self.write("foreign.safetensors", struct.pack("<Q", len(header)) + header + content[8 + size:])
        self.run_ctrain("export", foreign, "--out", self.path("copy.safetensors"))
        r = self.run_ctrain("export", foreign, "--out", self.path("x.onnx"), expect=USAGE)
        self.assert_last_says(r, "does not describe its model", "--config")
        self.assertFalse(os.path.exists(self.path("x.onnx")))
        self.run_ctrain("export", foreign, "--config", config, "--out", self.path("x.onnx"))
        self.run_ctrain("export", self.path("run"), "--out", self.path("y.onnx"))
        with open(self.path("x.onnx"), "rb") as x, open(self.path("y.onnx"), "rb") as y:
            self.assertEqual(x.read(), y.read())
        wrong = self.config(read_text(config).replace("[32]", "[31]"), "wrong.yaml")
        r = self.run_ctrain("export", foreign, "--config", wrong, "--out", self.path("z.onnx"), expect=3)
        self.assert_last_says(r, "fc1.weight")
        self.assertFalse(os.path.exists(self.path("z.onnx")))


if __name__ == "__main__":
    main()
