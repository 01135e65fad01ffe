"""Other builds than the usual one, each complete: other directories of an installation, without oneDNN, without gloo, without hwloc, and for another machine."""

import os
import shutil
import subprocess

from harness import CTRAIN, OK, SOURCE, USAGE, Case, Process, main


class Builds(Case):
    def build(self, *args, targets=("ctrain",)):
        for argv in (["cmake", "-S", SOURCE, "-B", self.path("build"), "-G", "Ninja", "-DCTRAIN_TESTS=OFF", "-DCTRAIN_BENCH=OFF", "-DCTRAIN_CUDA=OFF",
                      "-DCTRAIN_WERROR=ON", *args],
                     ["cmake", "--build", self.path("build"), "--target", *targets]):
            r = Process(self, argv, self.env(), self.tmp).wait(1200)
            self.assert_code(r, OK)
            if argv[1] == "-S":
                configured = r.out
        return configured

    def install(self):
        subprocess.run(["cmake", "--install", self.path("build"), "--prefix", self.path("opt")], check=True, capture_output=True)

    def smoke(self, program, config="smoke"):
        r = self.start(config, f"run.dir={self.path('run')}", "train.max_steps=2", "data.n_val=64", program=program).wait(200)
        self.assert_code(r, OK)

    def test_directories(self):
        """The program finds its modules and configs, and pkg-config and CMake find the library, wherever they are installed."""
        self.build("-DCMAKE_INSTALL_LIBDIR=lib64/deep", "-DCMAKE_INSTALL_BINDIR=programs", "-DCMAKE_INSTALL_DATADIR=data",
                   "-DCMAKE_INSTALL_INCLUDEDIR=headers", targets=["all"])
        self.install()
        self.assertEqual(set(os.listdir(self.path("opt"))) - {"share"}, {"data", "headers", "lib64", "programs"})  # share: man pages
        self.assertTrue(os.path.exists(self.path("opt", "data", "ctrain", "configs", "smoke.yaml")))
        program = self.path("opt", "programs", "ctrain")
        self.smoke(program)
        if "gloo       yes" in self.run_ctrain("info").out:
            r = self.start("info", program=program).wait(60)
            self.assertIn("gloo       yes", r.out)
        env = {**os.environ, "PKG_CONFIG_PATH": self.path("opt", "lib64", "deep", "pkgconfig")}
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "ctrain_infer"], env=env, capture_output=True, text=True, check=True).stdout.split()
        by_hand = self.path("by_hand")
        subprocess.run(["cc", os.path.join(SOURCE, "examples", "classify.c"), "-o", by_hand, *flags], check=True)
        subprocess.run(["cmake", "-S", os.path.join(SOURCE, "examples"), "-B", self.path("made"), "-DCMAKE_PREFIX_PATH=" + self.path("opt"),
                        "-DCMAKE_LIBRARY_ARCHITECTURE=", "-Dctrain_infer_DIR=" + self.path("opt", "lib64", "deep", "cmake", "ctrain_infer")],
                       check=True, capture_output=True)
        subprocess.run(["cmake", "--build", self.path("made")], check=True, capture_output=True)

    def test_without_onednn(self):
        self.build("-DCTRAIN_ONEDNN=OFF")
        r = self.start("info", program=self.path("build", "ctrain")).wait(60)
        self.assertIn("-DCTRAIN_ONEDNN=ON", r.out)
        self.smoke(self.path("build", "ctrain"), os.path.join(SOURCE, "configs", "smoke.yaml"))

    def test_without_gloo(self):
        self.build("-DCTRAIN_GLOO=OFF")
        r = self.start("info", program=self.path("build", "ctrain")).wait(60)
        self.assertRegex(r.out, "gloo +no: built with CTRAIN_GLOO=OFF")
        self.smoke(self.path("build", "ctrain"), os.path.join(SOURCE, "configs", "smoke.yaml"))

    def test_without_hwloc(self):
        """launch.bind=auto means off then, and what needs hwloc is refused before any rank starts."""
        self.build("-DCTRAIN_HWLOC=OFF")
        program = self.path("build", "ctrain")
        r = self.start("info", program=program).wait(60)
        self.assertRegex(r.out, "binding +hwloc +no: built with CTRAIN_HWLOC=OFF")
        config = os.path.join(SOURCE, "configs", "smoke.yaml")
        self.smoke(program, config)
        for command in (), ("check",), ("plan",):
            r = self.start(*command, config, "launch.bind=core", "launch.procs=2", program=program).wait(60)
            self.assert_code(r, USAGE)
            self.assert_says(r, "launch.bind=core needs hwloc, but ctrain was built without it", "hint: install libhwloc-dev")

    def test_cross(self):
        """For another machine: programs that cannot run here. Pages are left out, or a program of this machine makes them."""
        toolchain = self.write("toolchain.cmake", """
            set(CMAKE_SYSTEM_NAME Linux)
            set(CMAKE_SYSTEM_PROCESSOR x86_64)
            set(CMAKE_C_COMPILER cc)
            set(CMAKE_CXX_COMPILER c++)
            set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,--dynamic-linker=/nowhere/ld.so)
            """.replace("x86_64", os.uname().machine))
        said = self.build(f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", "-DCTRAIN_TESTS=ON", targets=["all"])
        self.assertIn("no man page and no completions: cross-compiling", said)
        with self.assertRaises(OSError):
            subprocess.run([self.path("build", "ctrain"), "version"], check=False)
        self.install()
        self.assertFalse(os.path.exists(self.path("opt", "share", "man")))
        shutil.rmtree(self.path("opt"))
        self.assertNotIn("cross-compiling", self.build(f"-DCTRAIN_NATIVE={CTRAIN}", targets=["all"]))
        self.install()
        for page in ("man/man1/ctrain.1", "bash-completion/completions/ctrain"):
            self.assertGreater(os.path.getsize(self.path("opt", "share", page)), 500)


if __name__ == "__main__":
    main()
