"""scripts/setup_cuda.sh: what it chooses on machines with and without an NVIDIA driver. scripts/test_chroot.sh runs it for real, in a bare
system; here, nvidia-smi and pip are stand-ins. Also which wheels scripts/setup.sh installs."""

import glob
import os
import shutil

from harness import OK, SOURCE, USAGE, Case, Process, main

SMI = """#!/bin/sh
echo "| NVIDIA-SMI 580.65.06    Driver Version: 580.65.06    CUDA Version: %s |"
"""
# pip install ... --target DIR
PIP = """#!/bin/sh
echo "$@" >>"$CALLS"
case "$*" in *--version) [ -z "$NO_PIP" ] || [ -e "$NO_PIP" ]; exit ;; esac
[ -z "$FAIL" ] || exit 1
for to; do :; done
mkdir -p "$to/nvidia/cu13/bin" "$to/nvidia/cu13/lib" "$to/nvidia/cudnn/lib" "$to/nvidia/nccl/lib" "$to/nvidia_cudnn.dist-info"
touch "$to/nvidia/cu13/bin/nvcc" "$to/nvidia/cu13/lib/libcudart.so.13" "$to/nvidia/cudnn/lib/libcudnn.so.9" "$to/nvidia/nccl/lib/libnccl.so.2"
"""


class SetupCuda(Case):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path("tree", "scripts"))
        for name in ("setup_cuda.sh", "cuda_wheels.txt"):
            shutil.copy(os.path.join(SOURCE, "scripts", name), self.path("tree", "scripts"))
        self.program("python3", PIP)
        self.program("nvidia-smi", "#!/bin/sh\nexit 9\n")

    def program(self, name, text):
        os.chmod(self.write(f"bin/{name}", text), 0o755)

    def toolkit(self, version=13000, nccl=22800):
        self.write("toolkit/include/cuda_runtime_api.h", f"#define CUDART_VERSION {version}\n")
        self.write("toolkit/include/cudnn_graph.h", "")
        self.write("toolkit/lib/libcudnn.so.9", "")
        self.write("toolkit/include/nccl.h", f"#define NCCL_MAJOR 2\n#define NCCL_VERSION_CODE {nccl}\n")
        os.chmod(self.write("toolkit/bin/nvcc", "#!/bin/sh\n"), 0o755)
        return {"CUDA_HOME": self.path("toolkit")}

    def setup(self, *args, expect=OK, **env):
        env = self.env({"PATH": f"{self.path('bin')}:/usr/bin:/bin", "CTRAIN_DRIVER_FILE": self.path("version"), "CALLS": self.path("calls"),
                        "CTRAIN_COMPAT": self.path("compat"), "FAIL": "", "NO_PIP": "", **env})
        r = Process(self, ["bash", self.path("tree", "scripts", "setup_cuda.sh"), *args], env, self.tmp).wait(30)
        self.assert_code(r, expect)
        return r

    def calls(self):
        if not os.path.exists(self.path("calls")):
            return []
        with open(self.path("calls"), encoding="utf-8") as f:
            return [c for c in f.read().splitlines() if not c.endswith("--version")]

    def has(self, *parts):
        return os.path.exists(self.path("tree", "build", "cuda", *parts))

    def test_no_driver(self):
        r = self.setup()
        self.assertEqual((r.out, r.err, self.calls()), ("", "", []))

    def test_old_driver(self):
        self.program("nvidia-smi", SMI % "12.8")
        self.assert_says(self.setup(**self.toolkit()), r"supports CUDA 12\.8, but ctrain needs CUDA 13", "driver 580", "cuda-compat-13-0")
        self.assertEqual(self.calls(), [])

    def test_old_driver_with_the_compatibility_package(self):
        self.program("nvidia-smi", SMI % "12.8")
        compat = os.path.dirname(self.write("compat/libcuda.so.1", ""))
        r = self.setup(**self.toolkit())
        self.assertEqual(r.err, "")
        self.assertRegex(r.out, rf"supports CUDA 12\.8: .* set LD_LIBRARY_PATH={compat}\n.*using the CUDA toolkit in {self.path('toolkit')}")

    def test_driver_without_nvidia_smi(self):
        kernel = "NVRM version: NVIDIA UNIX %s  %s.65.06  Release Build\nGCC version:  gcc version 13\n"
        for module, version, says in (("x86_64 Kernel Module", 570, "driver 570"), ("Open Kernel Module for x86_64", 580, "using the CUDA")):
            self.write("version", kernel % (module, version))
            r = self.setup(**self.toolkit())
            self.assertIn(says, r.out + r.err)

    def test_installed_toolkit(self):
        for version in ("13.0", "13.2"):
            self.program("nvidia-smi", SMI % version)
            r = self.setup(**self.toolkit())
            self.assertIn(f"using the CUDA toolkit in {self.path('toolkit')}", r.out)
        self.assertEqual(self.calls(), [])

    def test_incomplete_toolkit(self):
        """A toolkit of another version, or without cuDNN, nvcc or a recent NCCL, is not used. On this machine another one may be."""
        self.program("nvidia-smi", SMI % "13.0")
        for change in ({"version": 12080}, {"nccl": 22707}, {"nccl": ""}, "include/cudnn_graph.h", "include/nccl.h", "bin/nvcc"):
            env = self.toolkit(**change) if isinstance(change, dict) else self.toolkit()
            if isinstance(change, str):
                if any(glob.glob(d + os.path.basename(change)) for d in ("/usr/include/", "/usr/include/*-linux-gnu/")):
                    continue  # the distribution has it
                os.remove(self.path("toolkit", change))
            self.assertNotIn(self.path("toolkit"), self.setup(**env).out, change)

    def test_wheels(self):
        env = {"CTRAIN_SETUP_CUDA": "wheels", **self.toolkit()}
        r = self.setup(**env)
        self.assertIn("installing CUDA 13.0, cuDNN and NCCL from wheels into build/cuda", r.out)
        for name in ("bin/nvcc", "lib/libcudart.so.13", "lib/libcudnn.so.9", "lib/libnccl.so.2", "nvidia_cudnn.dist-info", "wheels"):
            self.assertTrue(self.has(name), name)
        self.assertFalse(self.has("nvidia") or self.has("tmp") or os.path.exists(self.path("tree", "build", "cuda.part")))
        (call,) = self.calls()
        self.assertIn("--require-hashes", call)
        self.setup(**env)
        self.assertEqual(len(self.calls()), 1, "they were there")
        self.write("tree/scripts/cuda_wheels.txt", "nvidia-nvcc==13.0.99\n")
        self.setup(**env)
        self.assertEqual(len(self.calls()), 2, "the list changed")
        self.program("nvidia-smi", SMI % "13.0")
        self.assertIn("CUDA's wheels are in build/cuda", self.setup(**self.toolkit()).out, "CMake prefers them")

    def test_failed_download(self):
        r = self.setup(CTRAIN_SETUP_CUDA="wheels", FAIL="1", expect=1)
        self.assert_says(r, "could not be installed", "CTRAIN_SETUP_CUDA=off")
        self.assertFalse(self.has() or os.path.exists(self.path("tree", "build", "cuda.part")))

    def test_pip_is_installed_if_missing(self):
        self.program("sudo", '#!/bin/sh\nexec "$@"\n')
        self.program("apt-get", '#!/bin/sh\necho "$@" >>"$NO_PIP.log"\ncase "$*" in *" install python3-pip") touch "$NO_PIP" ;; esac\n')
        self.setup(CTRAIN_SETUP_CUDA="wheels", NO_PIP=self.path("pip"))
        with open(self.path("pip.log"), encoding="utf-8") as f:
            update, install = f.read().splitlines()
        self.assertTrue(update.endswith(" update") and install.endswith(" install python3-pip"))
        self.assertTrue(self.has("wheels"))

    def test_off(self):
        self.program("nvidia-smi", SMI % "13.0")
        r = self.setup(CTRAIN_SETUP_CUDA="off")
        self.assertEqual((r.out, r.err, self.calls()), ("", "", []))

    def test_usage(self):
        self.assert_says(self.setup(CTRAIN_SETUP_CUDA="on", expect=USAGE), "'on'", "auto, wheels, off")
        self.assert_says(self.setup("--wheels", expect=USAGE), "--wheels")

    def test_every_wheel_has_hashes(self):
        """Of x86_64 and aarch64."""
        with open(os.path.join(SOURCE, "scripts", "cuda_wheels.txt"), encoding="utf-8") as f:
            wheels = [w for w in f.read().replace("\\\n", "").splitlines() if not w.startswith("#")]
        self.assertGreater(len(wheels), 5)
        for w in wheels:
            self.assertRegex(w, r"^nvidia-[a-z0-9-]+==[0-9.]+( +--hash=sha256:[0-9a-f]{64}){2}$")


class Setup(Case):
    """scripts/setup.sh --test on a system that has all packages: the wheels of onnx, onnxruntime, clang-format and CUDA's
    disassembler."""

    def setUp(self):
        super().setUp()
        for name in ("setup.sh", "onnx_wheels.txt", "format_wheels.txt", "sass_wheels.txt"):
            os.makedirs(self.path("tree", "scripts"), exist_ok=True)
            shutil.copy(os.path.join(SOURCE, "scripts", name), self.path("tree", "scripts"))
        self.program("tree/scripts/setup_cuda.sh", "#!/bin/sh\n")
        self.program("bin/dpkg-query", "#!/bin/sh\necho install ok installed\n")
        self.program("bin/clang", f"#!/bin/sh\necho {self.path('clang')}\n")
        self.write("clang/lib/linux/libclang_rt.fuzzer.a", "")
        self.program("bin/python3", '#!/bin/sh\necho "$@" >>"$CALLS"\nfor to; do :; done\nmkdir -p "$to/onnx"\n[ -z "$FAIL" ]\n')

    def program(self, name, text):
        os.chmod(self.write(name, text), 0o755)

    def setup(self, **env):
        """Returns the number of calls of pip until now, and what is in build."""
        env = self.env({"PATH": f"{self.path('bin')}:/usr/bin:/bin", "CALLS": self.path("calls"), "FAIL": "", **env})
        r = Process(self, ["bash", self.path("tree", "scripts", "setup.sh"), "--test"], env, self.tmp).wait(30)
        self.assert_code(r, OK)
        self.assertEqual("tests that need them will be skipped" in r.err, bool(env["FAIL"]), r.err)
        with open(self.path("calls"), encoding="utf-8") as f:
            return len(f.readlines()), sorted(os.listdir(self.path("tree", "build")))

    def test_onnx(self):
        if not shutil.which("apt-get"):
            self.skipTest("setup.sh is for systems with apt-get")
        self.write("tree/build/onnx.part/left", "")
        self.assertEqual(self.setup(FAIL="1"), (3, []))
        self.write("tree/build/onnx.part/left", "")
        self.assertEqual(self.setup(), (6, ["format", "onnx", "sass"]))
        self.assertEqual(sorted(os.listdir(self.path("tree", "build", "onnx"))), ["onnx", "wheels"])
        self.assertEqual(self.setup(), (6, ["format", "onnx", "sass"]), "they were there")
        self.write("tree/scripts/onnx_wheels.txt", "onnx==1.0\n")
        self.assertEqual(self.setup(FAIL="1"), (7, ["format", "onnx", "sass"]), "the old ones remain")
        self.assertEqual(self.setup(), (8, ["format", "onnx", "sass"]), "the list changed")

    def test_every_wheel_has_a_version(self):
        with open(os.path.join(SOURCE, "scripts", "onnx_wheels.txt"), encoding="utf-8") as f:
            wheels = [w for w in f.read().splitlines() if not w.startswith("#")]
        self.assertGreater(len(wheels), 5)
        for w in wheels:
            self.assertRegex(w, r"^[a-z_]+==\d+(\.\d+)+$")


if __name__ == "__main__":
    main()
