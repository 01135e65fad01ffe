"""`ctrain runs`, `runs clean` and `compare`, with runs of the real program."""

import json
import os
import signal

from harness import NUMERIC, OK, USAGE, Case, main


class Runs(Case):
    def test_runs(self):
        """The parts share the runs."""
        self.train("log.every=10", "optim.lr=1000", run="runs/nan", expect=NUMERIC)
        self.assertTrue(os.path.exists(self.path("runs", "nan", "nan.json")))
        if "onednn" in self.run_ctrain("info").out.split("ref")[0]:
            self.assertTrue(os.path.exists(self.path("runs", "nan", "plan.txt")))
        for name, sets in (("a", ()), ("same", ()), ("group/fast", ("optim.lr=0.1", "train.epochs=3"))):
            self.train("log.every=10", *sets, run=f"runs/{name}")
        self.train("model.weights=none.safetensors", run="runs/bad", expect=3)
        self.write("runs/notes/readme.txt", "mine")
        self.listed()
        self.compared()
        self.states()
        self.cleaned()

    def runs(self, *args, **more):
        return self.run_ctrain("runs", *args, **more)

    def names(self, *args):
        return [r["name"] for r in json.loads(self.runs("--json", *args).out)]

    def running(self, run):
        """A run that has begun to train and then stops at a failpoint."""
        p = self.start_training("train.epochs=1000", run=run, env={"CTRAIN_FAILPOINT": "step:30@1=stop"})
        self.until_stopped(1, p)
        return p

    def listed(self):
        out = self.runs().out
        self.assertRegex(out, r"(?m)^name +state +best top1 +epochs +time +images/s +differs in$")
        self.assertRegex(out, r"(?m)^a +done +0\.\d{4} +2/2 .* optim\.lr=0\.05 train\.epochs=2$")
        self.assertRegex(out, r"(?m)^group/fast +done .* 3/3 .* optim\.lr=0\.1 train\.epochs=3$")
        self.assertRegex(out, r"(?m)^bad +failed ")
        self.assertNotIn("notes", out)
        self.assertNotIn("\x1b", out)
        self.assertIn("\x1b[32mdone\x1b[0m", self.runs(env={"FORCE_COLOR": "1"}).out)
        self.assertEqual(self.names(), ["a", "bad", "group/fast", "nan", "same"])
        self.assertEqual(self.names("--filter", "state=done,lr<0.1", "--sort", "-name"), ["same", "a"])
        self.assertEqual(self.names("--sort", "started")[0], "group/fast")
        r = self.runs("--filter", "nonsense", expect=USAGE)
        self.assert_says(r, "not a condition", "hint:.*state=done")
        r = self.runs("nowhere", expect=3)
        self.assert_says(r, "nowhere")
        self.assertEqual(self.runs("runs/notes").out, "no runs\n")
        self.train("train.max_steps=5", run="runs2/short")
        self.assertRegex(self.runs("runs2").out, r"(?m)^short +done .* 5/5 steps ")
        one = json.loads(self.runs("runs/a", "--json").out)[0]
        end = self.metrics("runs/a", "end")[0]
        self.assertEqual((one["best_top1"], one["step"], one["total_epochs"]), (end["best_top1"], 42, 2))

    def compared(self):
        r = self.run_ctrain("compare", "runs/a", "runs/same")
        self.assertIn("The configs are the same.", r.out)
        self.assertRegex(r.out, r"weights +(\w{12}) +\1 +the same")
        r = self.run_ctrain("compare", "runs/a", "runs/group/fast", expect=1)
        self.assertRegex(r.out, r"(?m)^optim\.lr +0\.05 +0\.1$")
        self.assertRegex(r.out, r"(?m)^epochs +2 +3 +\+1$")
        self.assertEqual(r.err, "")
        j = json.loads(self.run_ctrain("compare", "--json", "runs/a", "runs/group/fast", expect=1).out)
        self.assertEqual((j["same_config"], j["runs"][1]["differs"]), (False, {"optim.lr": "0.1", "train.epochs": "3"}))
        self.assert_says(self.run_ctrain("compare", "runs/a", "runs/notes", expect=3), "runs/notes is not a run directory")

    def state(self, name):
        return {r["name"]: r["state"] for r in json.loads(self.runs("--json").out)}[name]

    def states(self):
        p = self.running("runs/live")
        self.assertEqual(self.state("live"), "running")
        os.kill(p.pid, signal.SIGKILL)
        self.until(lambda: not self.marked(), "the run was gone", None)
        p.wait()
        self.assertEqual(self.state("live"), "lost")

    def cleaned(self):
        p = self.running("runs/busy")
        before = self.names()
        r = self.runs("clean", expect=USAGE)
        self.assert_says(r, "nothing was removed", "--yes")
        r = self.runs("clean", "--dry-run")
        for name in ("bad", "nan"):
            self.assertIn(f"runs/{name}: failed before its first checkpoint", r.out)
        self.assertIn("runs/a/checkpoints/step-000000000021: neither the last nor the best", r.out)
        self.assertNotIn("busy", r.out)
        self.assertEqual(self.names(), before)
        r = self.runs("clean", "--yes")
        self.assertRegex(r.out, r"(?m)^removed \d items")
        self.assertEqual(self.names(), [n for n in before if n not in ("bad", "nan", "live" if "runs/live:" in r.out else "")])
        self.assertTrue(os.path.exists(self.path("runs", "notes", "readme.txt")))
        self.assert_checkpoints_whole("runs/group/fast")
        self.assertEqual(self.train("log.every=10", "optim.lr=0.1", "train.epochs=3", run="runs/group/fast").code, OK)
        self.assertEqual(self.runs("clean", "--yes").out, "nothing to remove\n")
        os.kill(p.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
