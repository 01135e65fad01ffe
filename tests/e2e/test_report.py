"""The report of a run: its numbers are those of metrics.jsonl, it needs no network, and a real browser shows it without an error."""

import base64
import collections
import csv
import json
import os
import re
import shutil
import struct
import subprocess
import unittest
import zlib

from test_data import png
from harness import DATA, SLOW, TINY, USAGE, Case, main, read_text

BROWSER = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
NO_BROWSER = "no Chromium here (scripts/setup.sh --test installs it on Debian)"
RUN = "run <b>&amp; \"quoted\""  # its name is not trusted either


def charts(page):
    """{title: {series: ([x], [y])}} of the values that the script of the page shows."""
    values = json.loads(re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.S)[1])
    return {c["title"]: {s["name"]: (s["x"], s["y"]) for s in c["series"]} for c in values}


def image_sizes(page):
    """(width, height) of the PNG images in the page."""
    return [struct.unpack(">II", base64.b64decode(data)[16:24]) for data in re.findall(r'src="data:image/png;base64,(.*?)"', page)]


def pixels(png, width, height):
    """The bytes of the first rows of a PNG image of 8-bit RGB, as PNG's specification describes its filters."""
    data, at, rows = b"", 8, b""
    while at < len(png):
        n, kind = struct.unpack(">I4s", png[at:at + 8])
        data += png[at + 8:at + 8 + n] if kind == b"IDAT" else b""
        at += n + 12
    data, stride, above = zlib.decompress(data), 3 * width + 1, bytes(3 * width)
    for i in range(0, height * stride, stride):
        row, kind = bytearray(data[i + 1:i + stride]), data[i]
        for k in range(3 * width) if kind else ():
            a, b, c = (row[k - 3], above[k], above[k - 3]) if k > 2 else (0, above[k], 0)
            if kind < 4:
                row[k] = row[k] + (0, a, b, (a + b) // 2)[kind] & 255
            else:
                row[k] = row[k] + min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2] & 255
        rows += row
        above = row
    return rows


class Report(Case):
    def browse(self, path):
        """The page as the browser has it when its script has run. Fails if the browser reports an error."""
        argv = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                f"--user-data-dir={self.path('profile')}", "--enable-logging=stderr",
                "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom", "file://" + path]
        r = subprocess.run(argv, capture_output=True, text=True, timeout=120 * SLOW, env=self.env({"HOME": self.tmp}))
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertNotIn("CONSOLE", r.stderr)
        return r.stdout

    def check_offline(self, page):
        self.assertLess(len(page), 5e6)
        page = re.sub(r"base64,[A-Za-z0-9+/=]*", "", page)
        self.assertEqual(re.findall(r"(?i)https?:|//[a-z]|@import|url\(|<link (?!rel=\"icon\" href=\"data:,\")", page), [])

    def test_end_of_run(self):
        r = self.train(f"run.name={RUN}")
        path = self.path("run", "report.html")
        self.assertEqual(r.out.splitlines()[-1].split(), ["report", path])
        page = read_text(path)
        self.check_offline(page)
        shown = charts(page)
        steps, evals = self.metrics(kind="step"), self.metrics(kind="eval")
        for title, field in (("Loss", "loss"), ("Learning rate", "lr"), ("Images per second", "images_per_sec")):
            x, y = shown[title]["training" if field == "loss" else ""]
            self.assertEqual(list(zip(x, y)), [(m["step"], m[field]) for m in steps], title)
        self.assertEqual(shown["Loss"]["evaluation"], ([m["step"] for m in evals], [m["loss"] for m in evals]))
        self.assertEqual(shown["Accuracy"]["top-1"], ([m["step"] for m in evals], [m["top1"] for m in evals]))
        self.assertIn(self.digest(), page)
        rows = list(csv.DictReader(read_text(self.path("run", "results.csv")).splitlines()))
        self.assertEqual([float(row["train/loss"]) for row in rows], [m["train_loss"] for m in self.metrics(kind="epoch")])
        self.assertEqual([float(row["metrics/accuracy_top1"]) for row in rows], [m["top1"] for m in evals])
        self.assertEqual([int(row["epoch"]) for row in rows], [1, 2])
        ranks = self.metrics(kind="epoch")[-1]
        for name, field in (("data", "rank_data_seconds"), ("waiting", "rank_waiting_seconds")):
            x, y = shown["Ranks in the last epoch (s)"][name]
            self.assertEqual(x, [0, 1])
            for a, b in zip(y, ranks[field]):
                self.assertAlmostEqual(a, b)
        # 24 training images and 24 mistakes of 12x12 pixels, and 32 filters that have the size of the images.
        self.assertEqual(image_sizes(page), 80 * [(12, 12)])
        for name, width, height in (("results.png", 2240, 2400), (os.path.join("eval", "confusion.png"), 1120, 1180)):
            with open(self.path("run", name), "rb") as f:
                image = f.read()
            self.assertEqual(struct.unpack(">II", image[16:24]), (width, height))
            colors = collections.Counter(re.findall(b"(?s)...", pixels(image, width, 130)))
            self.assertGreater(colors[b"\xff\xff\xff"], 0.5 * width * 130, name)
            self.assertGreater(colors[b"\x68\x70\x7d"], 500, "labels")
            self.assertGreater(colors[b"\x16\x19\x1f"], 200, "titles")
        # The same from the command.
        os.unlink(path)
        self.assertEqual(self.run_ctrain("report", self.path("run")).out, path + "\n")
        self.assertEqual(read_text(path), page)

    def test_balanced(self):
        """The first images of balanced sampling are those that the model saw, of all classes."""
        for label, n in (("common", 60), ("rare", 4)):
            for i in range(n):
                self.write(f"src/{label}/{i:02d}.png", png(12, 12, 100 * len(label) + i))
        config = self.config(f"""\
model: {{name: mlp, hidden: [8]}}
data: {{name: imagefolder, dir: {self.path("src")}, train: {{path: ., size: 12}}, val: none, shuffle: balanced}}
batch: {{global: 16}}
train: {{epochs: 1}}
""", "balanced.yaml")
        self.train(config=config)
        page = read_text(self.path("run", "report.html"))
        section = page[page.index("<h2>Training images</h2>"):]
        captions = collections.Counter(re.findall(r"<figcaption>(\w+)", section))
        self.assertEqual(sum(captions.values()), 24)
        self.assertGreater(captions["rare"], 5)  # 12 are expected; 1.5 of 24 without balanced sampling

    def test_large_filters(self):
        """Filters of a linear layer that reads large images are not shown: the page would have megabytes."""
        for side, shown in ((64, True), (72, False)):
            config = self.config(TINY.replace("[1, 12, 12]", f"[1, {side}, {side}]").replace("n_train: 1000", "n_train: 96"), f"{side}.yaml")
            self.train("train.epochs=1", config=config, run=str(side))
            page = read_text(self.path(str(side), "report.html"))
            self.assertIn("<h2>Training images</h2>", page)
            self.assertEqual("<h2>Weights of the first layer</h2>" in page, shown, side)

    def test_shapes(self):
        """Images of any shape are shown."""
        config = self.config(TINY.replace("[1, 12, 12]", "[1, 1, 784]"), "line.yaml")
        r = self.train("train.epochs=1", "launch.procs=1", config=config, run="line")
        self.assert_quiet(r)
        page = read_text(self.path("line", "report.html"))
        self.assertGreaterEqual(page.count('<img alt=""'), 24)

    @unittest.skipUnless(BROWSER, NO_BROWSER)
    def test_browser(self):
        self.train(f"run.name={RUN}")
        path = self.path("run", "report.html")
        seen = self.browse(path)
        self.assertEqual(re.search("<h1>(.*)</h1>", seen)[1], "run &lt;b&gt;&amp;amp; \"quoted\"")
        self.assertEqual(seen.count('<div class="tip">'), len(charts(read_text(path))), "the script of the page has run")

    @unittest.skipUnless(BROWSER, NO_BROWSER)
    def test_browser_reports_errors(self):
        """The check above can fail."""
        path = self.write("bad.html", "<script>undefined_function()</script>")
        with self.assertRaises(AssertionError):
            self.browse(path)

    def test_without_data(self):
        """If the data is gone, the report has everything but images."""
        self.train()
        text = read_text(self.path("run", "config.yaml"))
        self.write("run/config.yaml", re.sub(r"(?s)(\ndata:\n)(.*?)(\n\w)", r"\1  name: mnist\n  dir: /absent\n\3", text))
        r = self.run_ctrain("report", self.path("run"))
        self.assert_says(r, "the report has no images, because the data of the run cannot be opened: .*/absent")
        page = read_text(self.path("run", "report.html"))
        self.assertEqual(image_sizes(page), [])
        self.assertIn("<h2>Evaluation</h2>", page)

    def test_does_not_change_the_run(self):
        self.train()
        self.train("log.report=false", run="without")
        self.assertFalse(os.path.exists(self.path("without", "report.html")))
        self.assertFalse(os.path.exists(self.path("without", "results.csv")))
        self.assertEqual(self.digest("without"), self.digest())
        self.assertEqual(self.losses("without"), self.losses())

    def test_evaluation(self):
        """Each sample is counted once, for any number of ranks, and the numbers agree with each other."""
        self.train()
        page = read_text(self.path("run", "report.html"))
        self.assertIn("<h2>Evaluation</h2>", page)
        wanted = read_text(self.path("run", "eval", "predictions.csv"))
        best = max(self.metrics(kind="eval"), key=lambda m: m["top1"])
        for ranks in (1, 2, 3):
            r = self.run_ctrain("eval", self.path("run"), "--report", "--checkpoint", "best", "--procs", ranks)
            self.assertEqual(r.out.splitlines()[-1], self.path("run", "report.html"))
            self.assertEqual(read_text(self.path("run", "eval", "predictions.csv")), wanted, ranks)
            self.assertEqual(read_text(self.path("run", "report.html")), page)
        rows = list(csv.DictReader(wanted.splitlines()))
        self.assertEqual([int(row["sample"]) for row in rows], list(range(230)))
        correct = sum(row["label"] == row["predicted"] for row in rows)
        self.assertEqual(correct / len(rows), best["top1"])
        summary = json.loads(read_text(self.path("run", "eval", "evaluation.json")))
        self.assertEqual((summary["top1"], summary["count"], summary["step"]), (best["top1"], 230, best["step"]))
        self.assertEqual(sum(b["count"] for b in summary["bins"]), 230)
        errors = [abs(b["accuracy"] - b["confidence"]) * b["count"] for b in summary["bins"]]
        self.assertAlmostEqual(summary["calibration_error"], sum(errors) / 230, places=6)
        matrix = [[int(v) for v in line.split(",")[1:]] for line in read_text(self.path("run", "eval", "confusion.csv")).splitlines()[1:]]
        self.assertEqual(sum(map(sum, matrix)), 230)
        self.assertEqual(sum(matrix[k][k] for k in range(10)), correct)
        for k, c in enumerate(csv.DictReader(read_text(self.path("run", "eval", "classes.csv")).splitlines())):
            self.assertEqual((int(c["samples"]), int(c["correct"])), (sum(matrix[k]), matrix[k][k]))
            self.assertAlmostEqual(float(c["recall"]), matrix[k][k] / sum(matrix[k]), places=5)
            predicted = sum(row[k] for row in matrix)
            self.assertAlmostEqual(float(c["precision"]), matrix[k][k] / predicted if predicted else 0, places=5)
        self.run_ctrain("eval", self.path("run"), "--report", "--out", self.path("elsewhere"))
        self.assertEqual(sorted(os.listdir(self.path("elsewhere"))), ["classes.csv", "confusion.csv", "evaluation.json", "predictions.csv"])

    def test_pipeline_and_regression(self):
        self.train("launch.pipeline=2", "train.epochs=1", "model.hidden=[32,32]", run="stages")
        self.assertEqual(len(read_text(self.path("stages", "eval", "predictions.csv")).splitlines()), 231)
        sets = ("data.name=synthetic_regression", "model.loss=mse", "train.epochs=1", "optim.lr=1e-4")
        self.train(*sets, "data.targets=3", config=self.config(TINY.replace(", shape: [1, 12, 12]", ""), "regression.yaml"), run="numbers")
        self.assertFalse(os.path.exists(self.path("numbers", "eval")))
        r = self.run_ctrain("eval", self.path("numbers"), "--report", expect=USAGE)
        self.assert_last_says(r, "--report is for models that predict classes")

    def test_failure_is_a_warning(self):
        os.makedirs(self.path("run", "report.html"))
        r = self.train("train.resume=auto")
        self.assert_says(r, r"warn .*cannot write the report of the run: .*report\.html")

    def test_resumed(self):
        """The report of a run that was continued shows all of its steps."""
        self.train("train.epochs=1")
        self.train("train.epochs=2")
        page = read_text(self.path("run", "report.html"))
        self.assertEqual(charts(page)["Loss"]["training"][0], [m["step"] for m in self.metrics(kind="step")])
        self.assertIn("Resumed from a checkpoint with 2 ranks", page)

    def test_several(self):
        for run, lr in (("a", "0.05"), ("b", "0.2")):
            self.train(f"optim.lr={lr}", run=run)
        out = self.path("both.html")
        self.run_ctrain("report", self.path("a"), self.path("b"), "--out", out)
        page = read_text(out)
        self.check_offline(page)
        names = (self.path("a"), self.path("b"))
        for name, run in zip(names, ("a", "b")):
            self.assertEqual(charts(page)["Loss"][name][1], [m["loss"] for m in self.metrics(run, "step")])
        differences = page[page.index("Differences in the configuration"):page.index("<details><summary>Keys with the same value")]
        self.assertEqual(re.findall(r'<tr><td class="mono">(.*?)</td><td class="mono">(.*?)</td><td class="mono">(.*?)</td>', differences),
                         [("run.dir", *names), ("optim.lr", "0.05", "0.2")])
        r = self.run_ctrain("report", self.path("a"), self.path("absent"), expect=DATA)
        self.assert_last_says(r, "absent is not a run directory")


if __name__ == "__main__":
    main()
