"""Weights between torchvision and ctrain, both ways. Needs a Python with torchvision: that of $CTRAIN_PYTORCH, or python3."""

import os
import subprocess
import sys
import unittest

from harness import DATA, SOURCE, Case, main

PEER = os.path.join(SOURCE, "tests", "e2e", "torchvision_peer.py")
# The rate is too small to change a weight: what was loaded is saved.
STILL = """\
model: {name: resnet18, stem: imagenet}
data: {name: synthetic, n_train: 8, shape: [3, 32, 32], classes: 10, val: none}
batch: {per_rank: 4}
optim: {lr: 1e-30, momentum: 0}
train: {max_steps: 1}
launch: {procs: 2, threads: 1}
"""


def find_python():
    for python in (os.environ.get("CTRAIN_PYTORCH", ""), sys.executable, "python3", "/usr/bin/python3"):
        if python and subprocess.run([python, "-c", "import torchvision"], capture_output=True).returncode == 0:
            return python
    return None


PYTHON = find_python()


@unittest.skipUnless(PYTHON, "no Python with torchvision (CTRAIN_PYTORCH names one)")
class Torchvision(Case):
    def peer(self, *words):
        r = subprocess.run([PYTHON, PEER, *map(str, words)], capture_output=True, text=True, timeout=300)
        self.assertEqual(r.returncode, 0, r.stderr)

    def round_trip(self, kind):
        theirs, config = self.path(f"{kind}.safetensors"), self.config(STILL)
        self.peer("save", "resnet18", 10, kind, theirs)
        self.train(f"model.weights={theirs}", run=kind, config=config)
        self.peer("load", "resnet18", 10, theirs, self.path(kind, "checkpoints", "last", "model.safetensors"))
        return theirs, config

    def test_both_ways(self):
        theirs, config = self.round_trip("F32")
        # Our own checkpoints are weights as well, and a resumed run has no need of the file.
        self.train(f"model.weights={self.path('F32')}", run="again", config=config)
        self.peer("load", "resnet18", 10, theirs, self.path("again", "checkpoints", "last", "model.safetensors"))
        os.unlink(theirs)
        self.train(f"model.weights={theirs}", "train.max_steps=2", run="F32", config=config)

    def test_half(self):
        self.round_trip("F16")

    def test_averages(self):
        """What `ckpt export` writes is a state_dict as well. With a decay of a half the average of equal weights is not rounded."""
        theirs, config, ours = self.path("theirs.safetensors"), self.config(STILL), self.path("ours.safetensors")
        self.peer("save", "resnet18", 10, "F32", theirs)
        self.train(f"model.weights={theirs}", "train.ema=0.5", config=config)
        self.assertIn("EMA weights", self.run_ctrain("ckpt", "export", self.path("run"), "--out", ours).out)
        self.peer("load", "resnet18", 10, theirs, ours)

    def test_new_head(self):
        theirs, config = self.path("thousand.safetensors"), self.config(STILL)
        self.peer("save", "resnet18", 1000, "F32", theirs)
        r = self.train(f"model.weights={theirs}", run="strict", config=config, expect=DATA)
        self.assert_says(r, r"fc\.weight is \[1000,512\], but the model's is \[10,512\]", r"model\.strict=false .*new head \(fc\)")
        self.train(f"model.weights={theirs}", "model.strict=false", run="head", config=config)
        log = open(self.path("head", "log", "rank-00000.log")).read()
        self.assertRegex(log, r"100 of the model's 102 tensors were loaded from .*thousand\.safetensors")


if __name__ == "__main__":
    main()
