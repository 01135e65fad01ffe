"""`ctrain bench`: one JSON object with the figures that comparisons read, for every part and communicator; the scripts of bench/."""

import json
import os
import random
import re
import shutil
import signal
import stat
import statistics
import subprocess
import sys
import time

from harness import COMM, CTRAIN, DEVICE, SLOW, SOURCE, USAGE, Case, main, read_text
from test_data import png


class Bench(Case):
    def test_step(self):
        j = self.run_ctrain("bench", "step", self.config(), "--steps", 3, "--json").json()
        self.assertEqual((j["bench"], j["model"], j["steps"], j["allocations"]), ("step", "mlp", 3, 0))
        self.assertTrue(j["device"])
        self.assertGreater(j["images_per_sec"], 0)
        self.assertLessEqual(j["step_ms_min"], j["step_ms_median"])
        names = [n["name"] for n in j["nodes"]]
        for name in ("fc1", "fc2"):
            self.assertIn(name, names)
        for key in ("data_ms", "forward_ms", "backward_ms", "optim_ms", "gflops_per_sec"):
            self.assertGreaterEqual(j[key], 0, key)
        # 144 inputs, 32 hidden: multiply-adds and the bias, of a batch of 48. No gradient of the images.
        nodes = {n["name"]: n for n in j["nodes"]}
        self.assertEqual(nodes["fc1"]["flops"], j["batch"] * (2 * 144 * 32 + 32))
        self.assertEqual(nodes["fc1"]["backward_flops"], nodes["fc1"]["flops"])
        self.assertEqual(nodes["fc2"]["backward_flops"], 2 * nodes["fc2"]["flops"])
        for name in ("fc1", "fc2"):
            n = nodes[name]
            self.assertAlmostEqual(n["forward_gflops_per_sec"] * n["forward_ms"] * 1e6 / n["flops"], 1, delta=1e-6)
            self.assertAlmostEqual(n["backward_gflops_per_sec"] * n["backward_ms"] * 1e6 / n["backward_flops"], 1, delta=1e-6)
        self.assertFalse([n for n in j["nodes"] if n["op"] not in ("linear", "conv2d") and "flops" in n])

    def test_step_table(self):
        """For people: the layers and their kinds, those that take the most time first."""
        out = self.run_ctrain("bench", "step", self.config(), "--steps", 3).out
        self.assertRegex(out, r"mlp on .*, batch 48 per rank, 1 rank\nstep [0-9.]+ ms \(median of 3, ")
        layers, kinds = (part.splitlines() for part in out.split("\n\n")[1:3])
        self.assertRegex(layers[0], r"layer +forward ms +backward ms +share +GFLOP/s")
        self.assertEqual(sorted(row.split()[0] for row in layers[1:]), sorted(n["name"] for n in self.run_ctrain(
            "bench", "step", self.config(), "--steps", 3, "--json").json()["nodes"]))
        self.assertIn("linear", [row.split()[0] for row in kinds[1:]])
        for table in (layers, kinds):
            times = [sum(map(float, row.split()[1:3])) for row in table[1:]]
            for a, b in zip(times, times[1:]):
                self.assertGreater(a + 0.0021, b, out)  # each column is rounded to 0.001

    def test_step_trace(self):
        """The trace has what Perfetto needs, and every rank with its steps, phases, layers and buckets."""
        path = self.path("trace.json")
        begin = time.monotonic()
        out = self.run_ctrain("bench", "step", self.config(), "--steps", 3, "--procs", 2, "--trace", path, "dist.bucket_mib=0.01", "dist.first_bucket_mib=0.01").out
        most_us = 1e6 * (time.monotonic() - begin)
        self.assertIn(path, out)
        self.assertIn("2 ranks", out)
        with open(path, encoding="utf-8") as f:
            trace = json.load(f)
        tracks, spans = {}, {}
        for e in trace["traceEvents"]:
            self.assertIn(e["pid"], (0, 1))
            self.assertIsInstance(e["tid"], int)
            if e["ph"] == "M":
                tracks.setdefault(e["pid"], {})[e["tid"]] = e["args"].get("name") or tracks[e["pid"]][e["tid"]]
                continue
            self.assertEqual(e["ph"], "X")
            self.assertTrue(e["name"] and e["cat"], e)
            self.assertGreaterEqual(min(e["ts"], e["dur"]), 0, e)
            spans.setdefault((e["pid"], tracks[e["pid"]][e["tid"]]), []).append(e)
        for rank in (0, 1):
            self.assertRegex(tracks[rank][0], f"^rank {rank} on ")
            steps, phases, layers = (spans[rank, name] for name in ("steps", "phases", "layers"))
            self.assertEqual([e["name"] for e in steps], ["step 1", "step 2", "step 3"])
            for e in steps:  # microseconds, not nanoseconds or milliseconds
                self.assertGreater(e["dur"], 5)
                self.assertLess(e["ts"] + e["dur"], most_us)
            self.assertEqual([e["name"] for e in phases], 3 * ["wait for data", "forward", "backward", "wait for communication", "update"])
            self.assertLessEqual({("fc1", "forward"), ("fc1 (backward)", "backward"), ("fc2", "forward")}, {(e["name"], e["cat"]) for e in layers})
            buckets = [name for pid, name in spans if pid == rank and name.startswith("bucket ")]
            self.assertGreater(len(buckets), 1)
            for name in buckets:
                self.assertEqual([e["args"]["step"] for e in spans[rank, name]], [1, 2, 3])
            # Spans of a track do not overlap, and those of a step are within it (times are rounded to 1 ns).
            for name in ("steps", "phases", "layers", *buckets):
                track = sorted(spans[rank, name], key=lambda e: e["ts"])
                for a, b in zip(track, track[1:]):
                    self.assertLessEqual(a["ts"] + a["dur"], b["ts"] + 0.002, name)
                for e in track:
                    step = steps[e["args"]["step"] - 1]
                    self.assertGreaterEqual(e["ts"] + 0.002, step["ts"], e)
                    self.assertLessEqual(e["ts"] + e["dur"], step["ts"] + step["dur"] + 0.002, e)
        # An all-reduce cannot be done on a rank before the other rank has begun it.
        for name in buckets:
            for a, b in zip(spans[0, name], spans[1, name]):
                self.assertLessEqual(max(a["ts"], b["ts"]), min(a["ts"] + a["dur"], b["ts"] + b["dur"]) + 1000, name)

    def test_step_of_a_pipeline(self):
        for more in ((), ("--trace", self.path("trace.json"))):
            r = self.run_ctrain("bench", "step", self.config(), "launch.pipeline=2", "--procs", 2, *more, expect=USAGE)
            self.assert_last_says(r, "bench step does not measure launch.pipeline=2", "hint: use launch.pipeline=1")
            self.assertNotIn("ms", r.out)

    def test_step_trace_of_many_buckets(self):
        """The steps after those of the trace have more operations than the flight record can store."""
        config = self.config("model: {name: layers, layers: [flatten%s, linear 10]}\ndata: {name: synthetic, n_train: 1000, n_val: 10, shape: [1, 4, 4]}\n"
                             "batch: {global: 48}\ntrain: {epochs: 1}\n" % (40 * ", linear 8"))
        path = self.path("trace.json")
        self.run_ctrain("bench", "step", config, "--steps", 20, "--procs", 2, "--trace", path, "dist.bucket_mib=0.0001", "dist.first_bucket_mib=0.0001")
        with open(path, encoding="utf-8") as f:
            found = {(e["pid"], e["args"]["step"]) for e in json.load(f)["traceEvents"] if e.get("cat") == "communication"}
        self.assertEqual(found, {(rank, step) for rank in (0, 1) for step in (1, 2, 3)})

    def test_step_of_growing_images(self):
        """The first size throughout. Epochs have two steps: the seventh begins among those that are profiled."""
        j = self.run_ctrain("bench", "step", shards_of(self), "data.train.size=[[0,16],[6,32]]", "--steps", 5, "--json").json()
        conv = next(n for n in j["nodes"] if n["name"] == "conv1")
        self.assertEqual(conv["flops"], 8 * 2 * 27 * 64 * 16 * 16)
        self.assertGreater(conv["forward_ms"], 0)

    def test_loader(self):
        j = self.run_ctrain("bench", "loader", self.config(), "--steps", 21).json()
        self.assertEqual((j["bench"], j["data"], j["images"]), ("loader", "synthetic", 1000))
        self.assertGreater(j["images_per_sec"], 0)

    def test_comm(self):
        for backend, procs in (("self", 1), ("shm", 2), ("shm", 3), ("gloo", 2), ("gloo", 3)):
            with self.subTest(backend=backend, procs=procs):
                self.check_comm(backend, procs)

    def test_comm_mpi(self):
        for launcher in ("mpirun.openmpi", "mpirun.mpich"):
            with self.subTest(launcher=launcher):
                if not shutil.which(launcher):
                    self.skipTest(f"{launcher} is not installed")
                extra = ["--oversubscribe"] if "openmpi" in launcher else []
                root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
                self.check_comm("mpi", 2, env=root, prefix=[launcher, *extra, "-n", "2"])

    def test_comm_nccl(self):
        """Vectors in the memory of the software GPU."""
        soft = os.path.join(os.path.dirname(os.path.abspath(CTRAIN)), "soft_cudart")
        if not os.path.exists(os.path.join(soft, "libnccl.so.2")):
            self.skipTest("built without the software GPU or the stand-in for NCCL")
        for procs in (2, 3):
            self.check_comm("nccl", procs, "device=cuda", env={"CTRAIN_CUDA_LIBS": soft, "SOFT_GPU_DEVICES": "3"})

    def check_comm(self, backend, procs, *sets, prefix=(), **more):
        """The table has nccl-tests' columns, and the JSON object has the same numbers."""
        sets += () if prefix else ("--procs", procs)
        r = self.run_ctrain("bench", "comm", self.config(), "--iters", 2, "--warmup", 1, "--min", 8, "--max", "1M", "--factor", 1024,
                            *sets, f"dist.backend={backend}", "--out", self.path("comm.json"), prefix=prefix, **more)
        with open(self.path("comm.json"), encoding="utf-8") as f:
            j = json.load(f)
        self.assertEqual((j["v"], j["bench"], j["backend"], j["world_size"], j["hosts"], j["wrong"]), (1, "comm", backend, procs, 1, 0))
        ops = ["allreduce", "reduce", "broadcast", "allgather", "gather", "scatter", "reduce_scatter"] + ["sendrecv"] * (procs > 1)
        parts = {"allgather", "gather", "scatter", "reduce_scatter"}
        self.assertEqual([row["op"] for row in j["rows"]], [op for op in ops for _ in range(2)] + ["barrier"])
        table = [line.split() for line in r.out.splitlines() if not line.startswith("#")]
        self.assertEqual(len(table), len(j["rows"]))
        for row, columns in zip(j["rows"], table):
            op, size = row["op"], row["bytes"]
            n = procs if op in parts else 1
            self.assertEqual(columns[:5] + columns[8:], [str(row[k]) for k in ("bytes", "count", "type", "redop", "root", "wrong")])
            self.assertEqual((size, row["iters"], row["wrong"]), (row["count"] * 4 * n, 2, 0))
            self.assertEqual(row["redop"], "sum" if "reduce" in op else "none")
            self.assertEqual(row["root"], 0 if op in ("reduce", "broadcast", "gather", "scatter") else -1)
            self.assertAlmostEqual(float(columns[5]), row["us"], delta=0.0051)
            # nccl-tests' meaning: bytes / time, and what a link must carry of it.
            factor = 2 * (procs - 1) / procs if op == "allreduce" else (procs - 1) / procs if op in parts else 1
            self.assertAlmostEqual(row["algbw_gbps"] * row["us"] * 1e3, size, delta=1e-6 * size)
            self.assertAlmostEqual(row["busbw_gbps"], row["algbw_gbps"] * factor, delta=1e-9 + 1e-6 * row["algbw_gbps"])
        self.assertEqual([line for line in r.out.splitlines() if "Out of bounds" in line], ["# Out of bounds values : 0 OK"] * (len(ops) + 1))

    def test_T10_comm_options(self):
        """Sizes, types and a selection of operations; --json prints only the object."""
        r = self.run_ctrain("bench", "comm", self.config(), "--json", "--op", "sendrecv,allreduce", "--type", "bfloat16", "--min", "1K", "--max", "3K",
                            "--factor", 2, "--iters", 1, "--procs", 2)
        self.assertEqual([(row["op"], row["bytes"], row["count"], row["type"]) for row in r.json()["rows"]],
                         [(op, size, size // 2, "bfloat16") for op in ("allreduce", "sendrecv") for size in (1024, 2048)])
        for option, value, say in (("--min", "1X", "--min 1X: expected a size"), ("--max", "0", "--max 0: expected a size"), ("--max", "2000G", "--max 2000G: expected a size [^\n]*up to 1024G"),
                                   ("--factor", "1", "--factor 1"), ("--op", "allreduce,gathr", "--op gathr is not one of allreduce, reduce"),
                                   ("--type", "f32", "--type f32 is not one of float, double"), ("--iters", "2001", "--iters 2001"),
                                   ("--warmup", "-1", "--warmup -1")):
            with self.subTest(option=option):
                self.assert_last_says(self.run_ctrain("bench", "comm", self.config(), f"{option}={value}", expect=USAGE), say)
        self.assert_last_says(self.run_ctrain("bench", "comm", self.config(), "--min", "2M", "--max", "1M", expect=USAGE), "larger than --max 1M")
        self.assert_last_says(self.run_ctrain("bench", "comm", self.config(), "--op", "sendrecv", "--procs", 1, expect=USAGE), "at least 2 ranks")

    def test_comm_that_needs_too_much_memory(self):
        """An error of its own, before the kernel kills a rank."""
        for backend in ("shm", "gloo"):
            with self.subTest(backend=backend):
                r = self.run_ctrain("bench", "comm", self.config(), "--max", "1024G", "--procs", 2, f"dist.backend={backend}", expect=DEVICE)
                self.assert_last_says(r, r"--max 1\.00 TiB needs at least 4\.00 TiB of memory for the vectors of 2 ranks on this host, but \S+ [GM]iB are available",
                                      "hint: use a smaller --max")

    def test_comm_killed(self):
        """There is no checkpoint to continue from."""
        p = self.start("bench", "comm", self.config(), "--max", 8, "--op", "barrier", "--iters", 1, "--warmup", 100000, "--procs", 2)
        pid = self.until(lambda: self.rank_pid(1), "rank 1 ran", p)
        os.kill(pid, signal.SIGKILL)
        r = p.wait(30)
        self.assert_code(r, COMM)
        self.assert_last_says(r, rf"rank 1 \(pid {pid} .*killed by signal 9", "hint:")
        self.assertNotIn("checkpoint", r.err)

    def test_steps_that_are_no_number(self):
        for part, text in (("step", "x"), ("loader", "0")):
            with self.subTest(part=part):
                r = self.run_ctrain("bench", part, self.config(), "--steps", text, expect=USAGE)
                self.assert_last_says(r, f"--steps {text}")

    def test_data(self):
        config = shards_of(self)
        j = self.run_ctrain("bench", "data", config, "--json", "--seconds", 1, "--threads", 2).json()
        self.assertEqual((j["bench"], j["data"], j["samples"], j["height"], j["width"], j["threads"]), ("data", "shards", 12, 32, 32, 2))
        for key in ("images_per_sec", "core_images_per_sec", "decode_only_images_per_sec", "share_of_decode_only", "read_mb_per_sec"):
            self.assertGreater(j[key], 0, key)
        self.assertEqual(list(j["stages"]), ["read", "decode", "resize", "distort", "assemble"])
        self.assertIn(j["bound_by"], j["stages"])
        self.assertAlmostEqual(sum(s["share"] for s in j["stages"].values()), 1, delta=1e-6)
        self.assertEqual(max(j["stages"], key=lambda s: j["stages"][s]["ms"]), j["bound_by"])
        self.assertTrue(0 < j["image_ms"]["p50"] <= j["image_ms"]["p90"] <= j["image_ms"]["p99"] <= j["image_ms"]["max"])
        text = self.run_ctrain("bench", "data", config, "--seconds", 1).out
        # This run is another measurement: its own table says what takes the most time.
        ms = {stage: float(t) for stage, t in re.findall(r"^  (\w+) +(\d+\.\d{4}) +\d+ +\d+%$", text, re.MULTILINE)}
        self.assertEqual(list(ms), list(j["stages"]), text)
        bound = re.search(r"^bound by (\w+): \d+% of the time of an image$", text, re.MULTILINE)
        self.assertEqual(ms[bound.group(1)], max(ms.values()), text)
        j = self.run_ctrain("bench", "data", self.config(), "--json", "--seconds", 1, "data.augment.flip=true").json()
        self.assertNotIn("decode_only_images_per_sec", j)
        self.assertGreater(j["images_per_sec"], 0)
        self.run_ctrain("bench", "data", self.config(), "--seconds", "0", expect=USAGE)


def shards_of(case):
    for i in range(12):
        case.write(f"src/class_{i % 3}/i{i:02d}.png", png(60, 50, i))
    case.run_ctrain("data", "pack", case.path("src"), case.path("out/train-%d.tar"), "--shard-size", 6, "--short", 40)
    return case.write("shards.yaml", """\
model: {name: resnet18}
data: {name: shards, dir: %s, train: {path: "train-{0..1}.tar", size: 32}, val: none, classes: 3}
batch: {global: 8}
train: {epochs: 1}
""" % case.path("out"))


class ConvPeak(Case):
    def conv_peak(self, *args, expect=0):
        program = os.path.join(os.path.dirname(CTRAIN), "bench", "conv_peak")
        if not os.path.exists(program):
            self.skipTest("built without bench/conv_peak")
        out = subprocess.run([program, *map(str, args)], env=self.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100 * SLOW)
        self.assertEqual(out.returncode, expect, out.stderr.decode())
        return out

    def check(self, *args):
        out = self.conv_peak(*args, "--rounds", 1, "--json")
        self.assertEqual(out.stderr, b"")
        j = json.loads(out.stdout.decode())
        self.assertEqual((j["bench"], j["model"], j["size"], j["batch"], j["threads"], j["precision"]), ("conv_peak", *args[:5]))
        self.assertTrue(j["processor"])
        self.assertEqual([p["threads"] for p in j["peaks"]], [1, 2][: j["threads"]])
        step, layers = j["step"], j["layers"]
        total = {"gflop": 0, "direct_ms": 0, "best_ms": 0}
        for layer in layers:
            for name in ("forward", "backward_data", "backward_weights"):
                if name not in layer:
                    self.assertEqual((layer["channels"], name), (3, "backward_data"))
                    continue
                p = layer[name]
                self.assertAlmostEqual(p["direct_gflops_per_sec"] * p["direct_ms"] * 1e-3 / layer["gflop"], 1, delta=1e-6)
                total["gflop"] += layer["count"] * layer["gflop"]
                total["direct_ms"] += layer["count"] * p["direct_ms"]
                total["best_ms"] += layer["count"] * min(p["direct_ms"], p.get("winograd_ms", p["direct_ms"]))
        for key, value in total.items():
            self.assertAlmostEqual(step[key] / value, 1, delta=1e-6, msg=key)
        self.assertLessEqual(step["best_ms"], step["engine_ms"])
        if "peak_ms" in step:
            self.assertAlmostEqual(step["best_share"], step["peak_ms"] / step["best_ms"], delta=1e-6)
            self.assertGreaterEqual(step["bound_ms"], step["peak_ms"])
        return j

    def test_fp32(self):
        j = self.check("resnet20", 32, 2, 2, "fp32")
        # Stem, 18 convolutions of 3x3 and two of 1x1 where the shape changes.
        self.assertEqual(sum(layer["count"] for layer in j["layers"]), 21)
        self.assertEqual([(layer["count"], layer["gflop"]) for layer in j["layers"] if layer["name"] == "layer1.0.conv1"],
                         [(6, 2 * 2 * 16 * 16 * 9 * 32 * 32 * 1e-9)])
        self.assertIn("each at its best", self.conv_peak("resnet20", 32, 1, 1, "fp32", "--rounds", 1).stdout.decode())

    def test_bf16(self):
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            if "avx512_bf16" not in f.read():
                self.assertIn(b"avx512_bf16", self.conv_peak("resnet20", 32, 2, 1, "bf16", expect=USAGE).stderr)
                return
        self.check("resnet20", 32, 2, 1, "bf16")

    def test_wrong_arguments(self):
        for args, say in ((("resnet20", 32, 2, 1), "wanted"), (("resnet20", 32, 2, 1, "fp16"), "fp16"), (("resnet21", 32, 2, 1, "fp32"), "resnet21"),
                          (("resnet20", 32, 0, 1, "fp32"), "0"), (("mlp", 32, 2, 1, "fp32"), "without convolutions")):
            with self.subTest(args=args):
                self.assertIn(say, self.conv_peak(*args, expect=USAGE).stderr.decode())


class Scripts(Case):
    """They work, with programs in the place of PyTorch that only print what it would."""

    def script(self, name, *args):
        out = subprocess.run([sys.executable, "-B", os.path.join(SOURCE, "bench", name), "--ctrain", CTRAIN, *map(str, args)], env=self.env(),
                             cwd=self.tmp, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100 * SLOW)
        self.warnings = out.stderr.decode()
        self.assertEqual(out.returncode, 0, self.warnings)
        return json.loads(out.stdout.decode())

    def stand_in(self, name="old", before="", **prints):
        """An interpreter that prints this, whatever its arguments are; before: shell code that runs first."""
        path = self.write("stand-in-" + name, "#!/bin/sh\n%s\necho '%s'\n" % (before, json.dumps(prints)))
        os.chmod(path, stat.S_IRWXU)
        return name + "=" + path

    def cifar(self):
        r = random.Random(1)
        for name, n in (("data_batch_1.bin", 16), ("test_batch.bin", 10)):
            self.write("cifar/" + name, b"".join(bytes([i % 10]) + bytes(r.randrange(256) for _ in range(3072)) for i in range(n)))
        return self.path("cifar")

    def assert_machine(self, machine):
        """As in /proc/cpuinfo, and with the oneDNN of this build."""
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            cpuinfo = f.read()
        if "model name" in cpuinfo:  # not on aarch64
            self.assertIn(f"model name\t: {machine['processor']}\n", cpuinfo)
            self.assertIn(f"model\t\t: {machine['model']}\n", cpuinfo)
        self.assertEqual("avx2" in machine["features"].split(), " avx2 " in cpuinfo)
        self.assertEqual(machine["cpus"], len(os.sched_getaffinity(0)))
        if re.search(r"onednn +yes", self.run_ctrain("info").out):
            self.assertRegex(machine["onednn"], r"^\d+\.\d+\.\d+ \w+$")

    def test_machine(self):
        """Every script that writes results states where they were measured."""
        folder = os.path.join(SOURCE, "bench")
        writers = {name: text for name in os.listdir(folder) if name.endswith(".py") for text in [read_text(os.path.join(folder, name))]
                   if "json.dump" in text}
        self.assertGreater(len(writers), 10)
        self.assertEqual([name for name, text in sorted(writers.items()) if "host.describe(" not in text], [])

    def figures(self, **more):
        return {"version": "0", "startup_seconds": 1.0, "peak_rss_mb": 1000, **more}

    def vs_pytorch(self, *args):
        return self.script("vs_pytorch.py", "--model", "resnet18_cifar", "--batch", 2, "--steps", 5, "--rounds", 1, "--data-dir", self.cifar(), *args)

    def test_vs_pytorch(self):
        python = self.stand_in(**self.figures(images_per_sec=2.0))
        j = self.vs_pytorch("--peer", "x", "--python", python, "--channels-last", "--no-compile", "--preload", "none")
        self.assertEqual((j["model"], j["batch_per_rank"], list(j["peers"])), ("resnet18_cifar", 2, ["old, as installed", "old, channels_last"]))
        self.assertAlmostEqual(j["best"]["ratio"], j["ctrain"]["images_per_sec"] / 2, delta=0.01)
        self.assertLess(j["best"]["rss_ratio"], 1)
        self.assertIn("allocator", j["unavailable"])
        self.assert_machine(j["machine"])
        runs = [j["ctrain"]["runs"], *(peer["runs"] for peer in j["peers"].values())]
        self.assertEqual([len(rows) for rows in runs], [3, 1, 1])
        self.assertAlmostEqual(statistics.median(r["images_per_sec"] for r in runs[0]), j["ctrain"]["images_per_sec"], delta=0.0001)
        self.assertEqual(j["disturbed"], sum(row["others"] > 0.05 for rows in runs for row in rows))

    def test_vs_pytorch_compile(self):
        """The default peer is a file of the repository; the best of all variants is reported; one that cannot run is listed with the reason."""
        compiled = json.dumps(self.figures(images_per_sec=4.0))
        new = self.stand_in("new", f"[ -f $1 ] || exit 1; case \"$*\" in *--compile*) echo '{compiled}'; exit;; esac", **self.figures(images_per_sec=2.0))
        old = self.stand_in("old", 'case "$*" in *--compile*) echo no compiler >&2; exit 77;; esac', **self.figures(images_per_sec=3.0))
        j = self.vs_pytorch("--python", new, "--python", old, "--only-tuned", "--channels-last", "--preload", "none")
        self.assertEqual(list(j["peers"]), ["new, channels_last", "new, compile, channels_last", "old, channels_last"])
        self.assertEqual(j["unavailable"]["old, compile, channels_last"], "no compiler")
        self.assertEqual(j["best"]["peer"], "new, compile, channels_last")

    def test_vs_pytorch_limits(self):
        """An allocator and the limit on instructions reach the peer, and the limit reaches ctrain."""
        shown = self.path("shown")
        python = self.stand_in(before=f'echo "$LD_PRELOAD $ONEDNN_MAX_CPU_ISA $ATEN_CPU_CAPABILITY" >> {shown}', **self.figures(images_per_sec=2.0))
        preload = "libm.so.6"
        j = self.vs_pytorch("--python", python, "--preload", preload, "--isa", "avx2")
        self.assertEqual(list(j["peers"]), ["old, as installed", "old, allocator preloaded", "old, compile, channels_last and allocator"])
        self.assertEqual((j["isa"], j["allocator"]), ("avx2", preload))
        self.assertEqual(read_text(shown).splitlines(), [" AVX2 avx2"] + 2 * [f"{preload} AVX2 avx2"])
        # A build that does not know the key train.isa would have failed.
        ctrain = self.write("ctrain", f'#!/bin/sh\ncase "$*" in *info*|*train.isa=avx2*) exec {CTRAIN} "$@";; esac\nexit 1\n')
        os.chmod(ctrain, stat.S_IRWXU)
        self.vs_pytorch("--ctrain", ctrain, "--isa", "avx2")

    def test_vs_pytorch_evaluation(self):
        python = self.stand_in(before='case "$*" in *--evaluate*) ;; *) exit 1;; esac', **self.figures(images_per_sec=2.0))
        j = self.vs_pytorch("--python", python, "--evaluate", "--only-tuned", "--preload", "none")
        self.assertEqual((j["mode"], list(j["peers"])), ("evaluation", ["old, compile, channels_last"]))
        self.assertAlmostEqual(j["best"]["ratio"], j["ctrain"]["images_per_sec"] / 2, delta=0.01)

    def test_other_processes(self):
        """A run that shares its CPU with a busy process counts as disturbed."""
        cpus = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cpus)})
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], env=self.env())
        try:
            j = self.vs_pytorch()
        finally:
            busy.kill()
            busy.wait()
            os.sched_setaffinity(0, cpus)
        self.assertEqual((j["disturbed"], j["machine"]["cpus"]), (1, 1))
        self.assertGreater(j["ctrain"]["runs"][0]["others"], 0.05)
        self.assertRegex(self.warnings, r"^warning: other processes used \d+% of the CPUs during a run of ctrain$")

    def test_times_of_processes(self):
        """bench/host.py reads the times of the CPUs that a process may use, and of children that have ended."""
        script = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
import host
stat = "cpu 9 9 9 9 9 9 9 9 9 9\\ncpu0 100 20 3 7000 800 40 5 6 100 0\\ncpu1 1000 0 0 0 0 0 0 0 0 0\\nintr 5\\n"
ticks = host.os.sysconf("SC_CLK_TCK")
assert host.busy_seconds(stat, {0}) * ticks == 174 and host.busy_seconds(stat, {0, 1}) * ticks == 1174
before = host.own_seconds()
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.5: pass"])
assert host.own_seconds() - before >= 0.5
"""
        subprocess.run([sys.executable, "-B", "-c", script, os.path.join(SOURCE, "bench")], check=True, timeout=100 * SLOW)

    def test_vs_pytorch_loader(self):
        shards_of(self)
        python = self.stand_in(version="0", torchvision="0", pillow="0", images_per_sec=10.0, decode_only_images_per_cpu_sec=20.0)
        j = self.script("vs_pytorch_loader.py", "--shards", self.path("out"), "--pattern", "train-{0..1}.tar", "--seconds", 1, "--rounds", 1,
                        "--batch", 4, "--size", 32, "--classes", 3, "--python", python)
        self.assertEqual((j["samples"], j["size"]), (12, 32))
        self.assert_machine(j["machine"])
        self.assertAlmostEqual(j["peers"]["old"]["ratio"], j["ctrain"]["images_per_sec"] / 10, delta=0.01)
        self.assertGreater(j["ctrain"]["share_of_decode_only"], 0)

    def test_cifar_accuracy(self):
        python = self.stand_in(version="0", test_top1=0.5, last_loss=1.0, train_seconds=3.0)
        args = ("--results", self.path("r.json"), "--data-dir", self.cifar(), "--epochs", 1, "--precision", "fp32", "--python", python, "--set",
                "batch.global=8", "--set", "schedule.warmup_epochs=0", "--set", "batch.eval=10")
        j = self.script("cifar_accuracy.py", *args, "--seeds", 1)
        self.assertEqual([(r["who"], r["seed"]) for r in j["runs"]], [("ctrain fp32", 1), ("pytorch old fp32", 1)])
        self.assert_machine(j["runs"][0]["machine"])
        ours = j["summary"]["ctrain fp32"]
        self.assertAlmostEqual(ours["points_over_peer"], ours["mean"] - 50, delta=0.011)
        # Again: what is there is not done again.
        with open(self.path("r.json"), encoding="utf-8") as f:
            kept = json.load(f)["runs"]
        self.assertEqual(self.script("cifar_accuracy.py", *args, "--seeds", 1)["runs"], kept)

    def on_limited_links(self, script, *args):
        """Runs a script whose two ranks are in network namespaces. What it measures is not compared."""
        probe = subprocess.run(["unshare", "--net", "sh", "-c", "ip link add ctprobe type veth && tc qdisc add dev ctprobe root tbf rate 1gbit burst 66kb "
                                "latency 50ms"], stderr=subprocess.PIPE, text=True)
        if probe.returncode != 0:
            self.skipTest("no network namespaces with limited links here: " + probe.stderr.strip())
        result = self.path("result.json")
        out = subprocess.run([sys.executable, "-B", os.path.join(SOURCE, "bench", script), "--ctrain", CTRAIN, "--config", self.config(), "--ranks",
                              "2", "--rounds", "1", "--steps", "8", "--json", result, *args], env=self.env(), stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, timeout=100 * SLOW)
        self.assertEqual(out.returncode, 0, out.stderr)
        # Processes, and with them the namespaces, end with the script.
        self.until(lambda: not self.marked(), "all processes had ended")
        with open(result, encoding="utf-8") as f:
            j = json.load(f)
        self.assert_machine(j["machine"])
        return j, out.stdout

    def test_start(self):
        """The parts of the time add up, and a build that is given twice has two rows."""
        result = self.path("start.json")
        out = subprocess.run([sys.executable, "-B", os.path.join(SOURCE, "bench", "start.py"), CTRAIN, os.path.relpath(CTRAIN, self.tmp), "--config",
                              "mlp", "--rounds", "1", "--touch", "8", "--results", result, "data.name=synthetic", "data.shape=[1,28,28]",
                              "data.n_train=256", "batch.per_rank=16"],
                             env=self.env(), cwd=self.tmp, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100 * SLOW)
        self.assertEqual(out.returncode, 0, out.stderr.decode())
        with open(result, encoding="utf-8") as f:
            j = json.load(f)
        self.assert_machine(j["machine"])
        runs = [run for runs in j["runs"].values() for run in runs]
        self.assertEqual(len(runs), 2)
        self.assertEqual(len(out.stdout.splitlines()), 3)
        for run in runs:
            self.assertAlmostEqual(run["later"], run["start"] + run["join"] + run["net"] + run["first"])
            self.assertTrue(min(run[k] for k in ("step", "cpu", "faults", "peak_mib")) > 0, run)
        self.assertEqual(runs[0]["weights"], runs[1]["weights"])

    def test_plan_losses(self):
        if not re.search(r"onednn +yes", self.run_ctrain("info").out):
            self.skipTest("ctrain was built without oneDNN, which has plans")
        result = self.path("losses.json")
        out = subprocess.run([sys.executable, "-B", os.path.join(SOURCE, "bench", "plan_losses.py"), "--program", CTRAIN, "--config", "resnet20",
                              "--precision", "fp32", "--steps", "3", "--last", "2", "--results", result, "batch.per_rank=8", "data.n_train=64"],
                             env=self.env(), cwd=self.tmp, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100 * SLOW)
        self.assertEqual(out.returncode, 0, out.stderr.decode())
        with open(result, encoding="utf-8") as f:
            j = json.load(f)
        self.assert_machine(j["machine"])
        losses = j["losses"]
        self.assertEqual(list(losses), ["fp32, suggested, seed 1", "fp32, suggested, seed 2", "fp32, nhwc, seed 1"])
        one, other, nhwc = losses.values()
        self.assertNotEqual(one[0], other[0])
        self.assertAlmostEqual(one[0], nhwc[0], places=4)
        self.assertEqual(len(nhwc), 3)

    def test_simulate(self):
        j, out = self.on_limited_links("simulate.py")
        self.assertEqual([row["ranks"] for row in j["rows"]], [1, 2])
        self.assertGreater(j["gbps"], 0)
        for row in j["rows"]:
            self.assertAlmostEqual(row["error"], row["predicted_ms"] / row["measured_ms"] - 1)
            self.assertIn(f"{row['measured_ms']:.2f}", out)
        self.assertAlmostEqual(j["rows"][0]["predicted_ms"], j["rows"][0]["compute_ms"])
        self.assertGreater(j["rows"][1]["predicted_ms"], j["rows"][1]["compute_ms"])

    def test_reduce_dtype(self):
        j, out = self.on_limited_links("reduce_dtype.py")
        self.assertEqual([row["type"] for row in j["rows"]], ["fp32", "bf16", "fp16"])
        self.assertEqual(j["rows"][0]["ratio"], 1)
        for row in j["rows"]:
            self.assertAlmostEqual(row["ratio"], j["rows"][0]["step_ms"] / row["step_ms"])
            self.assertIn(f"{row['step_ms']:.2f}", out)


if __name__ == "__main__":
    main()
