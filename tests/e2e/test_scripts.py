"""scripts/get_mnist.sh and scripts/get_cifar.sh against servers on this machine: whole, interrupted, damaged and absent downloads; scripts/sum_tests.py."""

import functools
import hashlib
import http.server
import io
import os
import random
import re
import shutil
import socket
import sys
import tarfile
import threading
import unittest

from harness import CTRAIN, OK, SOURCE, Case, Process, main, shared

MNIST = shared("data", "mnist")
FASHION = shared("data", "fashion-mnist")
FILES = [f"{split}-{what}-ubyte.gz" for split in ("train", "t10k") for what in ("images-idx3", "labels-idx1")]
IMAGES = FILES[0]
HALF = 1 << 20


def read(path):
    with open(path, "rb") as f:
        return f.read()


class Plain(http.server.SimpleHTTPRequestHandler):
    """What `python3 -m http.server` does: no ranges. Notes what is asked for."""

    def do_GET(self):
        self.server.asked.append((os.path.basename(self.path), self.headers.get("Range")))
        try:
            super().do_GET()
        except ConnectionError:
            pass  # it hung up: it had asked for a range

    def log_message(self, *args):
        pass


class Ranges(Plain):
    """Ranges `bytes=N-`; sends no more than `server.cut` bytes of a file when that is set, whatever it has announced."""

    def do_GET(self):
        name, asked = os.path.basename(self.path), self.headers.get("Range")
        self.server.asked.append((name, asked))
        data = read(os.path.join(self.directory, name))
        first = int(asked[len("bytes="):].rstrip("-")) if asked else 0
        if first >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(data) - first))
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        self.wfile.write(data[first:first + (self.server.cut or len(data))])


class GetMnist(Case):
    def setUp(self):
        super().setUp()
        if not shutil.which("curl"):
            self.skipTest("curl is not installed")

    def serve(self, folder, handler=Ranges, cut=0):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=folder))
        server.asked, server.cut = [], cut
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        return server

    def get(self, *mirrors, expect=OK, args=()):
        argv = ["bash", os.path.join(SOURCE, "scripts", "get_mnist.sh"), *args, self.path("mnist")]
        env = self.env({"CTRAIN_MNIST_MIRROR": " ".join(mirrors), "no_proxy": "127.0.0.1"})
        r = Process(self, argv, env, self.tmp).wait(60)
        self.assert_code(r, expect)
        return r

    def left_half(self, data):
        return self.write(f"mnist/{IMAGES}.part", data)

    def assert_whole(self, source=MNIST):
        self.assertEqual(sorted(os.listdir(self.path("mnist"))), sorted(FILES))
        for name in FILES:
            self.assertEqual(read(self.path("mnist", name)), read(os.path.join(source, name)), name)

    @staticmethod
    def closed_port():
        """A URL at which no server listens."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return f"http://127.0.0.1:{s.getsockname()[1]}"


class GetCifar(GetMnist):
    """scripts/get_cifar.sh, with the checksums of small files instead of those of CIFAR-10."""

    NAMES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]

    def setUp(self):
        super().setUp()
        rng = random.Random(1)
        self.files = {name: rng.randbytes(40000) for name in self.NAMES}
        os.makedirs(self.path("www"))
        with tarfile.open(self.path("www", "cifar-10-binary.tar.gz"), "w:gz") as tar:
            for name, data in {**self.files, "batches.meta.txt": b"airplane\n"}.items():
                info = tarfile.TarInfo("cifar-10-batches-bin/" + name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        text = read(os.path.join(SOURCE, "scripts", "get_cifar.sh")).decode()
        sums = re.findall(r"\b[0-9a-f]{64}(?=  (\w+\.bin))", text)
        self.assertEqual(sums, self.NAMES)
        for name, data in self.files.items():
            text = re.sub(rf"\b[0-9a-f]{{64}}(?=  {name})", hashlib.sha256(data).hexdigest(), text)
        self.write("get_cifar.sh", text)

    def cifar(self, *mirrors, expect=OK):
        env = self.env({"CTRAIN_CIFAR_MIRROR": " ".join(mirrors), "no_proxy": "127.0.0.1"})
        r = Process(self, ["bash", self.path("get_cifar.sh"), self.path("cifar")], env, self.tmp).wait(60)
        self.assert_code(r, expect)
        return r

    def assert_cifar(self):
        self.assertEqual(sorted(os.listdir(self.path("cifar"))), sorted([*self.NAMES, "batches.meta.txt"]))
        for name, data in self.files.items():
            self.assertEqual(read(self.path("cifar", name)), data)

    def test_cifar(self):
        server = self.serve(self.path("www"))
        self.assertIn("is complete", self.cifar(self.closed_port(), server.url).out)
        self.assert_cifar()
        server.asked.clear()
        self.cifar(server.url)
        self.assertEqual(server.asked, [])

    def test_cifar_resumed(self):
        r = self.cifar(self.serve(self.path("www"), cut=90000).url, expect=1)
        self.assert_says(r, "offline", "CTRAIN_CIFAR_MIRROR")
        self.assertFalse(os.path.exists(self.path("cifar", "test_batch.bin")))
        self.assertGreaterEqual(len(read(self.path("cifar", "cifar-10-binary.tar.gz.part"))), 90000)
        server = self.serve(self.path("www"))
        self.cifar(server.url)
        self.assertTrue(server.asked[0][1], "the download was not resumed")
        self.assert_cifar()

    def test_cifar_damaged(self):
        """A part of another file is replaced; an archive with other contents is refused."""
        os.makedirs(self.path("cifar"))
        self.write("cifar/cifar-10-binary.tar.gz.part", b"x" * 1000)
        self.cifar(self.serve(self.path("www")).url)
        self.assert_cifar()
        self.write("cifar/data_batch_3.bin", b"?" + self.files["data_batch_3.bin"][1:])
        self.write("get_cifar.sh", read(self.path("get_cifar.sh")).decode().replace(
            hashlib.sha256(self.files["data_batch_3.bin"]).hexdigest(), hashlib.sha256(b"another").hexdigest()))
        self.assert_says(self.cifar(self.serve(self.path("www")).url, expect=1), "right contents")


@unittest.skipUnless(MNIST and FASHION, "no ../shared/data/mnist and fashion-mnist (CTRAIN_SHARED)")
class Real(GetMnist):
    def test_whole(self):
        server = self.serve(MNIST, Plain)
        r = self.get(server.url)
        self.assertIn("is complete", r.out)
        self.assert_whole()
        server.asked.clear()
        self.get(server.url)
        self.assertEqual(server.asked, [], "what is there and right was asked for again")

    def test_fashion(self):
        self.get(self.serve(FASHION, Plain).url, args=["--fashion"])
        self.assert_whole(FASHION)

    def test_program_reads_it(self):
        self.get(self.serve(MNIST, Plain).url)
        config = self.config("model: {name: mlp, hidden: [8]}\ndata: {name: mnist}\nbatch: {global: 60}\ntrain: {max_steps: 2, epochs: 1}\n"
                             "launch: {procs: 1}\n", "mnist.yaml")
        self.train(f"data.dir={self.path('mnist')}", "data.val=t10k", config=config)

    def test_damaged_file_is_replaced(self):
        for name in FILES:
            self.write(f"mnist/{name}", read(os.path.join(MNIST, name)))
        with open(self.path("mnist", IMAGES), "r+b") as f:
            f.seek(HALF)
            f.write(b"?")
        server = self.serve(MNIST)
        self.get(server.url)
        self.assertEqual(server.asked, [(IMAGES, None)])
        self.assert_whole()

    def test_interrupted_then_resumed(self):
        whole = read(os.path.join(MNIST, IMAGES))
        cut = self.serve(MNIST, cut=HALF)
        r = self.get(cut.url, expect=1)
        self.assert_says(r, IMAGES, "offline", "CTRAIN_MNIST_MIRROR")
        self.assertFalse(os.path.exists(self.path("mnist", IMAGES)), "half a file under the final name")
        part = read(self.path("mnist", IMAGES + ".part"))
        self.assertGreaterEqual(len(part), HALF)
        self.assertEqual(part, whole[:len(part)])
        server = self.serve(MNIST)
        self.get(server.url)
        self.assertEqual(server.asked[0], (IMAGES, f"bytes={len(part)}-"))
        self.assertEqual(len(server.asked), 4)
        self.assert_whole()

    def test_resume_where_the_server_has_no_ranges(self):
        self.left_half(read(os.path.join(MNIST, IMAGES))[:HALF])
        self.get(self.serve(MNIST, Plain).url)
        self.assert_whole()

    def test_half_of_another_file(self):
        self.left_half(b"\0" * HALF)
        self.get(self.serve(MNIST).url)
        self.assert_whole()

    def test_half_that_is_too_long(self):
        self.left_half(read(os.path.join(MNIST, IMAGES)) + b"\0")
        self.get(self.serve(MNIST).url)
        self.assert_whole()

    def test_half_that_is_whole(self):
        self.left_half(read(os.path.join(MNIST, IMAGES)))
        server = self.serve(MNIST)
        self.get(server.url)
        self.assertNotIn(IMAGES, [name for name, _ in server.asked])
        self.assert_whole()

    def test_next_mirror(self):
        """One refuses, one gives other bytes, one is right."""
        for name in FILES:
            self.write(f"wrong/{name}", b"not MNIST")
        self.get(self.closed_port(), self.serve(self.path("wrong")).url, self.serve(MNIST).url)
        self.assert_whole()


class Unavailable(GetMnist):
    def test_wrong_checksum(self):
        for name in FILES:
            self.write(f"wrong/{name}", b"<html>please log in</html>")
        r = self.get(self.serve(self.path("wrong")).url, expect=1)
        self.assert_says(r, f"{IMAGES} has a wrong checksum")
        self.assertEqual(os.listdir(self.path("mnist")), [])

    def test_not_found(self):
        os.makedirs(self.path("empty"))
        r = self.get(self.serve(self.path("empty"), Plain).url, expect=1)
        self.assert_says(r, f"cannot download .*{IMAGES}", "404")

    def test_offline(self):
        half = self.left_half(b"half")
        r = self.get(self.closed_port(), expect=1)
        self.assert_says(r, "offline", f"put the four files into {self.path('mnist')}", f"ctrain data digits --out {self.path('mnist')}")
        self.assertEqual(read(half), b"half", "what was there is not lost by being offline")

    def test_unknown_option(self):
        r = self.get(self.closed_port(), args=["--fashoin"], expect=2)
        self.assert_says(r, "--fashoin", "--fashion")


JUNIT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="(empty)">
  <testcase name="fine" status="run"><system-out>[ RUN      ] a
[       OK ] a
[ RUN      ] b
skipped: no such device
[  SKIPPED ] b
[  SKIPPED ] 1 test(s), listed below:
[  SKIPPED ] b
</system-out></testcase>
  <testcase name="broken" status="fail"><failure message=""/><system-out/></testcase>
  <testcase name="absent" status="notrun"><skipped message="Unable to find executable"/><system-out/></testcase>
  <testcase name="e2e" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>SKIPPED m.C.test_x: no data
SKIPPED m.C.test_y: no root
SKIPPED m.C.test_z: no data
</system-out></testcase>
  <testcase name="quiet" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>needs root
</system-out></testcase>
</testsuite>
"""


class Sum(Case):
    def sum(self, *files, expect):
        r = Process(self, [sys.executable, os.path.join(SOURCE, "scripts", "sum_tests.py"), *files], self.env(), self.tmp).wait(20)
        self.assert_code(r, expect)
        return r.out.splitlines()

    def test_counts(self):
        lines = self.sum(self.write("one.xml", JUNIT), self.write("fuzz.txt", "passed idx\nskipped yaml: no clang\n"), expect=1)
        self.assertEqual(lines, [
            "skipped one: fine b: no such device",
            "skipped one: e2e test_x, test_z: no data",
            "skipped one: e2e test_y: no root",
            "skipped one: quiet: needs root",
            "skipped fuzz: yaml: no clang",
            "FAILED  one: broken",
            "FAILED  one: absent",
            "2 passed, 2 failed, 6 skipped",
        ])

    def test_no_results_is_a_failure(self):
        self.assertEqual(self.sum("gone.xml", expect=1)[-1], "0 passed, 1 failed, 0 skipped")

    def test_a_skipped_case_needs_a_reason(self):
        junit = """<testsuite><testcase name="fine" status="run"><system-out>[ RUN      ] a
skipped: no such device
[  SKIPPED ] a
[ RUN      ] b
[  SKIPPED ] b
</system-out></testcase></testsuite>"""
        self.assertEqual(self.sum(self.write("one.xml", junit), expect=1), [
            "skipped one: fine a: no such device",
            "skipped one: fine b: no reason given",
            "FAILED  one: fine b: skipped without a reason",
            "1 passed, 1 failed, 2 skipped",
        ])

    def test_an_empty_reason_is_none(self):
        junit = """<testsuite><testcase name="quiet" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>starts
skipped: 
</system-out></testcase><testcase name="e2e" status="run"><system-out>SKIPPED m.C.test_x: 
</system-out></testcase></testsuite>"""
        lines = self.sum(self.write("one.xml", junit), self.write("fuzz.txt", "skipped idx\nskipped yaml: \n"), expect=1)
        self.assertEqual(lines, [
            "skipped one: quiet: no reason given",
            "skipped one: e2e test_x: no reason given",
            "skipped fuzz: idx: no reason given",
            "skipped fuzz: yaml: no reason given",
            "FAILED  one: quiet: skipped without a reason",
            "FAILED  one: e2e test_x: skipped without a reason",
            "FAILED  fuzz: idx: skipped without a reason",
            "FAILED  fuzz: yaml: skipped without a reason",
            "1 passed, 4 failed, 4 skipped",
        ])

    def test_subtests(self):
        """A test with skipped subtests is one skipped test."""
        code = """import harness
class C(harness.Case):
    def test_x(self):
        for i in range(2):
            with self.subTest(i=i):
                self.skipTest("no data")
    def test_y(self):
        pass
harness.main()
"""
        env = dict(self.env(), PYTHONPATH=os.path.join(SOURCE, "tests", "e2e"), CTRAIN_BIN=CTRAIN)
        r = Process(self, [sys.executable, self.write("test_m.py", code)], env, self.tmp).wait(20)
        self.assert_code(r, OK)
        self.assertIn("2 cases, 1 skipped, 0 failed", r.err)
        skipped = [line for line in r.err.splitlines() if line.startswith("SKIPPED ")]
        self.assertEqual(skipped, ["SKIPPED __main__.C.test_x: no data"])
        junit = f'<testsuite><testcase name="m" status="run"><system-out>{skipped[0]}</system-out></testcase></testsuite>'
        self.assertEqual(self.sum(self.write("one.xml", junit), expect=0)[-1], "1 passed, 0 failed, 1 skipped")

    def test_nothing_failed(self):
        self.assertEqual(self.sum(self.write("fuzz.txt", "passed idx\n"), expect=0), ["1 passed, 0 failed, 0 skipped"])


if __name__ == "__main__":
    main()
