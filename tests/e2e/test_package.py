"""What is built where a part of CUDA is missing, and what cmake --install installs: the program, and its modules if they were built."""

import glob
import os
import re
import shutil
import subprocess

from harness import CTRAIN, DEVICE, OK, SOURCE, Case, Process, main

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


class Install(Case):
    """What cmake --install and cpack install besides the modules."""

    def install(self):
        subprocess.run(["cmake", "--install", BUILD, "--prefix", self.path("opt")], check=True, capture_output=True)

    def test_files(self):
        """Configs, pages, man page, completions and licence are there, and the program finds its configs from elsewhere."""
        self.install()
        for name in ("share/ctrain/configs/mnist_ddp.yaml", "share/ctrain/config.schema.json", "share/ctrain/scripts/get_mnist.sh",
                     "share/doc/ctrain/README.md", "share/doc/ctrain/CHANGELOG.md", "share/doc/ctrain/docs/CONFIG.md",
                     "share/doc/ctrain/copyright", "share/man/man1/ctrain.1", "share/bash-completion/completions/ctrain",
                     "share/zsh/site-functions/_ctrain", "share/fish/vendor_completions.d/ctrain.fish"):
            self.assertGreater(os.path.getsize(self.path("opt", name)), 500, name)
        configs = self.path("opt", "share", "ctrain", "configs")
        self.assertEqual(sorted(os.listdir(configs)), sorted(os.listdir(os.path.join(SOURCE, "configs"))))
        ctrain = self.path("opt", "bin", "ctrain")
        r = self.start("smoke", f"run.dir={self.path('run')}", "train.max_steps=2", program=ctrain).wait(60)
        self.assert_code(r, OK)
        self.assertIn(f'{configs}/smoke.yaml', self.start("config", "dump", "smoke", "--origins", program=ctrain).wait(60).out)
        r = self.start("configs/mnist_ddp.yaml", program=ctrain).wait(60)
        self.assert_says(r, f'"ctrain mnist_ddp" uses the example {configs}/mnist_ddp.yaml')
        r = self.start("smoke", "device=lazy", f"run.dir={self.path('lazy')}", program=ctrain).wait(60)
        self.assert_code(r, DEVICE)
        self.assert_says(r, "no lazy device: a device for tests of ctrain itself; cannot find ctrain_lazy.so", "available devices: cpu")
        r = self.start("version", program=ctrain).wait(60)
        self.assertRegex(r.out, r"^ctrain \d+\.\d+\.\d+(\+g[0-9a-f]{9,})?\n$")

    def test_completion(self):
        """bash completes commands, options, keys and values."""
        self.install()
        script = self.path("opt", "share", "bash-completion", "completions", "ctrain")
        for words, wanted in (("pla", "plan"), ("data pac", "pack"), ("plan --sim", "--simulate"), ("plan x.yaml optim.wei", "optim.weight_decay="),
                              ("x.yaml optim.name = la", "lars lamb"), ("x.yaml optim.nesterov =", "true false"), ("help optim.wei", "optim.weight_decay")):
            code = f'source {script}; COMP_WORDS=(ctrain {words}); COMP_CWORD={len(words.split())}; _ctrain; echo "${{COMPREPLY[*]}}"'
            r = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, cwd=self.tmp)
            self.assertEqual((r.stdout.strip(), r.stderr), (wanted, ""), words)

    def test_uninstall(self):
        """The target removes what was installed, and nothing else."""
        self.install()
        own = self.write("opt/share/ctrain/configs/own.yaml", "base: smoke.yaml\n")
        subprocess.run(["cmake", f"-DBUILD={BUILD}", "-P", os.path.join(SOURCE, "cmake", "uninstall.cmake")], check=True, capture_output=True)
        left = [os.path.join(d, f) for d, _, files in os.walk(self.path("opt")) for f in files]
        self.assertEqual(left, [own])
        self.assertFalse(os.path.exists(self.path("opt", "share", "doc", "ctrain")))

    def test_packages(self):
        """Debian packages: what they need is found from the libraries, and they have the version of the program."""
        for tool, package in (("dpkg-shlibdeps", "dpkg-dev"), ("dpkg-deb", "dpkg"), ("file", "file")):
            if not shutil.which(tool):
                self.skipTest(f"cpack needs {tool} (Debian's package {package}; scripts/setup.sh --package installs it)")
        subprocess.run(["cpack", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-B", self.path("deb")], check=True, capture_output=True)
        debs = {n.split("_")[0]: self.path("deb", n) for n in os.listdir(self.path("deb")) if n.endswith(".deb")}
        field = {n: dict(x.split(": ", 1) for x in subprocess.run(["dpkg-deb", "-f", p], capture_output=True, text=True, check=True).stdout.splitlines()
                         if ": " in x) for n, p in debs.items()}
        version = self.run_ctrain("version").out.split()[1]
        self.assertEqual({f["Version"] for f in field.values()}, {version})
        self.assertRegex(field["ctrain"]["Depends"], r"libdnnl.*libyaml|libyaml.*libdnnl")
        self.assertNotRegex(field["ctrain"]["Depends"], "gloo|mpi")
        if "hwloc      yes" in self.run_ctrain("info").out:
            self.assertIn("libhwloc", field["ctrain"]["Depends"])
        self.assertRegex(field["libctrain-infer0"]["Depends"], "libdnnl")
        self.assertNotRegex(field["libctrain-infer0"]["Depends"], "ctrain|yaml|jpeg|hwloc")
        self.assertIn(f"libctrain-infer0 (= {version})", field["libctrain-infer-dev"]["Depends"])
        files = {n: subprocess.run(["dpkg-deb", "-c", p], capture_output=True, text=True, check=True).stdout for n, p in debs.items()}
        for package in files:
            self.assertEqual("libctrain_infer.so.0" in files[package], package.startswith("libctrain-infer"), package)
            self.assertEqual("ctrain_infer.h" in files[package], package == "libctrain-infer-dev", package)
        if "ctrain-gloo" in field:
            self.assertRegex(field["ctrain-gloo"]["Depends"], rf"ctrain \(= {re.escape(version)}\).*libgloo")
            self.assertIn("ctrain-gloo", field["ctrain"]["Recommends"])


class Package(Case):
    def dump(self, path):
        return subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout

    def run_installed(self, *args):
        """With a search path for CUDA, so that ctrain looks for the module although this machine has no driver."""
        program = self.path("package", "bin", "ctrain")
        r = Process(self, [program, *args], self.env({"CTRAIN_CUDA_LIBS": self.path("nowhere")}), self.tmp).wait(60)
        self.assert_code(r, OK)
        return r.out + r.err

    def test_row_108_c_library(self):
        """The program runs where the C library is not older than the one with which it was built."""
        if not shutil.which("objdump"):
            self.skipTest("objdump is not installed")
        info = self.run_ctrain("info", "--json").json()
        built, here = ([int(n) for n in info[key].split(".")] for key in ("built_with_glibc", "glibc"))
        self.assertLessEqual(built, here)
        for path in (CTRAIN, *glob.glob(os.path.join(BUILD, "libctrain_*.so"))):
            needed = [[int(n) for n in v.split(".")] for v in re.findall(r"GLIBC_([\d.]+)", self.dump(path))]
            self.assertTrue(needed)
            self.assertLessEqual(max(needed)[:2], built, path)
        self.assertIn(f"glibc {info['glibc']}; built with {info['built_with_glibc']}", self.run_ctrain("info").out)

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
