"""The build itself: flags, what compiled files contain, and configurations other than the usual one."""

import glob
import json
import os
import re
import shutil
import subprocess

from harness import CTRAIN, OK, SOURCE, Case, Process, main

BUILD = os.path.dirname(os.path.abspath(CTRAIN))


def cached(name):
    with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as f:
        found = re.search(rf"(?m)^{name}:\w+=(.*)$", f.read())
    return found[1] if found else ""


def binaries():
    """What an installation contains: the program, its modules and the C library."""
    return [CTRAIN, *glob.glob(os.path.join(BUILD, "*ctrain_*.so"))]


class Configured(Case):
    def configure(self, *args, env=None, build="build", source=SOURCE, expect=OK):
        argv = ["cmake", "-S", source, "-B", self.path(build), "-G", "Ninja", "-DCTRAIN_TESTS=OFF", "-DCTRAIN_BENCH=OFF", "-DCTRAIN_CUDA=OFF", *args]
        r = Process(self, argv, self.env(env or {}), self.tmp).wait(100)
        self.assert_code(r, expect)
        return r

    def command(self, build="build", file="base/json.c"):
        """The compiler's command line for a file."""
        with open(self.path(build, "compile_commands.json"), encoding="utf-8") as f:
            found = [c["command"] for c in json.load(f) if c["file"] == os.path.join(SOURCE, file)]
        self.assertTrue(found, file)
        return found[0].split()


class Flags(Configured):
    def test_release(self):
        """Flags of release builds are a default: those of the user stay, in later configurations too, and so do those of the environment."""
        self.configure(env={"CFLAGS": "-DFROM_ENVIRONMENT"})
        words = self.command()
        for word in ("-O2", "-g1", "-DFROM_ENVIRONMENT"):
            self.assertIn(word, words)
        self.assertNotIn("-DNDEBUG", words)
        for args in (["-DCMAKE_C_FLAGS_RELEASE=-O3 -DNDEBUG -DMINE"], []):
            self.configure(*args, build="user")
            words = self.command("user")
            self.assertNotIn("-O2", words)
            for word in ("-O3", "-DNDEBUG", "-DMINE"):
                self.assertIn(word, words)

    def test_old_directory(self):
        """A build directory from before has CMake's flags in its cache, which were not used."""
        self.configure("-DCMAKE_C_FLAGS_RELEASE=-O3 -DNDEBUG")
        cache = self.path("build", "CMakeCache.txt")
        with open(cache, encoding="utf-8") as f:
            text = f.read()
        self.assertIn("CTRAIN_FLAGS_CHOSEN", text)
        with open(cache, "w", encoding="utf-8") as f:
            f.writelines(line for line in text.splitlines(True) if "CTRAIN_FLAGS_CHOSEN" not in line)
        self.configure()
        self.assertIn("-O2", self.command())
        self.assertNotIn("-DNDEBUG", self.command())

    def test_chosen_level(self):
        """_FORTIFY_SOURCE is defined once, and not at all without optimization, with sanitizers or in Debug builds."""
        for name, env, args, wanted in (("own", {"CFLAGS": "-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=1"}, [], ["-D_FORTIFY_SOURCE=1"]),
                                        ("slow", {}, ["-DCMAKE_C_FLAGS_RELEASE=-O0"], []), ("asan", {}, ["-DCTRAIN_SANITIZE=address"], []),
                                        ("debug", {}, ["-DCMAKE_BUILD_TYPE=Debug"], []), ("off", {}, ["-DCTRAIN_HARDEN=OFF"], [])):
            with self.subTest(name):
                self.configure(*args, env=env, build=name)
                self.assertEqual([w for w in self.command(name) if w.startswith("-D_FORTIFY_SOURCE")], wanted)


class Options(Configured):
    def test_auto(self):
        """oneDNN, gloo and hwloc, where they are not installed: AUTO builds without and says so in a line, ON is an error with the package."""
        for option, name, package in (("ONEDNN", "oneDNN", "libdnnl-dev"), ("GLOO", "gloo", "libgloo-dev"), ("HWLOC", "hwloc", "libhwloc-dev")):
            with self.subTest(name):
                library = {"ONEDNN": "DNNL"}.get(option, option) + "_LIBRARY"
                r = self.configure(f"-D{library}=OFF", build=name)
                self.assertIn(f"-- no {name}: {name} was not found (install {package})\n", r.out)
                self.assertRegex(r.out, rf"-- ctrain .*{name} OFF")
                r = self.configure(f"-D{library}=OFF", f"-DCTRAIN_{option}=ON", build=name, expect=1)
                self.assertIn(f"CTRAIN_{option} is ON, but {name} was not found: install {package}, or configure with -DCTRAIN_{option}=OFF",
                              " ".join(r.err.split()))
                r = self.configure(f"-DCTRAIN_{option}=OFF", build=name)
                self.assertNotIn(f"no {name}", r.out)
        if cached("DNNL_LIBRARY") and cached("GLOO_LIBRARY") and cached("HWLOC_LIBRARY"):
            r = self.configure(build="all")
            self.assertRegex(r.out, "-- ctrain .*oneDNN ON, gloo ON, hwloc ON")


class Binaries(Case):
    def test_hardened(self):
        """Programs and shared objects bind all functions when they are loaded, to tables that are then read-only; the compiler checks stacks and copies."""
        if cached("CTRAIN_SANITIZE") or cached("CMAKE_BUILD_TYPE") == "Debug" or cached("CTRAIN_HARDEN") == "OFF":
            self.skipTest("hardening is for builds without sanitizers that are not Debug")
        if not shutil.which("readelf"):
            self.skipTest("readelf is not installed")
        for path in binaries():
            with self.subTest(os.path.basename(path)):
                dump = subprocess.run(["readelf", "-W", "--dynamic", "--segments", "--dyn-syms", path], capture_output=True, text=True, check=True).stdout
                self.assertRegex(dump, r"GNU_RELRO")
                self.assertRegex(dump, r"\(FLAGS\).*BIND_NOW|\(FLAGS_1\).*NOW")
                self.assertRegex(dump, r"GNU_STACK .* RW +0x")
                self.assertIn("__stack_chk_fail", dump)
                if path == CTRAIN:
                    self.assertIn("__snprintf_chk", dump)
                    self.assertIn("__memcpy_chk", dump)

    def test_no_build_path(self):
        """Nothing that is installed contains the directory in which it was built (scripts/test_reproducible.sh compares two builds)."""
        if cached("CT_HAS_FILE_PREFIX_MAP") != "1":
            self.skipTest("the compiler has no -ffile-prefix-map")
        for path in [*binaries(), os.path.join(BUILD, "libctrain_infer.a")]:
            with self.subTest(os.path.basename(path)), open(path, "rb") as f:
                data = f.read()
                # CUDA from wheels is in this directory, and the program finds it there.
                for place in cached("CTRAIN_CUDART_LIBRARY"), cached("CTRAIN_CUDNN_LIBRARY"):
                    data = data.replace(os.path.dirname(place).encode() or b"none", b"")
                self.assertNotIn(SOURCE.encode() + b"/", data)


if __name__ == "__main__":
    main()
