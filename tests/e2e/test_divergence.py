"""Ranks that no longer have the same weights: the run ends, and the message names the rank and the parameter."""

import json
import os
import signal
import struct

from harness import OK, USAGE, Case, main

BN = """\
model: {name: resnet20, bn: sync}
data: {name: synthetic, n_train: 64, n_val: 16, shape: [3, 16, 16]}
batch: {global: 8}
optim: {lr: 0.05, momentum: 0.9}
train: {max_steps: 4, eval_every: 0}
launch: {procs: 2, threads: 1}
log: {every: 1}
"""


class Divergence(Case):
    def tensor(self, path, name):
        """The bytes of a tensor in a .safetensors file."""
        with open(path, "rb") as f:
            n, = struct.unpack("<Q", f.read(8))
            begin, end = json.loads(f.read(n))[name]["data_offsets"]
            f.seek(8 + n + begin)
            return f.read(end - begin)

    def flip(self, pid, values):
        """Changes the lowest bit of the first value, wherever the process has these values in its memory."""
        found = 0
        with open(f"/proc/{pid}/maps", encoding="ascii") as maps, open(f"/proc/{pid}/mem", "r+b", buffering=0) as mem:
            for line in maps:
                span, flags = line.split()[:2]
                begin, end = (int(x, 16) for x in span.split("-"))
                if not flags.startswith("rw") or "[v" in line:
                    continue
                mem.seek(begin)
                data = mem.read(end - begin)
                at = data.find(values)
                while at >= 0:
                    mem.seek(begin + at)
                    mem.write(bytes([values[0] ^ 1]))
                    found += 1
                    at = data.find(values, at + 1)
        self.assertGreater(found, 0, "the values are not in the memory of the process")

    def check(self, file, name, *says, procs=2, config=None, step=7):
        """Flips a bit on rank 1 after `step` steps. All ranks find it after the next step."""
        run = f"{name}-{procs}"
        sets = ("--procs", procs, "checkpoint.every_steps=0", "checkpoint.every_epochs=0")
        self.train(*sets, f"train.max_steps={step}", "train.eval_every=0", run=run + "-reference", config=config)
        values = self.tensor(self.path(run + "-reference", "checkpoints", "last", file), name)
        p = self.start_training(*sets, f"dist.check_weights={step + 1}", "train.eval_every=0", run=run, config=config,
                                env={"CTRAIN_FAILPOINT": f"step:{step}@1=stop"})
        pid = self.until_stopped(1, p)
        self.flip(pid, values)
        os.kill(pid, signal.SIGCONT)
        r = p.wait()
        self.assert_code(r, USAGE)
        self.assert_last_says(r, rf"after step {step + 1}: ", "all ranks agreed after step 0: continue from a checkpoint", *says)
        return pid

    def test_weights(self):
        """One bit of one rank. With two ranks, it is not known which of them is wrong."""
        pid = self.check("model.safetensors", "fc2.bias", r"rank 1 \(pid \d+ on \S+\) differs from rank 0 \(pid \d+ on \S+\) ",
                         r"the first difference is in weights of fc2.bias; 1 of 8 tensors differ")
        self.assertGreater(pid, 0)

    def test_three_ranks(self):
        self.check("model.safetensors", "fc2.bias", r"rank 1 \(pid \d+ on \S+\) differs from all other ranks after", "weights of fc2.bias; 1 of 8", procs=3)

    def test_optimizer_state(self):
        """The next update changes the weight of the same parameter, unless the change is lost by rounding."""
        self.check("optim.safetensors", "momentum_buffer/fc2.bias", r"(momentum_buffer|weights) of fc2.bias; [12] of 8 tensors differ")

    def test_running_statistics(self):
        config = self.config(BN, "bn.yaml")
        self.check("model.safetensors", "bn1.running_mean", r"running statistics of bn1.running_mean; 1 of \d+ tensors differ", config=config, step=2)

    def test_equal_ranks(self):
        """Ranks that have the same state are not refused, and the check changes nothing."""
        for name, text, sets in (("mlp", None, ("train.ema=0.9", "optim.clip_norm=1")), ("sync", BN, ()), ("local", BN, ("model.bn=local", "train.ema=0.9")),
                                 ("pipeline", BN, ("--procs", 4, "launch.pipeline=2", "train.accumulate=2"))):
            with self.subTest(name):
                config = self.config(text, f"{name}.yaml") if text else None
                for every in (0, 1):
                    self.train(*sets, f"dist.check_weights={every}", run=f"{name}-{every}", config=config, expect=OK)
                ends = [self.metrics(f"{name}-{every}", "end")[0]["weights_digest"] for every in (0, 1)]
                self.assertEqual(*ends)


if __name__ == "__main__":
    main()
