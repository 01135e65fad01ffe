"""Every call of the CUDA runtime and of cuDNN fails once, on the software GPU of the tests: the run ends with exit code 4 and one message
that names the function and its error, and nothing leaks. If the call was for one of several plans, another plan is used."""

import collections
import os
import re
import shutil

from harness import CTRAIN, DEVICE, OK, Case, main

SOFT = os.path.join(os.path.dirname(os.path.abspath(CTRAIN)), "soft_cudart")
CONFIG = """\
model: {name: layers, layers: [conv2d 4 kernel=3 bias=false, batch_norm, relu, dropout 0.1, linear 10]}
data: {name: synthetic, n_train: 128, n_val: 16, shape: [1, 6, 6], on_device: on}
batch: {global: 16, eval: 16}
optim: {lr: 0.05, momentum: 0.9}
train: {epochs: 1, max_steps: 8, ema: 0.9, autotune: off}
launch: {procs: 1, threads: 1}
log: {every: 1}
device: cuda
"""
CUDA_ERROR, CUDNN_ERROR = 999, 4000  # cudaErrorUnknown, CUDNN_STATUS_INTERNAL_ERROR
# Calls that release something: the work is done, so the run goes on, with a warning.
RELEASES = re.compile(r"Free|Destroy")
# Only the text of a version depends on it.
IGNORED = {"cudaRuntimeGetVersion"}
# cuDNN calls these, and reports a failure by its own error.
INSIDE_CUDNN = {"cudaGetDevice", "cudaSetDevice", "cudaStreamGetDevice"}
# They also make the plans. One that cannot be made is skipped.
FOR_A_PLAN = {"cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute", "cudnnBackendGetAttribute", "cudnnBackendFinalize"}
SKIPPED = r'plan [0-9:=,]* ?of ".*" is skipped: cuDNN: {}( \([a-z ]+\))?: CUDNN_STATUS_INTERNAL_ERROR'


class Faults(Case):
    always = ("log.level=info,cudnn=debug",)

    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(SOFT, "libctrain_cuda.so")):
            self.skipTest("built without CUDA's headers")
        self.n_runs = 0

    def once(self, *sets, expect=None, libs=SOFT, **env):
        """Trains as one rank without a launcher: one process, whose exit code is that of the rank."""
        self.n_runs += 1
        run = f"run{self.n_runs}"
        env = {"CTRAIN_CUDA_LIBS": libs, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29400", "SOFT_GPU_LOG": self.path(run + ".calls"), "XDG_CACHE_HOME": self.path(run + ".cache"), **env}
        r = self.start(self.config(CONFIG, "faults.yaml"), f"run.dir={self.path(run)}", *sets, env=env).wait()
        if expect is not None:
            self.assert_code(r, expect)
        with open(env["SOFT_GPU_LOG"], encoding="utf-8") as f:
            self.calls = f.read().splitlines()
        shutil.rmtree(self.path(run), ignore_errors=True)
        return r

    def live(self):
        """The objects that were not released."""
        names = self.calls[-1].split()[1:]
        return {n: int(v) for n, v in zip(names[::2], names[1::2]) if int(v)}

    def test_each_call(self):
        self.once(expect=OK)
        self.assertEqual(self.live(), {})
        counts = collections.Counter(line.split()[1] for line in self.calls if line.startswith("call "))
        self.assertGreater(len(counts), 25)
        self.assertGreater(counts["cudaGraphLaunch"], 1)
        for function, n in sorted(counts.items()):
            error, name = (CUDNN_ERROR, "CUDNN_STATUS_INTERNAL_ERROR") if function.startswith("cudnn") else (CUDA_ERROR, "cudaErrorUnknown")
            for call in sorted({1, (n + 1) // 2, n}):
                with self.subTest(function=function, call=call, calls=n):
                    # What is not released is a leak of the software GPU, too.
                    leaks = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"} if RELEASES.search(function) else {}
                    self.check_fault(self.once(SOFT_GPU_FAULT=f"{function}:{call}:{error}", **leaks), function, name)

    def check_fault(self, r, function, name):
        if RELEASES.search(function):
            self.assert_code(r, OK)
            self.assertLessEqual(sum(self.live().values()), 1)
            self.assertIn(f"{function}: {name}", r.err)
            return
        self.assertEqual(self.live(), {})
        if r.code == OK and "\ndone\n" in r.out:
            if function in IGNORED or (function in FOR_A_PLAN and re.search(SKIPPED.format(function), r.err)):
                return
            self.assertRegex(r.err, f" warn .*{function}.*: {name}")  # the last wait, when the results are complete
            return
        self.assert_code(r, DEVICE)
        errors = [line for line in r.err.splitlines() if line.startswith("ctrain: ")]
        self.assertEqual(len(errors), 1, r.describe())
        if function not in INSIDE_CUDNN or "cuDNN: " not in errors[0]:
            self.assertIn(function, errors[0])
            self.assertIn(name, errors[0])

    def test_posted_work(self):
        """Work that fails when it runs: a later call reports it, with the names of the work that may have failed."""
        self.once(expect=OK)
        counts = collections.Counter(line.split()[1] for line in self.calls if line.startswith("call "))
        for function in ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaMemset", "cudnnBackendExecute"):
            n = counts[function]
            for call in sorted({1, (n + 1) // 2, n}):
                with self.subTest(function=function, call=call, calls=n):
                    r = self.once(expect=DEVICE, SOFT_GPU_FAULT=f"{function}@{call}:700")
                    self.assertEqual(self.live(), {})
                    errors = [line for line in r.err.splitlines() if line.startswith("ctrain: ")]
                    self.assertEqual(len(errors), 1, r.describe())
                    self.assertRegex(errors[0], "CUDA: .*: cudaErrorIllegalAddress: an illegal memory access was encountered")
                    self.assertNotIn(" warn ", r.err)
        # Tuning, which skips plans that fail, ends, too.
        r = self.once("train.autotune=on", expect=DEVICE, SOFT_GPU_FAULT="cudnnBackendExecute@3:700")
        self.assertRegex(r.err, 'timing plan [0-9:=,]+ of ".*": CUDA: .*: cudaErrorIllegalAddress')
        self.assertEqual(self.live(), {})
        r = self.once("train.cuda_graph=off", expect=DEVICE, SOFT_GPU_FAULT=f"cudaLaunchKernel@{counts['cudaLaunchKernel'] // 2}:700")
        self.assertRegex(r.err, r'work has failed, probably one of [0-9]+ kernels from "[a-z0-9]+: [a-zA-Z ]+" to ".*": cudaErrorIllegalAddress')
        self.assertIn("`CUDA_LAUNCH_BLOCKING=1 ctrain CONFIG train.cuda_graph=off` names the kernel", r.err)

    def test_recorded_step(self):
        """The GPU does not report which work of a recorded step has failed, so the message names no layer."""
        r = self.once(expect=DEVICE, SOFT_GPU_FAULT="cudaGraphLaunch@2:700")
        self.assertEqual(self.live(), {})
        self.assertRegex(r.err, r'work has failed, probably (one of )?"a recorded step".*: cudaErrorIllegalAddress')
        self.assertIn("train.cuda_graph=off", r.err)

    def test_launch_that_fails(self):
        """Memory that a launch lacks is reported as such, with a hint."""
        r = self.once(expect=DEVICE, SOFT_GPU_FAULT="cudaLaunchKernel:12:2")
        self.assertRegex(r.err, r"CUDA: cudaLaunchKernel \([a-z ]+\): cudaErrorMemoryAllocation")
        self.assertIn("use a smaller batch.per_rank", r.err)

    def test_named_kernel(self):
        """As the hint says, CUDA_LAUNCH_BLOCKING=1 reports the error at the launch, with the names of the kernel and the layer."""
        r = self.once(expect=DEVICE, CUDA_LAUNCH_BLOCKING="1", SOFT_GPU_FAULT="cudaLaunchKernel@12:700")
        self.assertRegex(r.err, r"ctrain: error: [a-z0-9]+: CUDA: cudaLaunchKernel \([a-z ]+\): cudaErrorIllegalAddress")

    def test_named_plan(self):
        """The same for a plan of cuDNN, which returns an error of its own."""
        for tune, where in (("off", "[a-z0-9]+"), ("on", '[a-z0-9]+: timing plan [0-9:=,]+ of ".*"')):
            r = self.once(f"train.autotune={tune}", expect=DEVICE, CUDA_LAUNCH_BLOCKING="1", SOFT_GPU_FAULT="cudnnBackendExecute@3:700")
            self.assertRegex(r.err, f"ctrain: error: {where}: CUDA: cudnnBackendExecute: cudaErrorIllegalAddress")
            self.assertIn("compute-sanitizer", r.err)
            self.assertEqual(self.live(), {})


class Loading(Case):
    """Libraries and the module that cannot be loaded."""

    always = ("train.autotune=off",)

    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(SOFT, "libctrain_cuda.so")):
            self.skipTest("built without CUDA's headers")
        self.n = 0

    def libraries(self, **replaced):
        """A directory with the libraries; `replaced`: bytes instead of a library, or a function that changes its bytes."""
        self.n += 1
        directory = self.path(f"libs{self.n}")
        os.mkdir(directory)
        for key, name in (("cudart", "libcudart.so.13"), ("cudnn", "libcudnn.so.9"), ("module", "libctrain_cuda.so")):
            change = replaced.get(key, lambda data: data)
            with open(os.path.join(SOFT, name), "rb") as f:
                data = change(f.read()) if callable(change) else change
            with open(os.path.join(directory, name), "wb") as f:
                f.write(data)
        return directory

    def refused(self, directory, *parts):
        r = self.train("device=cuda", run="refused", env={"CTRAIN_CUDA_LIBS": directory}, expect=DEVICE)
        errors = r.err.splitlines()
        self.assertEqual(len(errors), 2, r.describe())
        for part in ("no cuda device: ", *parts):
            self.assertIn(part, errors[0])

    def test_damaged(self):
        self.refused(self.libraries(cudart=b"no library"), "libcudart.so.13")
        self.refused(self.libraries(cudnn=b"no library"), "libcudnn.so.9")
        self.refused(self.libraries(module=b"no module"), "libctrain_cuda.so")
        with open(os.path.join(SOFT, "libcudart.so.13"), "rb") as f:
            other = f.read()
        self.refused(self.libraries(module=other), "libctrain_cuda.so is not a module of this program")

    def test_missing_symbols(self):
        """A module without a device or without an engine, and libraries without a function, for example because they are too old."""
        def without(symbol):
            def change(data):
                self.assertIn(symbol + b"\0", data)  # perhaps as the end of another symbol
                return data.replace(symbol + b"\0", symbol[:-1] + b"?\0")
            return change
        self.refused(self.libraries(module=without(b"ct_cuda_device")), "libctrain_cuda.so", "ct_cuda_devic")
        self.refused(self.libraries(cudart=without(b"cudaGraphLaunch")), "cannot load libctrain_cuda.so", "cudaGraphLaunch")
        self.refused(self.libraries(cudnn=without(b"cudnnBackendExecute")), "cannot load libctrain_cuda.so", "cudnnBackendExecute")
        env = {"CTRAIN_CUDA_LIBS": self.libraries(module=without(b"ct_cuda_engine"))}
        r = self.train("device=cuda", "launch.procs=1", run="no engine", env=env, expect=DEVICE)
        errors = [line for line in r.err.splitlines() if "error" in line]
        self.assertEqual(len(errors), 1, r.describe())
        self.assertIn("ct_cuda_engin", errors[0])

    def test_other_build(self):
        """The module of another build is refused before anything in it is called."""
        def other_build(data):
            at = re.search(rb"\d+\.\d+\.\d+-[0-9a-f]{16}\0", data)
            self.assertIsNotNone(at)
            return re.sub(rb"(\d+\.\d+\.\d+)-[0-9a-f]{16}\0", rb"\1-0123456789abcdef\0", data)

        def other_abi(data):
            build = re.search(rb"\d+\.\d+\.\d+-[0-9a-f]{16}\0", data)[0]
            self.assertIn(b"\1\0\0\0" + build, data)
            return data.replace(b"\1\0\0\0" + build, b"\2\0\0\0" + build)
        self.refused(self.libraries(module=other_build), "libctrain_cuda.so is from build ", "-0123456789abcdef, but this program is from build ")
        self.refused(self.libraries(module=other_abi), "libctrain_cuda.so has module interface 2, but this program has 1")

    def test_auto(self):
        """`device: auto` trains on the CPU, with a warning, because CTRAIN_CUDA_LIBS is set."""
        r = self.train("train.max_steps=1", env={"CTRAIN_CUDA_LIBS": self.libraries(cudnn=b"no library")})
        warnings = [line for line in r.err.splitlines() if "device=auto trains on the CPU" in line]
        self.assertEqual(len(warnings), 1, r.describe())
        self.assertRegex(warnings[0], "CTRAIN_CUDA_LIBS is set, but .*libcudnn.so.9")


if __name__ == "__main__":
    main()
