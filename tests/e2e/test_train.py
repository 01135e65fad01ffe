"""Training from the command line to the run directory, and the commands that read either of them."""

import glob
import hashlib
import json
import os
import struct
import unittest

from harness import DATA, MARK, OK, SOURCE, STOPPED, TINY, TINY_STEPS_PER_EPOCH, USAGE, Case, main, read_text, safetensors, shared

NUMBER = (int, float)
# Kind: field -> type, which scripts rely on.
FIELDS = {
    "run": {"version": str, "host": str, "world_size": int, "ranks_per_node": int, "engine": str, "backend": str,
            "config_digest": str, "model": str, "params": int, "seed": int, "global_batch": int},
    "step": {"step": int, "epoch": int, "loss": NUMBER, "lr": NUMBER, "images_per_sec": NUMBER, "data_ms": NUMBER,
             "forward_ms": NUMBER, "backward_ms": NUMBER, "exposed_comm_ms": NUMBER, "optim_ms": NUMBER, "other_ms": NUMBER},
    "epoch": {"epoch": int, "train_loss": NUMBER, "images": int, "seconds": NUMBER},
    "eval": {"epoch": int, "step": int, "loss": NUMBER, "top1": NUMBER, "top5": NUMBER, "count": int},
    "checkpoint": {"step": int, "path": str, "seconds": NUMBER, "bytes": int},
    "end": {"status": str, "step": int, "epoch": int, "seconds": NUMBER, "best_top1": NUMBER, "weights_digest": str,
            "startup_seconds": NUMBER},
}
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def tb_records(path):
    """Records of a TensorBoard event file (TFRecord framing); raises ValueError when a checksum is wrong."""
    with open(path, "rb") as f:
        data = f.read()
    records, at = [], 0
    while at < len(data):
        head = data[at:at + 8]
        n = struct.unpack("<Q", head)[0]
        body = data[at + 12:at + 12 + n]
        for what, crc in ((head, data[at + 8:at + 12]), (body, data[at + 12 + n:at + 16 + n])):
            c = crc32c(what)
            if struct.unpack("<I", crc)[0] != (((c >> 15 | c << 17) & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF:
                raise ValueError(f"{path}: wrong checksum at byte {at}")
        records.append(body)
        at += 16 + n
    return records


def protobuf(data):
    """{field number: [values]} of a serialized protobuf message; messages and strings are bytes."""
    fields, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            value = varint()
        elif key & 7 in (1, 5):
            form = "<d" if key & 7 == 1 else "<f"
            value, = struct.unpack_from(form, data, at)
            at += struct.calcsize(form)
        else:
            n = varint()
            value = data[at:at + n]
            at += n
        fields.setdefault(key >> 3, []).append(value)
    assert at == len(data)
    return fields


def tb_values(directory):
    """{tag: {step: fields of Summary.Value}} of the event files of a run."""
    values = {}
    for path in glob.glob(os.path.join(directory, "*")):
        for event in map(protobuf, tb_records(path)):
            for value in protobuf(event[5][0]).get(1, []) if 5 in event else []:
                value = protobuf(value)
                values.setdefault(value[1][0].decode(), {})[event.get(2, [0])[0]] = value
    return values


def write_safetensors(path, tensors):
    """What harness.safetensors reads."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


class RunFolder(Case):
    def test_metrics(self):
        r = self.train()
        self.assert_quiet(r)
        m = self.metrics()
        for o in m:
            self.assertEqual(o["v"], 1, o)
            self.assertIn(o["kind"], FIELDS, o)
            for name, kind in FIELDS[o["kind"]].items():
                self.assertIn(name, o, f"no {name} in {o}")
                self.assertIsInstance(o[name], kind, f"{name} of {o}")
                self.assertNotIsInstance(o[name], bool, f"{name} of {o}")
        self.assertEqual({o["kind"] for o in m}, set(FIELDS))
        run, end = m[0], m[-1]
        self.assertEqual((run["kind"], end["kind"]), ("run", "end"))
        self.assertEqual((run["world_size"], run["ranks_per_node"], run["global_batch"], run["model"]), (2, 2, 48, "mlp"))
        self.assertEqual(run["params"], 144 * 32 + 32 + 32 * 10 + 10)
        self.assertEqual(sorted(self.losses()), list(range(1, 2 * TINY_STEPS_PER_EPOCH + 1)))
        self.assertEqual((end["status"], end["step"]), ("done", 2 * TINY_STEPS_PER_EPOCH))
        self.assertEqual([(o["epoch"], o["images"]) for o in self.metrics(kind="epoch")], [(0, 1000), (1, 1000)])
        evals = self.metrics(kind="eval")
        self.assertEqual([(o["epoch"], o["step"], o["count"]) for o in evals], [(0, 21, 230), (1, 42, 230)])
        for o in evals:
            self.assertTrue(0 <= o["top1"] <= o["top5"] <= 1, o)
        self.assertEqual(end["best_top1"], max(o["top1"] for o in evals))
        self.assertTrue(0 < end["startup_seconds"] <= end["seconds"], end)
        for o in self.metrics(kind="step"):
            self.assertTrue(all(o[k] >= 0 for k in FIELDS["step"]), o)

    def test_version_of_a_build_that_is_not_a_release(self):
        r = self.train("train.max_steps=2")
        version = self.run_ctrain("version").out.split()[1]
        run = self.metrics(kind="run")[0]
        self.assertIn(f"ctrain {version}  mlp on ", r.out)
        self.assertEqual(version, run["version"] + (f"+g{run['commit']}" if "commit" in run else ""))

    def test_row_1_files(self):
        self.train("checkpoint.keep_last=3")
        run = self.path("run")
        for rank in (0, 1):
            self.assertTrue(os.path.isfile(os.path.join(run, "log", f"rank-{rank:05d}.log")))
        self.assertEqual(len(os.listdir(os.path.join(run, "log"))), 2)
        links = {n: os.readlink(os.path.join(run, "checkpoints", n)) for n in ("last", "best")}
        names = self.checkpoints()
        self.assertEqual(names, ["step-000000000021", "step-000000000042"])
        self.assertEqual(links["last"], names[-1])
        self.assertIn(links["best"], names)
        self.assertEqual(sorted(os.listdir(os.path.join(run, "checkpoints"))), ["best", "last"] + names)
        for name in names:
            self.assertEqual(sorted(os.listdir(os.path.join(run, "checkpoints", name))),
                             ["model.safetensors", "optim.safetensors", "state.json"])
        saved = self.metrics(kind="checkpoint")
        self.assertEqual([os.path.basename(o["path"]) for o in saved], names)
        for o in saved:
            self.assertEqual(o["bytes"], sum(os.path.getsize(p) for p in glob.glob(os.path.join(o["path"], "*"))))

    def test_keep_last_and_best(self):
        self.train("checkpoint.every_steps=5", "checkpoint.keep_last=2", "train.epochs=3")
        best = os.path.basename(os.readlink(self.path("run", "checkpoints", "best")))
        last = [n for n in self.checkpoints() if n != best][-2:]
        self.assertEqual(self.checkpoints(), sorted({best, *last}))
        evals = self.metrics(kind="eval")
        top = max(evals, key=lambda o: (o["top1"], -o["step"]))
        self.assertEqual(best, f"step-{top['step']:012d}")

    def test_every_so_many_minutes(self):
        """So few that they have passed at every step; by default never."""
        none = ("checkpoint.every_epochs=0", "checkpoint.best=false", "checkpoint.keep_last=100", "train.epochs=1")
        self.train(*none, run="never")
        self.assertEqual([m["step"] for m in self.metrics("never", "checkpoint")], [TINY_STEPS_PER_EPOCH])
        self.train(*none, "checkpoint.every_minutes=1e-9")
        self.assertEqual([m["step"] for m in self.metrics(kind="checkpoint")], list(range(1, TINY_STEPS_PER_EPOCH + 1)))
        self.assertEqual(self.digest(), self.digest("never"))

    def test_weights_digest_is_of_the_saved_weights(self):
        self.train("model.name=convnet", "train.max_steps=4", "data.shape=1,28,28", "data.n_train=200")
        tensors, metadata = safetensors(self.path("run", "checkpoints", "last", "model.safetensors"))
        h = hashlib.sha256()
        for name in sorted(n for n in tensors if not n.endswith(BUFFERS)):
            dtype, shape, data = tensors[name]
            self.assertEqual(dtype, "F32")
            h.update(data)
        self.assertEqual(self.digest(), h.hexdigest())
        self.assertTrue(any(n.endswith("running_var") for n in tensors), sorted(tensors))
        self.assertEqual(metadata.get("format"), "pt")
        four_d = [s for _, s, _ in tensors.values() if len(s) == 4]
        self.assertEqual(sorted(s[0] for s in four_d), [16, 32])

    def test_resolved_config_is_the_same_config(self):
        self.train("optim.lr=3e-2", "run.name=a b: c#d")
        resolved = self.path("run", "config.yaml")
        self.run_ctrain("check", resolved)
        self.run_ctrain(resolved, f"run.dir={self.path('again')}")
        first, again = self.metrics(kind="run")[0], self.metrics("again", "run")[0]
        self.assertEqual(first["config_digest"], again["config_digest"])
        self.assertEqual(self.digest(), self.digest("again"))
        text, dumped = read_text(resolved), self.run_ctrain("config", "dump", resolved).out
        plain = [line.partition("  #")[0].rstrip() for line in text.splitlines()]
        self.assertEqual(plain, [line.partition("  #")[0].rstrip() for line in dumped.splitlines()])

    def test_automatic_precision(self):
        """The choice is written into the config of the run, where a later command reads it, and a resume keeps it."""
        r = self.train("precision=auto", "train.isa=avx2", "train.epochs=1")
        self.assertIn("  format  fp32 (auto: this processor has no AMX, or train.isa excludes it)", r.out)
        self.assertRegex(read_text(self.path("run", "config.yaml")), r"(?m)^precision: fp32  # auto: this processor has no AMX")
        self.assertEqual(self.metrics(kind="run")[0]["precision"], "fp32")
        self.run_ctrain("check", self.path("run", "config.yaml"))
        if "bf16" not in self.run_ctrain("info").out:
            self.skipTest("this processor has no bfloat16 instructions")
        self.train("precision=bf16", "train.epochs=1", run="half")
        r = self.train("precision=auto", "train.isa=avx512_bf16", run="half")
        self.assertIn("  format  bf16 (auto: the run began with it)", r.out)
        self.assertEqual(self.metrics("half", "run")[-1]["precision"], "bf16")
        self.assertGreater(self.metrics("half", "run")[-1]["resumed_step"], 0)
        r = self.train("precision=auto", "train.isa=avx2", "train.epochs=3", run="half", expect=USAGE)
        self.assert_last_says(r, "precision bf16", "use precision=fp32")

    def test_tensorboard(self):
        self.train()
        files = os.listdir(self.path("run", "tb"))
        self.assertEqual(len(files), 1)
        self.assertIn("tfevents", files[0])
        records = tb_records(self.path("run", "tb", files[0]))
        self.assertIn(b"brain.Event:2", records[0])
        self.assertGreaterEqual(len(records), 2 * TINY_STEPS_PER_EPOCH)
        self.assertTrue(any(b"loss" in r for r in records))
        values = tb_values(self.path("run", "tb"))
        last = 2 * TINY_STEPS_PER_EPOCH
        # Histograms of each epoch; those of the last one have the weights of the checkpoint.
        tensors, _ = safetensors(self.path("run", "checkpoints", "last", "model.safetensors"))
        for name, (_, _, data) in tensors.items():
            weights = struct.unpack(f"<{len(data) // 4}f", data)
            for group in ("weights", "gradients"):
                self.assertEqual(sorted(values[f"{group}/{name}"]), [TINY_STEPS_PER_EPOCH, last])
                h = protobuf(values[f"{group}/{name}"][last][5][0])
                limits, counts = (struct.unpack("<64d", h[field][0]) for field in (6, 7))
                self.assertEqual(list(limits), sorted(limits))
                self.assertEqual((sum(counts), h[3]), (len(weights), [len(weights)]))
                self.assertTrue(h[1][0] < h[2][0] == limits[-1])
            h = protobuf(values[f"weights/{name}"][last][5][0])
            self.assertEqual((h[1][0], h[2][0]), (min(weights), max(weights)))
            self.assertAlmostEqual(h[4][0], sum(weights), delta=1e-9)
            self.assertAlmostEqual(h[5][0], sum(w * w for w in weights), delta=1e-9)
            limits, counts = (struct.unpack("<64d", protobuf(values[f"weights/{name}"][last][5][0])[field][0]) for field in (6, 7))
            self.assertAlmostEqual(sum(counts[:20]), sum(w < limits[19] for w in weights), delta=2)  # values at a limit
        # Images: the samples of the first epoch, the mistakes of the best evaluation, and the filters of each epoch.
        for tag, steps, size in (("training", [TINY_STEPS_PER_EPOCH], (82, 54)), ("mistakes", None, (82, 54)),
                                 ("first_layer", [TINY_STEPS_PER_EPOCH, last], (16 * 13 - 1, 2 * 13 - 1))):
            found = values["images/" + tag]
            self.assertEqual(sorted(found), steps or sorted(found))
            for value in found.values():
                image = protobuf(value[4][0])
                self.assertEqual((image[2][0], image[1][0], image[3][0]), (*size, 3))
                self.assertEqual(struct.unpack(">II", image[4][0][16:24]), size)
        # Hyperparameters: their names and types, their values, and the end.
        content = {}
        for tag, field in (("experiment", 2), ("session_start_info", 3), ("session_end_info", 4)):
            plugin = protobuf(protobuf(values[f"_hparams_/{tag}"][0][9][0])[1][0])
            self.assertEqual(plugin[1], [b"hparams"])
            content[tag] = protobuf(protobuf(plugin[2][0])[field][0])
        kinds = {i[1][0].decode(): i[4][0] for i in map(protobuf, content["experiment"][4])}
        self.assertEqual((kinds["optim.lr"], kinds["model.name"]), (3, 1))
        metrics = {protobuf(protobuf(m)[1][0])[2][0].decode() for m in content["experiment"][5]}
        self.assertLessEqual(metrics, set(values))
        entries = {e[1][0].decode(): protobuf(e[2][0]) for e in map(protobuf, content["session_start_info"][1])}
        self.assertEqual((entries["optim.lr"], entries["model.name"]), ({2: [0.05]}, {3: [b"mlp"]}))
        self.assertEqual(set(entries), set(kinds))
        self.assertEqual(content["session_end_info"][1], [1])
        self.train("log.tensorboard=false", run="without")
        self.assertFalse(os.path.exists(self.path("without", "tb")) and os.listdir(self.path("without", "tb")))

    def test_log_every(self):
        self.train("log.every=10")
        self.assertEqual(sorted(self.losses()), [10, 20, 30, 40])

    def test_finished_run_is_not_trained_again(self):
        self.train()
        digest = self.digest()
        r = self.train()
        self.assertEqual(sorted(self.losses()), list(range(1, 43)))
        self.assertEqual(self.digest(), digest)
        self.assertEqual(self.metrics(kind="end")[-1]["step"], 42)
        self.assertRegex(r.out + r.err, r"already finished")
        self.assertNotIn("step time", r.out)  # no step was trained

    def test_length_of_a_schedule(self):
        """A schedule that depends on the length of the run is not continued with another length, and the message says why."""
        self.train("schedule.name=cosine", "train.epochs=1")
        r = self.train("schedule.name=cosine", "train.epochs=2", expect=USAGE)
        self.assert_last_says(r, "train.epochs was 1 and is now 2", "schedule.name cosine.*depends on the length of the run")

    def test_max_time(self):
        """The run stops, and the same command continues it. A time in which it does not reach a step is doubled."""
        sets, seconds = ("train.epochs=100000", "train.eval_every=0"), 2
        while not (steps := self.metrics(kind="checkpoint") if os.path.exists(self.path("run", "metrics.jsonl")) else []):
            self.train(*sets, f"train.max_time={seconds}s", expect=STOPPED)
            self.assertRegex(read_text(self.path("run", "log", "rank-00000.log")), "train.max_time is reached in ")
            seconds *= 2
        self.train(*sets, f"train.max_time={seconds}s", expect=STOPPED)
        self.assertEqual(self.metrics(kind="run")[-1]["resumed_step"], steps[-1]["step"])

    def test_more_ranks_than_cpus(self):
        cpus = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, cpus)
        os.sched_setaffinity(0, sorted(cpus)[:2])  # as many ranks as all CPUs could be a heavy load
        n = min(2, len(cpus))
        r = self.train("train.max_steps=1", f"batch.global={8 * (n + 1)}", "--procs", n + 1)
        self.assertRegex(r.out, rf"cpus +{n + 1} ranks share \d+ CPUs?: --procs \d+ would be faster")  # a cgroup may allow fewer than n
        # Fewer ranks than stages are refused.
        r = self.train("train.max_steps=1", "model.hidden=[8,8]", "launch.pipeline=3", "--procs", 3, run="pipeline")
        self.assertRegex(r.out, r"cpus +3 ranks share \d+ CPUs?\n")

    def test_a_finished_run_can_be_made_longer(self):
        self.train()
        self.train("train.epochs=3")
        self.assertEqual(sorted(self.losses()), list(range(1, 64)))
        self.assertEqual(self.digest(), self.reference("train.epochs=3")[1])

    def test_epoch_that_was_resumed(self):
        """All of its images, and how many of them the time is of."""
        self.train(f"train.max_steps={TINY_STEPS_PER_EPOCH + 16}")
        r = self.train()
        self.assertEqual([(m["images"], m["timed_images"]) for m in self.metrics(kind="epoch")], [(1000, 1000), (1000, 1000 - 16 * 48)])
        self.assertRegex(r.out, r"epoch 2 .* 1,?000 images, the last 232 in ")

    def test_never_resume_moves_the_old_run_aside(self):
        self.train("train.max_steps=5")
        old = self.digest()
        self.train("train.max_steps=6", "train.resume=never")
        self.assertEqual(sorted(self.losses()), [1, 2, 3, 4, 5, 6])
        self.assertEqual(self.metrics("run.old-1", "end")[-1]["weights_digest"], old)


class Runs(Case):
    def test_row_41_world_sizes(self):
        for world in (1, 2, 3, 4):
            with self.subTest(world=world):
                run = f"world-{world}"
                r = self.train("--procs", world, "train.epochs=1", run=run)
                self.assert_quiet(r)
                m = self.metrics(run, "run")[0]
                self.assertEqual((m["world_size"], m["backend"]), (world, "self" if world == 1 else "shm"))
                self.assertEqual(len(os.listdir(self.path(run, "log"))), world)
                self.assertEqual(self.metrics(run, "eval")[-1]["count"], 230)

    def test_more_threads_than_cpus(self):
        cpus = len(os.sched_getaffinity(0))
        r = self.train("--procs", 2, f"launch.threads={cpus}", "train.max_steps=1")
        self.assert_says(r, f"2 ranks x {cpus} compute threads on [0-9]+ CPU", "set launch.threads=")
        r = self.train("--procs", 2, "launch.threads=1", "train.max_steps=1", run="one")
        self.assert_quiet(r)

    def test_models(self):
        big = "data.shape=1,28,28"
        layers = ("model.layers=[conv2d 8 kernel=3 padding=1, batch_norm, relu, max_pool 2, conv2d 8 kernel=3 groups=2, relu, "
                  "flatten, linear 10]")
        for name, sets in {"mlp": ["model.hidden=64,32", "model.dropout=0.2"], "linear": ["model.hidden=[]"], "lenet": [big],
                           "convnet": [big], "layers": [layers]}.items():
            with self.subTest(model=name):
                model = "mlp" if name == "linear" else name
                self.train(f"model.name={model}", *sets, "train.epochs=3", "train.max_steps=60", "optim.name=adamw", "optim.lr=3e-3", run=name)
                losses = self.losses(name)
                self.assertEqual(sorted(losses), list(range(1, 61)))
                first, last = (sum(losses[s] for s in range(n, n + 10)) / 10 for n in (1, 51))
                self.assertLess(last, 0.97 * first, f"{name} does not learn")

    def test_optimizers_and_schedules(self):
        for i, sets in enumerate((["optim.name=adamw", "optim.lr=1e-3", "schedule.name=cosine", "schedule.warmup_steps=3"],
                                  ["optim.nesterov=true", "optim.weight_decay=1e-4", "schedule.name=one_cycle"],
                                  ["optim.clip_norm=0.5", "schedule.name=multistep", "schedule.milestones=0.5,1"],
                                  ["train.ema=0.99", "schedule.name=poly"],
                                  ["model.label_smoothing=0.1", "model.init=kaiming", "optim.decay_norm_bias=false"])):
            with self.subTest(sets=sets):
                self.train(*sets, run=f"run-{i}")
                self.assertLess(self.losses(f"run-{i}")[42], self.losses(f"run-{i}")[1])
        lr = [m["lr"] for m in self.metrics("run-0", "step")]
        self.assertEqual(max(lr), 1e-3)
        self.assertLess(lr[0], lr[2])
        self.assertLess(lr[-1], 1e-4)

    def test_accumulation_equals_one_batch(self):
        self.train("--procs", 1, run="whole")
        self.train("--procs", 1, "train.accumulate=3", run="parts")
        self.assertEqual(self.metrics("parts", "run")[0]["global_batch"], 48)
        whole, parts = self.losses("whole"), self.losses("parts")
        self.assertEqual(sorted(whole), sorted(parts))
        for step, loss in whole.items():
            self.assertAlmostEqual(parts[step] / loss, 1, delta=1e-5, msg=f"step {step}")

    def test_T14_per_rank_batch(self):
        self.train("batch.global=0", "batch.per_rank=16", "--procs", 3, "train.accumulate=2", "train.max_steps=2")
        self.assertEqual(self.metrics(kind="run")[0]["global_batch"], 96)

    def test_linear_rule(self):
        self.train("optim.lr_rule=linear", "optim.lr=0.1", "train.max_steps=2")
        self.assertEqual([round(m["lr"], 12) for m in self.metrics(kind="step")], [0.01875, 0.01875])

    def test_target_ends_the_run(self):
        self.train("train.epochs=50", "train.target_top1=0.3")
        end, evals = self.metrics(kind="end")[0], self.metrics(kind="eval")
        self.assertEqual(end["status"], "target reached")
        self.assertLess(end["step"], 50 * TINY_STEPS_PER_EPOCH)
        self.assertGreaterEqual(evals[-1]["top1"], 0.3)
        self.assertTrue(all(o["top1"] < 0.3 for o in evals[:-1]))
        self.assertEqual(self.checkpoints()[-1], f"step-{end['step']:012d}")

    def test_regression(self):
        r = self.train("model.name=mlp", "model.hidden=10", "data.name=synthetic_regression", "data.shape=10,1,1",
                       "data.targets=5", "train.epochs=4", "optim.lr=0.01")
        losses = self.losses()
        self.assertLess(losses[84], losses[1] / 2)
        self.assertEqual(self.metrics(kind="eval")[-1]["count"], 230)
        self.assertNotRegex(r.out + r.err, r"top1 -1|top1 nan")

    def test_no_evaluation(self):
        self.train("data.val=none")
        self.assertEqual(self.metrics(kind="eval"), [])
        self.assertEqual(self.metrics(kind="end")[0]["status"], "done")

    def test_plain_console(self):
        r = self.train("log.console=plain")
        text = r.out + r.err
        self.assertNotIn("\r", text)
        self.assertNotIn("\x1b", text)
        for word in ("2 ranks", "48 global", self.digest()[:8]):
            self.assertIn(word, text)
        for line in text.splitlines():
            self.assertLess(len(line), 400, line)

    def test_console_off(self):
        r = self.train("log.console=off", "log.level=warn")
        self.assertEqual((r.out, r.err), ("", ""))

    def test_other_ranks_lines_have_their_rank(self):
        r = self.train("--procs", 3, "log.level=debug", "train.max_steps=3")
        for rank in (1, 2):
            self.assertRegex(r.err, rf"(?m)^\[rank {rank}\] ")
        self.assertNotRegex(r.err, r"(?m)^\[rank 0\] ")

    def test_default_procs_and_run_dir(self):
        self.run_ctrain(self.config(TINY.replace("procs: 2, ", "")), "train.max_steps=2")
        self.assertEqual(self.metrics("runs/tiny", "run")[0]["world_size"], min(2, self.run_ctrain("info", "--json").json()["cpus"]))

    def test_environment_and_arguments(self):
        self.train("optim.lr=0.02", "train.max_steps=1", env={"CTRAIN_LOG": "debug"})
        self.assertEqual(self.metrics(kind="step")[0]["lr"], 0.02)
        self.assertIn("debug", read_text(self.path("run", "log", "rank-00001.log")))

    def test_row_45_torchrun_spellings(self):
        for i, args in enumerate((["--nproc_per_node", "3"], ["--nproc-per-node=3", "--nnodes=1", "--standalone"])):
            self.train(*args, "train.max_steps=2", run=f"run-{i}")
            self.assertEqual(self.metrics(f"run-{i}", "run")[0]["world_size"], 3)


class Commands(Case):
    def test_row_100_empty_environment(self):
        """No modules, no virtual environment, no PATH: one program."""
        self.train("train.max_steps=2", prefix=("/usr/bin/env", "-i", f"{MARK}={self.mark}"))
        self.assertEqual(self.metrics(kind="end")[-1]["step"], 2)

    def test_closed_standard_files(self):
        """No file of the run gets the descriptor of a standard file that is closed, and with it the output."""
        for run, closed in (("none", "<&- >&- 2>&-"), ("no-error", "2>&-"), ("output", "<&- 2>&-")):
            self.train("train.epochs=1", run=run, prefix=("sh", "-c", f'exec "$@" {closed}', "sh"))
            with open(self.path(run, "metrics.jsonl"), encoding="utf-8") as f:
                self.assertEqual(json.loads(f.readlines()[-1])["status"], "done", closed)

    def test_row_39_info(self):
        r = self.run_ctrain("info")
        for word in ("onednn", "ref", "shm", "gloo", "cuda", "cpu", "mlp", "convnet", "mnist", "synthetic"):
            self.assertIn(word, r.out)
        j = self.run_ctrain("info", "--json").json()
        self.assertEqual(f"ctrain {j['version']}", self.run_ctrain("--version").out.strip(), "with the commit")
        missing = [d for part in ("devices", "engines", "communicators") for d in j[part] if not d["available"]]
        for d in missing:
            self.assertGreater(len(d["why"]), 10, f"{d['name']} does not say why it is missing")
        versions = {e["name"]: e["library"] for e in j["engines"] if e["available"]}
        self.assertEqual(versions["ref"], "reference loops")
        if "onednn" in versions:
            self.assertRegex(versions["onednn"], r"^oneDNN \d+\.\d+\.\d+ \w+$")

    def test_eval(self):
        self.train("train.epochs=3", "train.ema=0.9")
        evals = {o["step"]: o for o in self.metrics(kind="eval")}
        config = (self.config(), f"run.dir={self.path('run')}", "train.ema=0.9")
        for what in ("last", "best", self.path("run", "checkpoints", "last")):
            j = self.run_ctrain("eval", *config, "--checkpoint", what, "--json").json()
            step = int(os.path.realpath(j["checkpoint"])[-12:])
            self.assertEqual(j["count"], 230)
            self.assertAlmostEqual(j["top1"], evals[step]["top1"], delta=1e-8, msg=what)
            self.assertAlmostEqual(j["loss"] / evals[step]["loss"], 1, delta=1e-5, msg=what)
        self.assertRegex(self.run_ctrain("eval", *config).out, r"top1 0\.\d{4}.* 230 ")
        r = self.run_ctrain("eval", *config, "--checkpoint", self.path("nowhere"), expect=3)
        self.assert_says(r, "nowhere")
        # Where no best one is kept, the last.
        os.unlink(self.path("run", "checkpoints", "best"))
        self.assertIn(os.path.basename(os.path.realpath(self.path("run", "checkpoints", "last"))), self.run_ctrain("eval", *config).out)
        self.run_ctrain("eval", *config, "--checkpoint", "best", expect=3)

    def test_averages(self):
        """A checkpoint stands for the EMA weights that it was evaluated with; the file in it for what was trained."""
        self.train("train.epochs=3", "train.ema=0.9")
        want = self.metrics(kind="eval")[-1]
        last, alone, ddp = self.path("run", "checkpoints", "last"), self.path("alone.safetensors"), self.path("ddp.safetensors")
        self.assertIn("EMA weights", self.run_ctrain("ckpt", "export", last, "--out", alone).out)
        tensors, _ = safetensors(alone)
        self.assertEqual(set(tensors), set(safetensors(os.path.join(last, "model.safetensors"))[0]))
        write_safetensors(ddp, {"module." + name: t for name, t in tensors.items()})

        def loss(what, *sets):
            return self.run_ctrain("eval", self.config(), *sets, "--checkpoint", what, "--json").json()["loss"]
        # The file needs neither the run nor train.ema.
        for what in (last, alone, ddp):
            self.assertAlmostEqual(loss(what) / want["loss"], 1, delta=1e-5, msg=what)
        self.assertNotAlmostEqual(loss(os.path.join(last, "model.safetensors")) / want["loss"], 1, delta=1e-3)
        self.train(f"model.weights={self.path('run')}", "optim.lr=1e-30", "optim.momentum=0", "train.max_steps=1", run="again")
        self.assertAlmostEqual(self.metrics("again", "eval")[-1]["loss"] / want["loss"], 1, delta=1e-5)

    def test_ckpt(self):
        self.train("train.max_steps=3")
        last = self.path("run", "checkpoints", "last")
        r = self.run_ctrain("ckpt", "show", last)
        for word in ("fc1.weight", "[32,144]", "3"):
            self.assertIn(word.replace("fc1.weight", ".weight"), r.out.replace(" ", "").replace("[32x144]", "[32,144]"))
        self.run_ctrain("ckpt", "verify", last)

    def test_check(self):
        self.assertRegex(self.run_ctrain("check", self.config()).out, r"^ok: .*\n.*mlp on synthetic, batch 48")
        bad = self.config(TINY.replace("lr: 0.05", "lr: fast").replace("hidden", "hiden"), "bad.yaml")
        r = self.run_ctrain("check", bad, expect=USAGE)
        self.assert_says(r, r"bad\.yaml:4:\d+", r"bad\.yaml:1:\d+", "did you mean.*hidden")
        r = self.train(config=bad, expect=USAGE)
        self.assert_says(r, r"bad\.yaml:4:\d+", r"bad\.yaml:1:\d+")
        layers = TINY.replace("mlp, hidden: [32]", "layers, layers: [relu, linear 10 bas=1]")
        self.assertNotEqual(layers, TINY)
        bad = self.config(layers, "layers.yaml")
        for command in ("check", "train"):
            r = self.run_ctrain(command, bad, f"run.dir={self.path('run')}", expect=USAGE)
            self.assert_last_says(r, r'^\S*layers\.yaml:1:\d+: error: model layers: layer 2, "linear 10 bas=1": .*did you mean "bias"')
        self.assertFalse(os.path.exists(self.path("run")))

    def test_help_and_usage(self):
        for args in (["--help"], ["help"], ["plan", "--help"]):
            r = self.run_ctrain(*args)
            self.assertIn("CONFIG.yaml", r.out)
        self.assertRegex(self.run_ctrain("--version").out, r"ctrain \d+\.\d+")
        for args, words in ((["traine"], "traine"), ([self.config(), "--proc", "2"], "--procs"),
                            ([self.config(), "optim.lrr=1"], "optim.lr"), (["no-such.yaml"], "no-such.yaml"), ([], "CONFIG")):
            self.assert_says(self.run_ctrain(*args, expect=USAGE), words)

    def test_digits(self):
        sizes = ("--train", 2000, "--test", 500)
        self.run_ctrain("data", "digits", "--out", self.path("digits"), *sizes)
        self.run_ctrain("data", "digits", "--out", self.path("same"), *sizes)
        self.run_ctrain("data", "digits", "--out", self.path("other"), *sizes, "--seed", 7)
        names = sorted(os.listdir(self.path("digits")))
        self.assertEqual(len(names), 4)

        def content(folder):
            out = []
            for n in names:
                with open(self.path(folder, n), "rb") as f:
                    out.append(f.read())
            return out
        self.assertEqual(content("digits"), content("same"))
        self.assertNotEqual(content("digits"), content("other"))
        self.train("data.name=mnist", f"data.dir={self.path('digits')}", "model.hidden=128", "train.epochs=6")
        self.assertGreater(self.metrics(kind="end")[0]["best_top1"], 0.7)
        self.train("data.name=mnist", "model.hidden=64", "train.epochs=1", run="by-env", env={"CTRAIN_DATA": self.path("root")}, expect=3)
        os.makedirs(self.path("root"))
        os.symlink(self.path("digits"), self.path("root", "mnist"))
        self.train("data.name=mnist", "model.hidden=64", "train.epochs=1", run="by-env", env={"CTRAIN_DATA": self.path("root")})


class ShippedConfigs(Case):
    def test_check(self):
        configs = sorted(glob.glob(os.path.join(SOURCE, "configs", "*.yaml")))
        self.assertGreaterEqual({os.path.basename(c) for c in configs},
                                {"mnist_ddp.yaml", "mnist_mlp.yaml", "fashion_mnist.yaml", "toy_ddp.yaml", "smoke.yaml"})
        for c in configs:
            with self.subTest(config=os.path.basename(c)):
                r = self.start("check", c).wait()
                if r.code != OK:  # nothing but the data is missing where the test runs
                    self.assert_code(r, DATA)
                    self.assert_last_says(r, r"^\S+\.yaml:\d+:\d+: error: data\.dir: the directory datasets/\S+ does not exist\n")

    def test_train_the_small_ones(self):
        for name in ("smoke", "toy_ddp"):
            with self.subTest(config=name):
                self.run_ctrain(os.path.join(SOURCE, "configs", name + ".yaml"), f"run.dir={self.path(name)}", expect=OK)
                steps = self.metrics(name, "step")
                self.assertLess(steps[-1]["loss"], steps[0]["loss"])
                self.assertEqual(self.metrics(name, "end")[0]["status"], "done")

    @unittest.skipUnless(shared("data", "mnist"), "no ../shared/data/mnist and no CTRAIN_SHARED")
    def test_row_122_mnist(self):
        config = os.path.join(SOURCE, "configs", "mnist_ddp.yaml")
        self.run_ctrain(config, f"run.dir={self.path('run')}", "data.dir=" + shared("data", "mnist"), "train.max_steps=60", "log.every=20")
        m = self.metrics(kind="run")[0]
        self.assertEqual((m["world_size"], m["model"]), (2, "convnet"))
        end = self.metrics(kind="end")[0]
        self.assertEqual(self.metrics(kind="eval")[-1]["count"], 10000)
        self.assertGreater(end["best_top1"], 0.9)

    def test_fresh_clone_says_how_to_get_data(self):
        r = self.run_ctrain(os.path.join(SOURCE, "configs", "mnist_ddp.yaml"), f"run.dir={self.path('run')}", expect=3)
        self.assert_says(r, "get_mnist.sh", "ctrain data digits")


if __name__ == "__main__":
    main()
