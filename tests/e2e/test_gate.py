"""The gate for machines with a GPU (scripts/gpu_bundle.sh, scripts/gpu_gate.sh), as a dry run on the software GPU: it passes here, and it
reports wrong results, missing files, crashes and steps that hang."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from harness import CTRAIN, SLOW, SOURCE, USAGE, Case, Process, main, shared

BUILD = os.path.dirname(os.path.abspath(CTRAIN))
BAD = {"fail", "timeout", "error"}
INCOMPLETE = 3
VERDICTS = {0: "pass", 1: "fail", INCOMPLETE: "incomplete"}


class Base(Case):
    bundle = None

    def setUp(self):
        super().setUp()
        self.more_env = {}
        if not os.path.exists(os.path.join(BUILD, "bench", "soft_gpu_facts")):
            self.skipTest("built without CUDA's headers or without bench/")
        if Base.bundle is None:
            Base.folder = tempfile.TemporaryDirectory()
            Base.bundle = os.path.join(Base.folder.name, "bundle")
            self.script("gpu_bundle.sh", "--dry", "--build", BUILD, Base.bundle)

    def script(self, name, *args, expect=0):
        env = self.env({"CTRAIN_SHARED": os.path.dirname(shared("data"))} if shared("data") else {})
        env["PATH"] = self.path("bin") + os.pathsep + env["PATH"]
        env.update(self.more_env)
        r = Process(self, ["bash", os.path.join(SOURCE, "scripts", name), *map(str, args)], env, self.tmp).wait(300 * SLOW)
        self.assert_code(r, expect)
        return r

    def changed(self):
        """A copy of the bundle that a test changes."""
        path = self.path("bundle")
        shutil.copytree(Base.bundle, path, symlinks=True)
        return path

    def stand_in(self, name, code):
        """A program in a directory that is first in PATH."""
        path = self.write("bin/" + name, "#!/bin/sh\n" + code)
        os.chmod(path, 0o755)
        return path

    def gate(self, bundle, *args, expect=1, only=None, complete=True):
        """Returns the rows as {(step, check): row}. self.result has all results."""
        options = ("--only", only) if only else ()
        self.script("gpu_gate.sh", "--dry", "--scale", 2 * SLOW, *options, *args, bundle, self.path("out"), expect=expect)
        self.result = self.results()
        self.assertTrue(self.result["dry"])
        self.assertEqual((self.result["complete"], self.result["verdict"]), (complete, VERDICTS[expect]))
        return {(r["step"], r["check"]): r for r in self.result["rows"]}

    def results(self):
        with open(self.path("out", "gate.json"), encoding="utf-8") as f:
            return json.load(f)

    def bad(self, rows):
        return {key: r["status"] for key, r in rows.items() if r["status"] in BAD}

    def replace(self, bundle, name, code):
        """Returns the path at which the original now is."""
        path = os.path.join(bundle, name)
        os.rename(path, path + ".real")
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + code)
        os.chmod(path, 0o755)
        return path + ".real"


class Gate(Base):
    def test_dry_run(self):
        rows = self.gate(Base.bundle, expect=0)
        self.assertEqual(self.bad(rows), {})
        for key in (("start", "files of the bundle"), ("start", "cuda in engines"), ("facts", "gpu_facts"), ("tests", "test_cuda_kernels"),
                    ("equal", "resnet20, fp32: losses of ref"), ("equal", "resnet20, bf16: losses of ref"),
                    ("equal", "bottleneck, fp16: losses of ref"), ("shipped", "top-1 accuracy on MNIST"),
                    ("bits", "convnet: repeated"), ("bits", "convnet: recorded = plain"), ("bits", "mlp: several steps in one graph = one"),
                    ("bits", "convnet: images on the device = on the host"),
                    ("bits", "convnet: killed and resumed = uninterrupted"), ("ranks", "2 ranks, host-staged: losses of 1 rank"),
                    ("ranks", "pipeline of 2 stages: losses of 1 rank")):
            self.assertEqual(rows[key]["status"], "pass", key)
        for key in (("tune", "resnet50 N=256 fp16: first start"), ("tune", "resnet50 N=256 bf16: first start"),
                    ("resnet50", "resnet50 N=256 bf16"), ("resnet50", "resnet50 N=256 bf16, not fused"),
                    ("tune", "convnet N=64 fp32: first start"), ("small", "mlp N=64 fp32: time of a step"), ("profile", "bench step"),
                    ("shipped", "mnist_ddp.yaml"), ("shipped", "mnist_mlp.yaml"),
                    ("shipped", "resnet50_imagenet_gpu.yaml with images in device memory")):
            self.assertEqual(rows[key]["status"], "measured", key)
            self.assertGreater(rows[key]["value"], 0, key)
        nccl = os.path.exists(os.path.join(Base.bundle, "soft", "libnccl.so.2"))
        self.assertEqual(rows["ranks", "2 ranks, NCCL over sockets: losses of 1 rank"]["status"], "pass" if nccl else "not available")
        if nccl:
            for check in ("1 rank, NCCL in the recording: weights of self", "bench comm, 1 rank: allreduce",
                          "bench comm, 2 ranks, sockets: allreduce"):
                self.assertEqual(rows["nccl", check]["status"], "pass", rows["nccl", check])
            self.assertEqual(rows["nccl", "1 rank, mlp N=64 fp32: NCCL adds to a step"]["status"], "measured")
        steps = list(dict.fromkeys(step for step, _ in rows))
        self.assertEqual(steps[steps.index("tune"):][:6], ["tune", "shipped", "resnet50", "bits", "nccl", "versus"])
        self.assertIn("precision bf16", rows["shipped", "resnet50_imagenet_gpu.yaml with images in device memory"]["note"])
        self.assertRegex(rows["shipped", "mnist_ddp.yaml"]["config"], r"^mnist_ddp.yaml data.dir=")
        self.assertRegex(rows["tune", "resnet50 N=256 fp16: first start"]["note"], r"^[1-9]\d* plans in the file$")
        self.assertEqual(rows["versus", "resnet50 N=256 bf16: PyTorch eager"]["status"], "skipped")
        self.assertEqual(rows["facts", "card"]["value"], "Software GPU")
        self.assertEqual(sorted(os.listdir(self.path("out"))), ["gate.json", "gate.log"])
        self.assertEqual(self.result["card"], "Software GPU")
        self.assertIn("libcudnn.so.9", {library["name"] for library in self.result["libraries"]})
        self.assertEqual({s["state"] for s in self.result["steps"]}, {"done"})
        report = os.path.join(Base.bundle, "gate", "report.py")
        table = subprocess.run([sys.executable, "-B", report, self.path("out", "gate.json")], stdout=subprocess.PIPE, check=True).stdout.decode()
        self.assertIn("no speed here is that of a GPU", table)
        self.assertIn("| bits | convnet: repeated | pass |", table)

    def test_wrong_losses(self):
        bundle = self.changed()
        path = os.path.join(bundle, "expected", "mlp.json")
        with open(path, encoding="utf-8") as f:
            expected = json.load(f)
        expected["losses"][2] *= 1 + 3e-5
        with open(path, "w", encoding="utf-8") as f:
            json.dump(expected, f)
        rows = self.gate(bundle, only="start,equal")
        self.assertEqual(self.bad(rows), {("start", "files of the bundle"): "fail", ("equal", "mlp, fp32: losses of ref"): "fail"})
        self.assertIn("expected/mlp.json has changed", rows["start", "files of the bundle"]["note"])

    def test_missing_files(self):
        bundle = self.changed()
        os.remove(os.path.join(bundle, "tests", "test_cuda_kernels"))
        os.remove(os.path.join(bundle, "soft", "libcudnn.so.9"))
        rows = self.gate(bundle, only="start")
        self.assertEqual(self.bad(rows), {("start", "files of the bundle"): "fail", ("start", "CUDA libraries"): "fail"})
        self.assertIn("tests/test_cuda_kernels: No such file", rows["start", "files of the bundle"]["note"])
        self.assertIn("libcudnn.so.9", rows["start", "CUDA libraries"]["note"])

    def test_hang_and_crash(self):
        """A step that hangs is stopped and keeps its rows; a crash is reported; the next step runs."""
        bundle = self.changed()
        self.replace(bundle, "bin/gpu_facts", "echo '{\"check\": \"card\", \"status\": \"measured\", \"value\": \"slow\"}'\nsleep 600\n")
        self.replace(bundle, "tests/test_cuda_kernels", "kill -SEGV $$\n")
        rows = self.gate(bundle, "--scale", 0.2 * SLOW, only="facts,tests")
        self.assertEqual(self.bad(rows), {("facts", "facts"): "timeout", ("tests", "test_cuda_kernels"): "fail"})
        self.assertEqual(rows["facts", "card"]["value"], "slow")
        self.assertEqual(rows["tests", "test_cuda_update_kernels"]["status"], "pass")
        steps = {s["name"]: s for s in self.result["steps"]}
        self.assertEqual(steps["facts"]["state"], "stopped")
        self.assertIn("test_cuda_kernels", steps["tests"]["log"])

    def test_start_that_takes_too_long(self):
        """It is stopped within the limit of the step, which is no error: the plans that it has stored remain."""
        bundle = self.changed()
        self.replace(bundle, "bin/ctrain", "exec sleep 600\n")
        rows = self.gate(bundle, "--scale", 0.05 * SLOW, expect=INCOMPLETE, only="tune")
        self.assertEqual({(check, r["status"], r["note"]) for (_, check), r in rows.items()},
                         {(f"{what}: first start", "measured", "stopped; 0 plans in the file")
                          for what in ("mlp N=64 fp32", "convnet N=64 fp32", "resnet50 N=256 bf16", "resnet50 N=256 fp16")})

    def test_budget(self):
        rows = self.gate(Base.bundle, "--budget", 1, expect=INCOMPLETE, only="facts,tests")
        self.assertEqual({r["status"] for r in rows.values()}, {"skipped"})
        self.assertRegex(rows["tests", "tests"]["note"], r"^not run: out of time \(\d s are left, and it needs ")
        self.assertEqual({s["state"] for s in self.result["steps"]}, {"not run"})

    def test_verdict(self):
        """A check that is missing, or a stop, is no success."""
        code = ("import sys, report\nr = report.Results(sys.argv[1], ['a', 'b'], ('a',))\nverdicts = [r.verdict(True)]\n"
                "row = lambda status, step='a': r.add(step, {'check': 'c', 'status': status})\nr.steps['a']['state'] = 'done'\n"
                "for status, step in (('not available', 'a'), ('pass', 'a'), ('skipped', 'b'), ('skipped', 'a'), ('error', 'b')):\n"
                "    row(status, step)\n    verdicts += [r.verdict(True), r.verdict(False)]\nprint(*verdicts)\n")
        env = {**os.environ, "PYTHONPATH": os.path.join(SOURCE, "bench", "gpu")}
        out = subprocess.run([sys.executable, "-B", "-c", code, self.path("gate.json")], env=env, stdout=subprocess.PIPE, check=True).stdout.decode()
        i = "incomplete"
        self.assertEqual(out.split(), [i, i, i, "pass", i, "pass", i, i, i, "fail", "fail"])

    def test_time_that_is_over(self):
        """A step that the end of the gate stops is skipped, not at fault."""
        bundle = self.changed()
        self.replace(bundle, "bin/gpu_facts", "sleep 600\n")
        rows = self.gate(bundle, "--scale", 0.2 * SLOW, "--budget", 3 * SLOW, expect=INCOMPLETE, only="facts")
        self.assertEqual(rows["facts", "facts"]["status"], "skipped")
        self.assertIn("the gate was out of time", rows["facts", "facts"]["note"])

    def test_stopped_gate(self):
        """The file of results is valid while the gate runs, and a signal ends the gate and its step."""
        bundle = self.changed()
        self.replace(bundle, "bin/gpu_facts", "echo '{\"check\": \"card\", \"status\": \"measured\", \"value\": \"slow\"}'\nexec sleep 600\n")
        p = Process(self, ["bash", os.path.join(SOURCE, "scripts", "gpu_gate.sh"), "--dry", "--scale", "50", bundle, self.path("out")],
                    self.env(), self.tmp)
        self.until(lambda: os.path.exists(self.path("out", "gate.json")) and "card" in self.results(), "the first result of the step facts", p)
        result = self.results()
        self.assertFalse(result["complete"])
        self.assertEqual(result["verdict"], "fail")  # the bundle has changed
        self.assertEqual([s["state"] for s in result["steps"]][:3], ["done", "running", "not run"])
        p.signal(signal.SIGTERM)
        self.assert_code(p.wait(20), 1)
        result = self.results()
        self.assertFalse(result["complete"])
        self.assertEqual([s["state"] for s in result["steps"]][:3], ["done", "stopped", "not run"])
        rows = {(r["step"], r["check"]): r["note"] for r in result["rows"] if r["status"] == "skipped"}
        self.assertEqual((rows["facts", "facts"], rows["compiled", "compiled"]), ("stopped: SIGTERM", "not run: SIGTERM"))
        self.assertEqual(self.processes(), {})

    def test_pace(self):
        """A check begins only if there is time for the longest one so far."""
        code = ("import common, time\np = common.Pace(50)\nassert p.allows('a')\np.longest = 150\nassert not p.allows('b')\n"
                "p = common.Pace(0)\nwith p: time.monotonic = lambda now=time.monotonic() + 7: now\nassert p.longest >= 7\n")
        env = {**os.environ, "GATE_DEADLINE": str(time.monotonic() + 100), "PYTHONPATH": os.path.join(SOURCE, "bench", "gpu")}
        out = subprocess.run([sys.executable, "-B", "-c", code], env=env, stdout=subprocess.PIPE, check=True).stdout
        row = json.loads(out)
        self.assertEqual((row["check"], row["status"]), ("b", "skipped"))
        self.assertRegex(row["note"], "^not run: out of time .* it needs about 150")

    def test_time_of_test_programs(self):
        """One that does not end is a timeout, and one for which too little time is left does not begin: neither is a wrong result."""
        bundle = self.path("bundle")
        os.makedirs(os.path.join(bundle, "tests"))
        for name in ("late", "slow"):
            self.write(f"bundle/tests/{name}", "#!/bin/sh\nexec sleep 600\n")
            os.chmod(os.path.join(bundle, "tests", name), 0o755)
        self.write("bundle/tests/broken", "")
        code = ("import time, common, machine\nfor name, seconds in (('late', 3), ('slow', 4.5), ('broken', 100)):\n"
                "    common.DEADLINE = time.monotonic() + seconds\n    machine.run_test(name)\n")
        env = {**os.environ, "GATE_BUNDLE": bundle, "PYTHONPATH": os.path.join(SOURCE, "bench", "gpu")}
        out = subprocess.run([sys.executable, "-B", "-c", code], env=env, stdout=subprocess.PIPE, check=True).stdout.decode()
        rows = {r["check"]: r for r in map(json.loads, out.splitlines())}
        self.assertEqual({check: r["status"] for check, r in rows.items()}, {"late": "skipped", "slow": "timeout", "broken": "error"})
        self.assertIn("it needs at least 4", rows["late"]["note"])

    def test_limits(self):
        """The most valuable steps fit in the budget, also if each needs all of its time."""
        code = ("import plan\nfor steps in (plan.STEPS[:[s.name for s in plan.STEPS].index('small') + 1], plan.PEER_STEPS):\n"
                "    print(sum(s.seconds for s in steps))")
        env = {**os.environ, "PYTHONPATH": os.path.join(SOURCE, "bench", "gpu")}
        one, peers = subprocess.run([sys.executable, "-B", "-c", code], env=env, stdout=subprocess.PIPE, check=True).stdout.split()
        self.assertLessEqual(int(one), 570)
        self.assertLessEqual(int(peers), 120)

    def test_earlier_plans(self):
        """A bundle without permissions to execute, with the plans of an earlier gate."""
        bundle = self.changed()
        for name in os.listdir(os.path.join(bundle, "bin")):
            os.chmod(os.path.join(bundle, "bin", name), 0o644)
        self.gate(bundle, expect=INCOMPLETE, only="tune")
        plans = self.result["plans"]
        self.assertIn("conv", plans["text"])
        os.rename(self.path("out", "gate.json"), self.path("earlier.json"))
        self.gate(bundle, "--plans", self.path("earlier.json"), expect=INCOMPLETE, only="facts")
        self.assertEqual(self.result["plans"], plans)

    def test_pytorch(self):
        """With a process in place of PyTorch whose rates are known; one of its variants cannot run."""
        code = "echo '{\"torch\": \"0\"}'\nwhile read line; do case $line in *graph*) echo '{\"error\": \"no graphs\"}';; *) echo " \
               "'{\"images_per_sec\": 2}';; esac; done\n"
        self.more_env = {"GATE_PYTHON": self.stand_in("python-with-torch", code)}
        rows = self.gate(Base.bundle, expect=INCOMPLETE, only="small")
        ours = rows["small", "mlp N=64 fp32: ctrain"]["value"]
        self.assertEqual(rows["small", "PyTorch"]["value"], "torch 0")
        self.assertAlmostEqual(rows["small", "mlp N=64 fp32: ctrain / PyTorch eager"]["value"], ours / 2)
        self.assertEqual(rows["small", "mlp N=64 fp32: PyTorch graph"]["note"], "no graphs")
        self.more_env = {"GATE_PYTHON": self.stand_in("python-without-torch", "exit 1\n")}
        rows = self.gate(Base.bundle, expect=INCOMPLETE, only="compiled")
        self.assertIn("ended with 1", rows["compiled", "resnet50 N=256 bf16: PyTorch compile"]["note"])

    def test_tools(self):
        """With programs in place of NVIDIA's tools: one finds an error in one kernel test, the other prints a table of kernels."""
        self.stand_in("compute-sanitizer", 'shift 4\n"$@" || exit\ncase $1 in *layer*) n=2;; *) n=0;; esac\n'
                      'echo "========= ERROR SUMMARY: $n errors"\n[ $n = 0 ] || exit 9\n')
        table = ['"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
        for name, us in (("ct_norm(args)", 30), ("sm90_conv<float>(args)", 60), ("ct_norm(args)", 30)):
            table += [f'"0","{name}","gpu__time_duration.sum","ns","{us},000"',
                      f'"0","{name}","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","50"']
        lines = "\n".join(["==PROF== Connected", *table])
        self.stand_in("ncu", f"while [ \"$1\" != --log-file ]; do shift; done\ncat >$2 <<'END'\n{lines}\nEND\n")
        rows = self.gate(Base.bundle, only="sanitizer,profile")
        self.assertEqual(self.bad(rows), {("sanitizer", f"{tool} test_cuda_layer_kernels"): "fail" for tool in ("memcheck", "racecheck")})
        self.assertEqual(rows["sanitizer", "memcheck training step"]["status"], "pass")
        self.assertEqual(rows["profile", "profiled kernels"]["value"], 120)
        norm = rows["profile", "kernel ct_norm"]
        self.assertEqual((norm["value"], norm["note"]), (50, "2 launches, 30.0 us each, dram 50 %"))
        self.stand_in("compute-sanitizer", 'echo "========= Error: Device not supported. Error code: 999"\n'
                      'echo "========= ERROR SUMMARY: 1 error"\nexit 9\n')
        rows = self.gate(Base.bundle, only="sanitizer", expect=INCOMPLETE)
        self.assertEqual({r["status"] for r in rows.values()}, {"not available"})
        self.assertIn("Device not supported", rows["sanitizer", "memcheck training step"]["note"])

    def test_norms(self):
        """With a program in place of cudnn_norms, which a dry bundle does not have because the software GPU cannot answer it."""
        rows = self.gate(Base.bundle, expect=INCOMPLETE, only="norms")
        self.assertEqual(rows["norms", "NORM graphs"]["status"], "not available")
        bundle = self.changed()
        self.replace(bundle, "bin/gpu_facts", "echo '{\"check\": \"device json\", \"status\": \"measured\", \"value\": \"{}\"}'\n")
        self.write("bundle/bin/cudnn_norms", "#!/bin/sh\n[ -s \"$1\" ] || exit 1\nprintf '# x\\ngraph\\ttype\\tproposed\\tengines\\tcompiled"
                   "\\tfinalized\\treason\\nnorm\\tbf16\\t30\\t0, 4,\\t1\\t2\\t\\nnorm, ReLU\\tfp32\\t0\\t\\t0\\t0\\tno engine\\n'\nkill -SEGV $$\n")
        rows = self.gate(bundle, expect=INCOMPLETE, only="facts,norms")
        self.assertEqual(self.result["device_json"], "{}")
        norm, relu = rows["norms", "norm, bf16"], rows["norms", "norm, ReLU, fp32"]
        self.assertEqual((norm["value"], norm["note"]), (2, "2 engines, 1 of them compiled at run time"))
        self.assertEqual((relu["value"], relu["note"]), (0, "0 engines, 0 of them compiled at run time; no engine"))
        self.assertIn("ended with -11", rows["norms", "NORM graphs"]["note"])

    def test_wrong_arguments(self):
        r = self.script("gpu_gate.sh", "--dry", self.path("nothing"), self.path("out"), expect=USAGE)
        self.assertIn("gpu_bundle.sh", r.err)
        r = self.script("gpu_gate.sh", "--dry", "--only", "speeed", Base.bundle, self.path("out"), expect=USAGE)
        self.assertIn("speeed", r.err)
        for text in ("{}", "no JSON", '{"plans": {"name": "x"}}'):
            r = self.script("gpu_gate.sh", "--dry", "--plans", self.write("plans.json", text), Base.bundle, self.path("out"), expect=USAGE)
            self.assertRegex(r.err, "plans.json is not the gate.json of a gate that has chosen plans")
        r = self.script("gpu_bundle.sh", "--dry", "--build", BUILD, self.tmp, expect=1)
        self.assertIn("is not a bundle", r.err)


class Peers(Base):
    """--peers, with two ranks."""

    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(Base.bundle, "soft", "libnccl.so.2")):
            self.skipTest("built without NCCL's header")

    def gate(self, bundle, *args, **more):
        return super().gate(bundle, "--peers", *args, **more)

    def faulty(self, fault):
        """A bundle in which the stand-in for NCCL has a fault."""
        bundle = self.changed()
        real = self.replace(bundle, "bin/ctrain", f"SOFT_NCCL_FAULT={fault} exec $0.real \"$@\"\n")
        self.assertTrue(os.access(real, os.X_OK))
        return bundle

    def test_dry_run(self):
        rows = self.gate(Base.bundle, expect=0)
        self.assertEqual({r["status"] for r in rows.values()}, {"pass", "measured"})
        self.assertEqual(list(dict.fromkeys(step for step, _ in rows)), ["start", "comm", "same", "sums", "killed"])
        for key in (("comm", "bench comm: allreduce"), ("comm", "bench comm: sendrecv"), ("same", "all ranks have equal weights"),
                    ("same", "repeated"), ("same", "recorded = plain"), ("same", "windows on = off"),
                    ("sums", "fp32: sums of the ranks' gradients"), ("sums", "bf16: sums of the ranks' gradients"),
                    ("sums", "fp32, windows on: sums of the ranks' gradients"), ("killed", "rank 1 is killed: the others end"),
                    ("killed", "no process and no shared memory is left")):
            self.assertEqual(rows[key]["status"], "pass", key)
        self.assertIn("2 ranks with nccl", rows["same", "repeated"]["note"])
        self.assertTrue(self.result["peers"])

    def test_wrong_sums_on_all_ranks(self):
        """The ranks agree about a wrong sum, so only known sums show it."""
        rows = self.gate(self.faulty("wrong@0:25:50,wrong@1:25:50"), only="comm,sums")
        self.assertEqual(rows["comm", "bench comm: sendrecv"]["status"], "fail")
        for check in ("fp32", "bf16", "fp32, windows on"):
            r = rows["sums", f"{check}: sums of the ranks' gradients"]
            self.assertEqual(r["status"], "fail", r)

    def test_wrong_sum_on_one_rank(self):
        rows = self.gate(self.faulty("wrong@1:25:50"), only="same")
        self.assertEqual(self.bad(rows)["same", "all ranks have equal weights"], "fail")

    def test_no_windows(self):
        """NCCL then puts the gradients in other memory, without an error."""
        self.more_env = {"NCCL_WIN_ENABLE": "0"}
        rows = self.gate(Base.bundle, only="same", expect=INCOMPLETE)
        r = rows["same", "windows on = off"]
        self.assertEqual((r["status"], r["note"]), ("not available", "NCCL has made no symmetric windows"))
        self.assertEqual(rows["same", "recorded = plain"]["status"], "pass")

    def test_one_card(self):
        self.more_env = {"CUDA_VISIBLE_DEVICES": "0"}
        rows = self.gate(Base.bundle, complete=False)
        self.assertEqual(self.bad(rows), {("start", "GPUs"): "fail"})
        self.assertEqual({r["note"] for (step, _), r in rows.items() if step != "start"}, {"not run: the step start has failed"})

    def test_run_that_does_not_end(self):
        """It also leaves a process and a file."""
        bundle, memory = self.changed(), f"/dev/shm/nccl-gate-{os.getpid()}"
        self.addCleanup(lambda: os.path.exists(memory) and os.remove(memory))
        self.replace(bundle, "bin/ctrain", f": >{memory}\nsetsid sleep 600 &\nexec sleep 600\n")
        rows = self.gate(bundle, "--scale", 0.3 * SLOW, only="killed")
        self.end_all()
        self.assertRegex(rows["killed", "rank 1 is killed: the others end"]["note"], "^still running after ")
        left = rows["killed", "no process and no shared memory is left"]
        self.assertEqual(left["status"], "fail")
        self.assertRegex(left["note"], rf"^process \d+ \(sleep\), {memory}$")


if __name__ == "__main__":
    main()
