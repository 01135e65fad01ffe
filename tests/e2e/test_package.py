"""What is built where a part of CUDA is missing, and what cmake --install installs: the program, and its modules if they were built."""

import os
import re
import shutil
import subprocess

from harness import CTRAIN, OK, SOURCE, Case, Process, main

BUILD = os.path.dirname(os.path.abspath(CTRAIN))
SOFT = os.path.join(BUILD, "soft_cudart")


class Configure(Case):
    def configure(self, *args, expect=OK):
        argv = ["cmake", "-S", SOURCE, "-B", self.path("build"), "-G", "Ninja", "-DCTRAIN_TESTS=ON", *args]
        r = Process(self, argv, self.env(), self.tmp).wait(100)
        self.assert_code(r, expect)
        return r

    def assert_no_cuda(self, r, line):
        self.assertEqual([x for x in r.out.splitlines() if "no CUDA" in x], [f"-- {line}"])
        with open(self.path("build", "build.ninja"), encoding="utf-8") as f:
            rules = f.read()
        self.assertIn("build ctrain: ", rules)
        self.assertNotRegex(rules, r"(?m)^build libctrain_cuda\.so: (?!phony)|\.cu\.o\.ptxas")

    def assert_skipped(self, pattern, at_least, why):
        r = subprocess.run(["ctest", "--test-dir", self.path("build"), "-R", pattern, "--verbose"], capture_output=True, text=True, check=True)
        skipped, ran = re.findall(r"\*\*\*Skipped", r.stdout), re.findall(r"Test +#\d+:", r.stdout)
        self.assertGreaterEqual(len(ran), at_least, r.stdout)
        self.assertEqual(len(skipped), len(ran), r.stdout)
        self.assertEqual(r.stdout.count(f"skipped: {why}"), len(ran), r.stdout)

    def test_no_nvcc(self):
        if not os.path.exists(os.path.join(SOFT, "libctrain_cuda.so")):
            self.skipTest("built without CUDA's headers")
        self.assert_no_cuda(self.configure("-DCTRAIN_NVCC=OFF"), "no CUDA module: nvcc was not found")
        self.assert_skipped("^test_(cuda_ptxas|soft_gpu_nvcc)$", 2, "nvcc was not found")
        r = self.configure("-DCTRAIN_NVCC=OFF", "-DCTRAIN_CUDA=ON", expect=1)
        self.assert_says(r, "CTRAIN_CUDA is ON, but nvcc was not found")

    def test_no_nccl(self):
        """One line says why there is no communicator nccl, and its tests are skipped."""
        if not os.path.exists(os.path.join(SOFT, "libctrain_cuda.so")):
            self.skipTest("built without CUDA's headers")
        old = os.path.dirname(self.write("old/nccl.h", "#define NCCL_VERSION_CODE 22707\n"))
        for directory, why in (("OFF", "nccl.h of NCCL 2.28 or later was not found"), (old, f"NCCL 2.28 is needed, and {old} has 22707")):
            r = self.configure(f"-DCTRAIN_NCCL_INCLUDE_DIR={directory}")
            self.assertEqual([x for x in r.out.splitlines() if "no NCCL" in x], [f"-- no NCCL: {why}"])
            self.assert_skipped("^test_(soft_)?nccl_", 8, why)

    def test_off(self):
        self.assert_no_cuda(self.configure("-DCTRAIN_CUDA=OFF"), "no CUDA: switched off by CTRAIN_CUDA")
        self.assert_skipped("^test_(cuda|soft)_", 20, "switched off by CTRAIN_CUDA")


class Package(Case):
    def dump(self, path):
        return subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout

    def run_installed(self, *args):
        """With a search path for CUDA, so that ctrain looks for the module although this machine has no driver."""
        program = self.path("package", "bin", "ctrain")
        r = Process(self, [program, *args], self.env({"CTRAIN_CUDA_LIBS": self.path("nowhere")}), self.tmp).wait(60)
        self.assert_code(r, OK)
        return r.out + r.err

    def test_with_and_without_the_module(self):
        if not shutil.which("objdump"):
            self.skipTest("objdump is not installed")
        subprocess.run(["cmake", "--install", BUILD, "--prefix", self.path("package"), "--strip"], check=True, capture_output=True)
        library = self.path("package", "lib", "ctrain")
        modules = {n: os.path.join(library, n) for n in (os.listdir(library) if os.path.isdir(library) else ())}
        program = self.dump(self.path("package", "bin", "ctrain"))
        self.assertNotRegex(program, r"NEEDED +lib(cuda|cudart|cudnn|nccl)")
        for text in (program, *map(self.dump, modules.values())):
            self.assertNotRegex(text, r"(RUNPATH|RPATH) ")
        built = os.path.exists(os.path.join(BUILD, "libctrain_cuda.so"))
        self.assertEqual("libctrain_cuda.so" in modules, built)
        if built:
            self.assertRegex(self.run_installed("info"), "libctrain_cuda.so: .* " + modules["libctrain_cuda.so"])
            os.remove(modules["libctrain_cuda.so"])
            self.assertIn("cannot find libctrain_cuda.so", self.run_installed("info"))
        self.assertIn("cpu        yes", self.run_installed("info"))
        self.run_installed(self.config(), f"run.dir={self.path('run')}", "device=cpu")


if __name__ == "__main__":
    main()
