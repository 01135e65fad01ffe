"""The report after a failure: what each rank was doing, which one failed first and why, with native backtraces."""

import json
import os
import re
import signal
import uuid

from harness import BUG, COMM, DATA, NUMERIC, OK, SLOW, USAGE, Case, main, read_text

MEMORY = "/sys/fs/cgroup/memory"  # the memory controller of v1; v2: /sys/fs/cgroup

# In the backtrace of a rank that trains. A backtrace ends at code that oneDNN has generated, because that has no unwind information.
TRAINING = (r"^ +take_step\+0x|^ +ct_train\+0x|\(generated code\)$", r"^ +main\+0x|\(generated code\)$")


class Reports(Case):
    def report(self, run="run"):
        with open(self.path(run, "log", "postmortem.json"), encoding="utf-8") as f:
            return json.load(f)

    def text(self, run="run"):
        """The file, which is also what the command prints."""
        text = read_text(self.path(run, "log", "postmortem.txt"))
        self.assertEqual(self.run_ctrain("postmortem", self.path(run)).out, text)
        return text

    def assert_has(self, text, *patterns):
        for p in patterns:
            if not re.search(p, text, re.M | re.S):
                self.fail(f"the report does not match /{p}/:\n{text}")

    def section(self, text, rank):
        m = re.search(rf"^rank {rank}\b.*?(?=^rank |\Z)", text, re.M | re.S)
        self.assertIsNotNone(m, text)
        return m.group(0)

    def last_record(self, entry):
        return entry["communicators"][0]["records"][-1]

    def signal_stopped(self, rank, sig, *sets, point="step:7", **more):
        """Stops the rank at a point, sends it the signal, and lets it continue. Returns (Result, pid of the rank)."""
        p = self.start_training(*sets, env={"CTRAIN_FAILPOINT": f"{point}@{rank}=stop"}, **more)
        pid = self.until_stopped(rank, p)
        os.kill(pid, sig)
        if sig != signal.SIGKILL:
            os.kill(pid, signal.SIGCONT)
        return p.wait(), pid


class Report(Reports):
    def test_killed(self):
        """kill -9: the rank leaves nothing itself, but its page has its position."""
        r, pid = self.signal_stopped(1, signal.SIGKILL, "data.workers=1")
        self.assert_code(r, COMM)
        self.assertTrue(r.err.rstrip().endswith("run/log/postmortem.txt describes what each rank was doing"), r.err)
        j, text = self.report(), self.text()
        self.assertEqual((j["failure"]["rank"], j["failure"]["pid"]), (1, pid))
        killed, survivor = j["ranks"][1], j["ranks"][0]
        self.assertEqual((killed["pid"], killed["signal"], killed["out_of_memory"]), (pid, 9, False))
        self.assertEqual(killed["phase"], "training, step 6")
        self.assertEqual((self.last_record(killed)["step"], self.last_record(killed)["bucket"], self.last_record(killed)["state"]), (6, 0, "done"))
        self.assertEqual((survivor["exit_code"], self.last_record(survivor)["step"], self.last_record(survivor)["state"]), (COMM, 7, "posted"))
        self.assertEqual(self.last_record(survivor)["parameters"], "gradients of fc2.weight to fc1.bias")
        for e in (killed, survivor):
            self.assertEqual(len(e["loader"]), 1, e)
        self.assert_has(self.section(text, 1), rf"rank 1 \(pid {pid} on \S+\), which failed first, was killed by signal 9", "phase +training, step 6",
                        r"last +bucket 0 of step 6: allreduce .*gradients of fc2.weight to fc1.bias.*: done", r"loader +thread \d+ (waits for|loads|shuffles)")
        self.assert_has(self.section(text, 0), "ended with exit code 5", r"last +bucket 0 of step 7: .* not done, posted", "backtrace +of thread",
                        r"^ +ct_reducer_finish\+0x", r"^ +ct__loader_work\+0x", r"^ +main\+0x")
        # The next run of the directory is not confused by the report, and the report of the next failure replaces it.
        self.train()
        r, pid = self.signal_stopped(0, signal.SIGKILL, "train.epochs=3", point="step:2")
        self.assertEqual(self.report()["failure"]["pid"], pid)

    def test_crash(self):
        """SIGSEGV and SIGABRT: the backtrace of the rank that crashed, from its signal handler."""
        for sig in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS):
            with self.subTest(signal=sig):
                run = f"run-{sig}"
                r, pid = self.signal_stopped(1, sig, run=run)
                self.assert_code(r, BUG)
                e = self.report(run)["ranks"][1]
                self.assertEqual((e["pid"], e["signal"]), (pid, sig))
                if "Sanitizer" not in r.err:
                    self.assertEqual(e["stacks"]["reason"], f"signal {sig:d}")
                    self.assert_has(self.section(self.text(run), 1), "which failed first, was killed by signal", *TRAINING)

    def test_crash_of_one_rank(self):
        r, pid = self.signal_stopped(0, signal.SIGSEGV, "--procs", 1)
        self.assert_code(r, BUG)
        self.assertEqual((self.report()["failure"]["rank"], self.report()["ranks"][0]["pid"]), (0, pid))
        # Any thread may get the signal, and the others go on until its handler has ended.
        self.assert_has(self.text(), r"rank 0 \(pid \d+ on \S+\), which failed first, was killed by signal 11", r"phase +training, step \d+")

    def test_stopped(self):
        """SIGSTOP: the rank does not answer, so the launcher kills it; the report says that it was stopped."""
        p = self.start_training(f"dist.timeout={3 * SLOW:g}", env={"CTRAIN_FAILPOINT": "step:7@1=stop"})
        pid = self.until_stopped(1, p)
        r = p.wait()
        self.assert_code(r, COMM)
        e = self.report()["ranks"][1]
        self.assertEqual((e["pid"], e["state"], e["killed_by_launcher"], e["phase"]), (pid, "T", True, "training, step 6"))
        self.assert_has(self.section(self.text(), 1), "the launcher killed it; it was stopped", "bucket 0 of step 6: .*: done")

    def test_failure_of_training(self):
        """The ranks fail by themselves: no signal, and the message of each."""
        r = self.train("optim.lr=1000", expect=NUMERIC)
        self.assert_has(self.text(), "the loss is (nan|inf)", r"^rank 0 .*ended with exit code 6", r"^rank 1 .*ended with exit code 6")
        self.assert_last_says(r, "log/postmortem.txt describes")

    def test_no_report(self):
        """A mistake that is found before training needs no report; neither does a stop."""
        for sets, code in ((("data.name=idx", "data.dir=/nowhere"), DATA), (("optim.lr=-1",), USAGE)):
            r = self.train(*sets, expect=code)
            self.assertNotIn("postmortem", r.err)
        p = self.start_training("train.epochs=1000000", run="stopped")
        self.until_step(3, p, "stopped")
        p.signal(signal.SIGTERM)
        self.assertNotIn("postmortem", p.wait().err)
        self.assertFalse(os.path.exists(self.path("stopped", "log", "postmortem.json")))
        r = self.run_ctrain("postmortem", self.path("stopped"), expect=DATA)
        self.assert_last_says(r, "neither postmortem.json nor backtraces", "hint: a run that ends without a failure has no report")

    def test_damaged_report(self):
        """Reports are files that anyone may have changed."""
        r, _ = self.signal_stopped(1, signal.SIGKILL)
        whole = read_text(self.path("run", "log", "postmortem.json"))
        for text, code in (("{}", OK), ('{"ranks":[1,{},{"rank":"a","loader":3,"stacks":{"threads":[{},{"frames":[1]}]}}]}', OK), (whole[:len(whole) // 2], DATA), ("[]", OK)):
            self.write("run/log/postmortem.json", text)
            self.run_ctrain("postmortem", self.path("run"), expect=code)


class OutOfMemory(Reports):
    """The kernel kills a rank whose control group has no memory left."""

    def setUp(self):
        super().setUp()
        self.group = os.path.join(MEMORY, f"ctrain-{uuid.uuid4().hex}")
        try:
            os.mkdir(self.group)
        except OSError as e:
            self.skipTest(f"no control groups for memory here (v1): {e}")
        self.addCleanup(os.rmdir, self.group)
        with open(os.path.join(self.group, "memory.limit_in_bytes"), "w", encoding="ascii") as f:
            f.write(str(96 << 20))

    def test_limit(self):
        enter = ["sh", "-c", f'echo $$ > {self.group}/cgroup.procs; exec "$@"', "sh"]
        # Each rank takes some 600 MiB for the weights of 9M parameters, their gradients, momentum and checkpoint.
        r = self.train("model.hidden=[16384,8192]", prefix=enter, expect=COMM)
        self.assert_last_says(r, "signal 9", "memory ran out: the limit of its control group is 96.0 MiB")
        self.assert_has(self.text(), r"was killed by signal 9 \(Killed\) by the kernel, because memory ran out \(limit of the control group: 96.0 MiB\)")


class SeveralLaunchers(Reports):
    def test_two_nodes(self):
        """Each launcher adds its ranks; the last one completes the report."""
        port = self.free_port()
        args = ("--nodes", 2, "--master-addr", "127.0.0.1", "--master-port", port)
        env = {"CTRAIN_TOKEN": "test", "CTRAIN_FAILPOINT": "step:7@2=stop"}
        nodes = [self.start_training(*args, "--node-rank", k, env=env) for k in (0, 1)]
        pid = self.until_stopped(2, nodes[1])
        os.kill(pid, signal.SIGKILL)
        for p in nodes:
            self.assert_code(p.wait(), COMM)
        j = self.report()
        self.assertEqual([(e["rank"], e["node"]) for e in j["ranks"]], [(0, 0), (1, 0), (2, 1), (3, 1)])
        self.assertEqual((j["failure"]["rank"], j["failure"]["pid"]), (2, pid))
        self.assert_has(self.text(), "rank 2 .*which failed first, was killed by signal 9")

    def test_another_launcher(self):
        """torchrun and others: the ranks that live add themselves, and the command adds the backtraces of one that crashed."""
        for name in ("stacks-00002.txt", "stacks-00003.old"):  # of an attempt with more ranks, and of somebody else
            self.write(f"run/log/{name}", "reason signal 11\nthread 7 ctrain\nat 1234\n")
        port = self.free_port()
        both = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "CTRAIN_FAILPOINT": "step:7@1=stop"}
        ranks = [self.start_training(env={**both, "RANK": str(k), "LOCAL_RANK": str(k)}) for k in (0, 1)]
        pid = self.until_stopped(1, ranks[1])
        os.kill(pid, signal.SIGSEGV)
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(ranks[1].wait().code, -signal.SIGSEGV)
        r = ranks[0].wait()
        self.assert_code(r, COMM)
        self.assert_last_says(r, "log/postmortem.txt describes")
        self.assertEqual([e["rank"] for e in self.report()["ranks"]], [0])
        out = self.run_ctrain("postmortem", self.path("run")).out
        self.assert_has(out, r"^rank 0 .*message +.*rank 1 \(pid", r"^rank 1 ended\n")
        self.assert_has(self.section(out, 1), *TRAINING)
        j = json.loads(self.run_ctrain("postmortem", self.path("run"), "--json").out)
        self.assertEqual([e["rank"] for e in j["ranks"]], [0, 1])


if __name__ == "__main__":
    main()
