"""The choice of cuDNN's plans by their time on the software GPU, and the cache that repeats it (tests/nn/cuda/test_cuda_tune.c has the details).
"""

import fcntl
import os
import re
import struct

from harness import OK, Case, main, read_text
from test_cuda import SETS, SMALL, SOFT


class Tuning(Case):
    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(SOFT, "libctrain_cuda.so")):
            self.skipTest("built without CUDA's headers")

    def train_tf32(self, run, *sets, **more):
        """Engines of the stand-in round differently in tf32, so other plans give another digest."""
        r = self.train("device=cuda", "precision=tf32", *SETS["convnet"], *SMALL, *sets, run=run, env={"CTRAIN_CUDA_LIBS": SOFT}, **more)
        n_tuned = sum(int(n) for n in re.findall(r"tuned (\d+) operations", read_text(self.path(run, "log", "rank-00000.log"))))
        return r, n_tuned, self.metrics(run, "end")[-1]["weights_digest"]

    def caches(self):
        directory = self.path("cache", "ctrain", "plans")
        return [os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(".txt")]

    def test_second_run_repeats(self):
        r, n_tuned, digest = self.train_tf32("one")
        self.assertGreater(n_tuned, 4)
        self.assertNotIn(" warn ", r.err)
        path, = self.caches()
        kept = read_text(path)
        _, again, same = self.train_tf32("two")
        self.assertEqual((again, same), (0, digest))
        self.assertEqual(read_text(path), kept)
        _, off, _ = self.train_tf32("off", "train.autotune=off")
        self.assertEqual(off, 0)
        # A damaged file is made again, with a warning that names it.
        self.write(path, kept.replace("deterministic", "Deterministic", 1))
        r, again, _ = self.train_tf32("three")
        self.assertEqual(again, n_tuned)
        self.assertRegex(r.err, " warn .*" + re.escape(path) + " is damaged")
        _, again, _ = self.train_tf32("four")
        self.assertEqual(again, 0)

    def claim(self, path, names):
        """Claims these entries as another process does (ct_plan_cache_claim). Returns the file that holds the claims."""
        f = open(path + ".claims", "r+b", buffering=0)
        for name in names:
            h = 0xcbf29ce484222325
            for byte in name.encode():
                h = (h ^ byte) * 0x100000001b3 % 2**64
            fcntl.fcntl(f, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, h // 4, 1, 0))  # F_OFD_SETLK, which Python 3.9 does not name
        return f

    def test_another_process_tunes(self):
        """A start waits for its choices and uses them, also if it has claimed only the GPU. If it ends without having saved any, the start
        makes them itself."""
        gpu = self.run_ctrain("info", "--json", env={"CTRAIN_CUDA_LIBS": SOFT}).json()["cuda"]["devices"][0]["uuid"]
        path, names = self.names_after("one")
        kept, n_tuned, digest = read_text(path), len(names), self.metrics("one", "end")[-1]["weights_digest"]
        for run, claimed, found, tuned in (("saves", names, True, 0), ("has-gpu", [gpu], True, 0), ("ends", names[::2], False, n_tuned)):
            with self.subTest(run=run):
                os.remove(path)
                with self.claim(path, claimed):
                    p, log = self.start_tf32(run)
                    self.until(lambda: os.path.exists(log) and "waiting for " + path in read_text(log), "the start waits", p)
                    if found:
                        os.replace(self.write("kept", kept), path)
                        self.assert_code(p.wait(60), OK)
                self.assert_code(p.wait(60), OK)
                self.assertEqual(sum(int(n) for n in re.findall(r"tuned (\d+) operations", read_text(log))), tuned)
                if found:
                    self.assertEqual(self.metrics(run, "end")[-1]["weights_digest"], digest)

    def start_tf32(self, run, env=()):
        """Starts the same run. Returns the process and the path of its log."""
        p = self.start_training("device=cuda", "precision=tf32", *SETS["convnet"], *SMALL, run=run, env={"CTRAIN_CUDA_LIBS": SOFT, **dict(env)})
        return p, self.path(run, "log", "rank-00000.log")

    def names_after(self, run):
        """Returns the path of the cache after a run, and its names."""
        self.train_tf32(run)
        path, = self.caches()
        return path, [line.partition("\t")[2] for line in read_text(path).splitlines() if "\t" in line]

    def test_gives_back_what_was_not_saved(self):
        """A start that had no memory to tune an operation, and waits for another process, does not let that one wait for the operation."""
        path, names = self.names_after("one")
        os.remove(path)
        with self.claim(path, names[:1]):
            p, log = self.start_tf32("two", {"SOFT_GPU_FAULT": "cudnnBackendExecute:3:4003"})
            self.until(lambda: os.path.exists(log) and "waiting for " + path in read_text(log), "the start waits", p)
            self.assertEqual(read_text(log).count(" is not tuned: "), 1)
            self.claim(path, names[1:]).close()
        self.assert_code(p.wait(60), OK)
        n_saved = sum("\t" in line for line in read_text(path).splitlines())
        self.assertEqual(n_saved, len(names) - 1)
        self.assertEqual(sum(int(n) for n in re.findall(r"tuned (\d+) operations", read_text(log))), n_saved)

    def test_cannot_save(self):
        """A start that cannot save its choices, here because a directory has the name of the file, does not wait for other processes."""
        path, names = self.names_after("one")
        os.remove(path)
        os.mkdir(path)
        with self.claim(path, names[:1]):
            p, log = self.start_tf32("two")
            self.assert_code(p.wait(60), OK)
        text = read_text(log)
        self.assertEqual(text.count("tuned plans cannot be saved"), 1)
        self.assertIn("the plans are stored in no file", text)
        self.assertNotIn("stored in " + path, text)
        self.assertNotIn("waiting for " + path, text)

    def test_no_directory(self):
        """Training goes on without a cache: auto does not tune, because the next run could not repeat the choice."""
        self.write("cache", "a file")
        r, n_tuned, _ = self.train_tf32("auto")
        self.assertEqual(n_tuned, 0)
        self.assertEqual(r.err.count("tuned plans cannot be saved"), 1, r.err)
        _, n_tuned, _ = self.train_tf32("on", "train.autotune=on")
        self.assertGreater(n_tuned, 4)

    def test_not_deterministic(self):
        """Some engines of the stand-in add in another order each time. They are used only if that is allowed."""
        names = read_text(self.caches_after("train.deterministic=false"))
        self.assertRegex(names, r"\tany any \d+ filter ")
        self.assertNotIn("deterministic", names)

    def caches_after(self, *sets):
        self.train_tf32("run", *sets)
        path, = self.caches()
        return path


if __name__ == "__main__":
    main()
