"""Several ranks on the device "cuda" with the communicator nccl, on the software GPU and the stand-in for NCCL."""

import json
import os
import re

import test_cuda_ranks as ranks
from harness import COMM, DEVICE, OK, USAGE, main, read_text


class Soft(ranks.Soft):
    always = (*ranks.Soft.always, "dist.backend=nccl")

    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(ranks.SOFT, "libnccl.so.2")):
            self.skipTest("built without NCCL's header")


class Ranks(ranks.Equality, Soft):
    def check_calls(self, calls):
        super().check_calls(calls)
        self.assertNotIn("call cudaLaunchHostFunc", calls)
        self.assertNotIn("call ncclMemAlloc", calls)
        self.assertNotIn("call ncclCommWindowRegister", calls)


class Windows(Soft):
    """Gradients in registered windows."""

    SETS = ("train.cuda_graph=on", "train.graph_steps=1", "train.epochs=1", "train.eval_every=0")

    def test_equals_plain_memory(self):
        log, env = self.path("calls"), {"SOFT_NCCL_VERSION": "23007"}
        plain = self.cuda(*self.SETS, run="plain", env=env)
        self.assertEqual(self.cuda(*self.SETS, "dist.nccl_windows=true", run="windows", env={**env, "SOFT_GPU_LOG": log}), plain)
        self.assertIn("call ncclCommWindowRegister", read_text(log))

    def test_versions_with_a_defect(self):
        for version, code in (("22707", OK), ("22806", USAGE), ("23006", USAGE)):
            with self.subTest(version=version):
                r = self.train("device=cuda", "--procs", 2, "dist.nccl_windows=true", *self.SETS, "train.max_steps=2", run=f"run{version}",
                               env=self.soft(2, env={"SOFT_NCCL_VERSION": version}), expect=code)
                if code != OK:
                    says = "wrong sums of small messages" if version == "22806" else "may read registered windows before"
                    self.assert_last_says(r, says, "dist.nccl_windows=false")

    def test_no_registration(self):
        """Rank 1 cannot allocate or register memory: both ranks end, and the hint names the switches."""
        for function, code in (("ncclMemAlloc", 1), ("ncclCommWindowRegister", 1), ("ncclCommWindowRegister", 2)):
            with self.subTest(function=function, code=code):
                world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.free_port())}
                running = [self.start_training("device=cuda", *self.always, *ranks.SMALL, "dist.nccl_windows=true", run=f"{function}{code}",
                                               env=self.soft(2, env={**world, "SOFT_NCCL_VERSION": "23007", "RANK": str(i), "LOCAL_RANK": str(i),
                                                                     **({"SOFT_GPU_FAULT": f"{function}:1:{code}"} if i == 1 else {})}))
                           for i in range(2)]
                results = [p.wait(30) for p in running]
                self.assert_code(results[1], DEVICE if code == 1 else COMM)
                self.assert_last_says(results[1], f"NCCL: {function}: unhandled", "dist.nccl_windows=false.*NCCL_WIN_ENABLE=0.*NCCL_CUMEM_ENABLE=0")
                self.assert_last_says(results[0], rf"rank 1 \(pid .*NCCL: {function}: unhandled", "dist.nccl_windows=false")
                self.assertEqual(results[0].err.count("dist.nccl_windows=false"), 1)

    def test_doctor(self):
        """It reports what the run would refuse."""
        for version, sets, found in (("22809", ["dist.nccl_windows=true"], True), ("22809", [], False), ("23007", ["dist.nccl_windows=true"], False)):
            with self.subTest(version=version, sets=sets):
                r = self.start("doctor", self.config(), f"run.dir={self.path('run')}", "device=cuda", "--procs", 2, "--json", *sets,
                               env=self.soft(2, env={"SOFT_NCCL_VERSION": version})).wait(60)
                findings = {f["check"]: f for f in json.loads(r.out)["findings"]}
                self.assertEqual("nccl-defect" in findings, found, findings)
                if found:
                    self.assert_code(r, USAGE)
                    self.assertIn("dist.nccl_windows=false", str(findings["nccl-defect"]))


class SelfCheck(Soft):
    """The sums of known values at the start of a run."""

    SETS = ("train.cuda_graph=on", "train.graph_steps=1", "train.epochs=1", "train.eval_every=0", "dist.bucket_mib=0.05")

    def checked(self, run):
        log = read_text(self.path(run, "log", "rank-00000.log"))
        return re.search(r"self check: the sums of (\d+) buckets? over (\d+) ranks are right in (\d+) posted and (\d+) recorded passes", log)

    def test_passes(self):
        for precision in ("fp32", "bf16"):
            with self.subTest(precision=precision):
                sets = (*self.SETS, f"precision={precision}")
                want = self.cuda(*sets, "train.self_check=off", run=f"{precision}-off")
                self.assertIsNone(self.checked(f"{precision}-off"))
                self.assertEqual(self.cuda(*sets, run=precision), want)
                n_buckets, ranks, posted, recorded = map(int, self.checked(precision).groups())
                self.assertGreater(n_buckets, 1)
                self.assertEqual((ranks, posted), (2, 2))
                self.assertGreaterEqual(recorded, 1)
        self.cuda(*self.SETS, "train.cuda_graph=off", run="posted")
        self.assertEqual(self.checked("posted")[4], "0")

    def test_wrong_sum(self):
        """A wrong result of an operation ends the run before the first step, whether it is posted or recorded."""
        p = self.start_training("device=cuda", "--procs", 2, *self.always, *self.SETS, run="right",
                                env=self.soft(2, env={"CTRAIN_FAILPOINT": "step:1@0"}))
        self.assert_code(p.wait(30), COMM)
        with open(self.path("right", "log", "flight-00001.json"), encoding="utf-8") as f:
            records = json.load(f)["communicators"][0]["records"]
        run = [r for r in records if r["op"] == "barrier" or r["count"] > 0]  # the others are no operations of NCCL
        sums = [n for n, r in enumerate(run, 1) if r["op"] == "allreduce" and "step" not in r]
        for n, how in ((sums[0], "posted pass 1 of 2"), (sums[-1], "recorded pass 1 of 1")):
            with self.subTest(n=n):
                r = self.train("device=cuda", "--procs", 2, *self.SETS, run=f"run{n}", env=self.soft(2, env={"SOFT_NCCL_FAULT": f"wrong@1:{n}"}),
                               expect=COMM)
                self.assert_last_says(r, "the self check found a wrong sum: .* instead of .* on rank 1, in " + how,
                                      "dist.nccl_windows=false, train.cuda_graph=off.*NCCL_NVLS_ENABLE=0")
                self.assertEqual(self.metrics(f"run{n}", "step"), [])

    def test_wrong_sum_later(self):
        """An element that is compared only after the last pass; and a recorded pass that is not the first."""
        self.check_wrong("wrong@1:6:30", "element [0-9]+ of bucket 0 .* in posted pass 2 of 2", "model.hidden=[256]", "dist.bucket_mib=25",
                         "dist.first_bucket_mib=25")
        self.cuda(*self.SETS, "train.self_check=on", "dist.bucket_mib=25", "dist.first_bucket_mib=25", run="all")
        self.assertEqual(self.checked("all")[4], "100")
        self.check_wrong("wrong@1:13", "in recorded pass [2-9] of 100", "train.self_check=on", "dist.bucket_mib=25", "dist.first_bucket_mib=25")

    def test_windows_that_are_read_early(self):
        """The defect of NCCL 2.28 to 2.30.6, in a version that is not in the table of defects. The ranks agree, and only the check finds it."""
        sets, fault = (*self.SETS, "batch.global=8", "data.n_train=95"), {"SOFT_NCCL_FAULT": "early@0,early@1"}
        windows = (*sets, "dist.nccl_windows=true")
        right = self.cuda(*windows, "train.self_check=off", run="right", env={"SOFT_NCCL_VERSION": "23007"})
        wrong = self.cuda(*windows, "train.self_check=off", run="silent", env={"SOFT_NCCL_VERSION": "23007", **fault})
        self.assertNotEqual(wrong, right)
        for version, code, says in (("23007", COMM, "the self check found a wrong sum: .* in recorded pass [0-9]+ of 100"),
                                    ("22809", USAGE, "NCCL 2.28.9 may read registered windows before the gradients in them are complete")):
            r = self.train("device=cuda", "--procs", 2, *windows, "train.self_check=on", run=version, env=self.soft(2, env={"SOFT_NCCL_VERSION": version, **fault}),
                           expect=code)
            self.assert_last_says(r, says, "dist.nccl_windows=false")
        self.assertEqual(self.cuda(*sets, "train.self_check=on", run="plain", env={"SOFT_NCCL_VERSION": "23007", **fault}), right)
        for rank in range(2):
            self.assertIn("self check: the recording of step", read_text(self.path("plain", "log", f"rank-0000{rank}.log")))

    def check_wrong(self, fault, message, *sets):
        r = self.train("device=cuda", "--procs", 2, *self.SETS, *sets, run="wrong", env=self.soft(2, env={"SOFT_NCCL_FAULT": fault}), expect=COMM)
        self.assert_last_says(r, "the self check found a wrong sum: .*" + message)


class Variables(Soft):
    """What ctrain sets for NCCL, unless the user has set it."""

    def test_variables(self):
        cases = (((), {}, (None, "0", "0")), (("train.deterministic=false",), {}, (None, None, None)), (("model.bn=sync",), {}, ("1", "0", "0")),
                 (("model.bn=sync",), {"NCCL_NVLS_ENABLE": "1", "NCCL_LAUNCH_ORDER_IMPLICIT": "0", "NCCL_GRAPH_REGISTER": "1"}, ("0", "1", "1")))
        for i, (sets, env, want) in enumerate(cases):
            with self.subTest(sets=sets):
                self.train("device=cuda", "--procs", 2, "train.max_steps=1", "train.eval_every=0", *sets, run=f"run{i}",
                           env=self.soft(2, env={"NCCL_DEBUG": "INFO", **env}))
                log = read_text(self.path(f"run{i}", "log", "rank-00000.log"))
                found = [re.search(rf"{name} set by environment to (\d)", log)
                         for name in ("NCCL_LAUNCH_ORDER_IMPLICIT", "NCCL_NVLS_ENABLE", "NCCL_GRAPH_REGISTER")]
                self.assertEqual(tuple(m and m[1] for m in found), want)


class Numbers(Soft):
    def records(self, run, rank):
        """What the rank has posted, by the number of the collective."""
        with open(self.path(run, "log", f"flight-{rank:05d}.json"), encoding="utf-8") as f:
            records = json.load(f)["communicators"][0]["records"]
        self.assertEqual([r["collective"] for r in records], list(range(1, len(records) + 1)))
        return [(r["op"], r["count"], r.get("bucket"), r.get("step", -1)) for r in records]

    def test_recorded_collectives_are_counted(self):
        """In the last step of an epoch, two ranks have all their rows. The third compiles a program, but all record their steps again."""
        sets = ("train.cuda_graph=on", "train.graph_steps=1", "train.epochs=3", "train.eval_every=0", "batch.global=12", "data.n_train=143")
        p = self.start_training("device=cuda", "--procs", 3, *self.always, *sets, env=self.soft(3, env={"CTRAIN_FAILPOINT": "step:30@0"}))
        self.assert_code(p.wait(30), COMM)
        one, two = self.records("run", 1), self.records("run", 2)
        n = min(len(one), len(two))
        self.assertGreaterEqual(one[n - 1][3], 29)  # the recordings that were posted again are among them
        self.assertEqual(one[:n], two[:n])


class Recording(Soft):
    """The ranks record together, or not at all: the stand-in for NCCL compares for each collective in which capture it is."""

    SETS = ("train.graph_steps=1", "train.epochs=3", "train.eval_every=0", "train.self_check=off", "batch.global=8", "data.n_train=95")

    def each(self, *sets, envs, run, expect=(OK, OK)):
        """Returns the digest, and the warnings of each rank."""
        for p, code in zip(self.start_each(*self.SETS, *sets, envs=envs, run=run), expect):
            self.assert_code(p.wait(30), code)
        logs = [read_text(self.path(run, "log", f"rank-0000{i}.log")) for i in range(2)]
        return self.digest(run), [re.findall(r"warn \S+ train: (.*)", log) for log in logs]

    def calls_of(self, run, *sets, **env):
        log = self.path(f"calls-{run}")
        self.each(*sets, envs=({}, {"SOFT_GPU_LOG": log, **env}), run=run)
        return re.findall(r"^call (\w+)", read_text(log), re.M)

    def test_smaller_step(self):
        """In the last step of an epoch, only rank 1 has fewer rows. The first such step drops the recordings of both ranks."""
        logs = [self.path(f"log{i}") for i in range(2)]
        want, _ = self.each("train.cuda_graph=off", envs=({}, {}), run="plain")
        got, warnings = self.each(envs=[{"SOFT_GPU_LOG": log} for log in logs], run="recorded")
        self.assertEqual(got, want)
        self.assertEqual(warnings, [[], []])
        for log in logs:
            calls = read_text(log)
            self.assertEqual((calls.count("call cudaGraphInstantiate"), calls.count("call cudaGraphLaunch")), (6, 24))

    def test_one_rank_that_cannot_record(self):
        """The other ranks do not post their recordings."""
        want, _ = self.each("train.cuda_graph=off", envs=({}, {}), run="plain")
        calls = self.calls_of("calls")
        begin, end = calls.index("cudaStreamBeginCapture"), calls.index("cudaStreamEndCapture")
        before, until = calls[:begin].count("cudaLaunchKernel"), calls[:end].count("cudaLaunchKernel")
        self.assertGreater(until, before + 2)
        for i, fault in enumerate(("cudaStreamBeginCapture:1:900", f"cudaLaunchKernel:{before + 1}:900", f"cudaLaunchKernel:{until}:2",
                                   "cudaStreamEndCapture:1:901", "cudaGraphInstantiate:1:2")):
            with self.subTest(fault=fault):
                log, env = self.path(f"log{i}"), {"SOFT_GPU_FAULT": fault}
                digest, warnings = self.each(envs=({"SOFT_GPU_LOG": log}, env), run=f"run{i}")
                self.assertEqual(digest, want)
                self.assertNotIn("call cudaGraphLaunch", read_text(log))
                self.assertEqual([len(w) for w in warnings], [1, 1], warnings)
                self.assertIn("without recorded steps (train.cuda_graph), because another rank cannot record them", warnings[0][0])
                self.assertRegex(warnings[1][0], "because this rank cannot record them: .*CUDA: " + fault.split(":")[0])

    def test_one_rank_that_cannot_compare(self):
        """It lacks the memory to compare a recorded step, so no rank compares."""
        check = ("train.self_check=on", "log.level=info")
        want, _ = self.each("train.self_check=off", envs=({}, {}), run="unchecked")
        # Captured are the sums of the self check, and then each group.
        until_second_group = " ".join(self.calls_of("calls", *check)).split("cudaStreamBeginCapture")[:3]
        fault = {"SOFT_GPU_FAULT": f"cudaHostAlloc:{' '.join(until_second_group).count('cudaHostAlloc')}:2"}
        for name, env, said in (("compared", {}, "the recording of step"), ("not", fault, "no recorded step is compared .* because a rank has")):
            digest, warnings = self.each(*check, envs=({}, env), run=name)
            self.assertEqual((digest, warnings), (want, [[], []]))
            for i in range(2):
                found = re.findall(r"self check: (the recording of step|no recorded.*)", read_text(self.path(name, "log", f"rank-0000{i}.log")))
                self.assertEqual(len(found), 1, found)
                self.assertRegex(found[0], said)

    def test_rules_of_nccl(self):
        """Two communicators need NCCL's order of launches, and recorded steps between others its support for both."""
        sync = ("model.name=layers", ranks.NET, "model.bn=sync")
        cases = ((("NCCL_LAUNCH_ORDER_IMPLICIT", "0"), (), True), (("NCCL_LAUNCH_ORDER_IMPLICIT", "0"), sync, False), (("NCCL_DEBUG", "WARN"), sync, True),
                 (("NCCL_GRAPH_MIXING_SUPPORT", "0"), (), False))
        for i, ((name, value), sets, recorded) in enumerate(cases):
            with self.subTest(name=name, sets=sets):
                log = self.path(f"log{i}")
                _, warnings = self.each(*sets, "train.self_check=auto", envs=({"SOFT_GPU_LOG": log}, {name: value}), run=f"run{i}")
                # Without its peers, a rank must not even capture.
                self.assertEqual([call in read_text(log) for call in ("call cudaStreamBeginCapture", "call cudaGraphLaunch")], [recorded] * 2)
                warnings = [[w for w in of if "recorded steps" in w] for of in warnings]
                self.assertEqual([len(w) for w in warnings], [0, 0] if recorded else [1, 1], warnings)
                self.assertTrue(recorded or warnings[1][0].endswith(f"NCCL may wait forever in recorded steps with {name}=0"), warnings)
        r = self.train("device=cuda", "--procs", 2, *self.SETS, "train.cuda_graph=on", env=self.soft(2, env={"NCCL_GRAPH_MIXING_SUPPORT": "0"}),
                       run="on", expect=USAGE)
        self.assert_last_says(r, "train.cuda_graph=on: NCCL may wait forever in recorded steps with NCCL_GRAPH_MIXING_SUPPORT=0", "train.cuda_graph=auto")

    def test_option_on(self):
        processes = self.start_each(*self.SETS, "train.cuda_graph=on", envs=({}, {"SOFT_GPU_FAULT": "cudaGraphInstantiate:1:2"}))
        results = [p.wait(30) for p in processes]
        self.assertNotEqual(results[0].code, OK)
        self.assert_last_says(results[0], "rank 1 .*recording step 3: CUDA: cudaGraphInstantiate")
        self.assert_last_says(results[1], "recording step 3: CUDA: cudaGraphInstantiate: cudaErrorMemoryAllocation", "train.cuda_graph=off")


class Alone(Soft):
    """One rank with NCCL, as the gate measures it."""

    def test_row_33_equals_self(self):
        sets = ("train.cuda_graph=on", "train.graph_steps=1")
        want = self.cuda(*sets, procs=1, run="self")
        self.assertEqual(self.metrics("self", "run")[-1]["backend"], "self")
        log = self.path("calls")
        got = self.cuda(*sets, procs=1, run="nccl", env={"CTRAIN_NCCL_ALONE": "1", "SOFT_GPU_LOG": log})
        self.assertEqual(self.metrics("nccl", "run")[-1]["backend"], "nccl")
        self.assertEqual(got, want)
        self.assertIn("call ncclAllReduce", read_text(log))


class Auto(Soft):
    always = (*ranks.Soft.always, "dist.backend=auto")

    def backends(self, run):
        return {m["backend"] for m in self.metrics(run, "run")}

    def test_nccl_if_possible(self):
        want = self.cuda(run="run")
        self.assertEqual(self.backends("run"), {"nccl"})
        self.assertEqual(self.cuda("dist.bucket_mib=auto", run="measured"), want)
        self.assertEqual(self.metrics("measured", "run")[0]["bucket_choice"], "measured")

    def test_shared_gpu(self):
        self.cuda("launch.devices=0,0", run="run")
        self.assertEqual(self.backends("run"), {"shm"})
        self.assertIn("because NCCL cannot be used: rank 0 and rank 1 share a GPU", read_text(self.path("run", "log", "rank-00000.log")))

    def test_one_rank_without_nccl(self):
        """All ranks make the same choice."""
        for p in self.start_each(*ranks.SMALL, "train.max_steps=2", envs=({}, {"SOFT_GPU_FAULT": "ncclGetVersion:0:2"})):
            self.assert_code(p.wait(30), OK)
        self.assertEqual(self.backends("run"), {"shm"})
        self.assertRegex(read_text(self.path("run", "log", "rank-00000.log")), "NCCL cannot be used: rank 1: libnccl.* does not report its version")


class Settings(Soft):
    """NCCL's environment variables."""
    SETS = (*ranks.SMALL, "train.max_steps=2")

    def log(self, rank, run="run"):
        return read_text(self.path(run, "log", f"rank-{rank:05d}.log"))

    def two(self, *envs, expect=OK, run="run"):
        results = [p.wait(30) for p in self.start_each(*self.SETS, envs=envs, run=run)]
        for r in results:
            if expect is not None:
                self.assert_code(r, expect)
        return results

    def test_wrong(self):
        """All are reported before a process is started."""
        env = {"NCCL_DEBUG": "warning", "NCCL_SOCKET_IFNAME": "nosuch0", "NCCL_IB_DISABLE": "true"}
        r = self.train("device=cuda", "--procs", 2, *self.SETS, run="run", env=self.soft(2, env=env), expect=USAGE)
        self.assert_last_says(r, "NCCL_DEBUG=warning .*NCCL_IB_DISABLE=true .*NCCL_SOCKET_IFNAME=nosuch0 selects no network interface .*it has .*lo",
                              "did you mean WARN.*NCCL_IB_DISABLE=1")
        self.assertFalse(os.path.exists(self.path("run")))
        info = {s["name"]: s for s in self.run_ctrain("info", "--json", env=env).json()["settings"]}
        self.assertIn("did you mean WARN?", info["NCCL_DEBUG"]["hint"])
        self.assertIn("problem", info["NCCL_SOCKET_IFNAME"])
        # They do not matter to others.
        self.always = ranks.Soft.always
        self.train("device=cpu", "--procs", 2, *self.SETS, run="cpu", env=env)

    def test_rank_on_another_host(self):
        """Only its host lacks the interface: all ranks end, with its reason."""
        results = self.two({}, {"NCCL_SOCKET_IFNAME": "nosuch0"}, expect=None)
        self.assert_code(results[1], USAGE)
        self.assert_last_says(results[1], "NCCL_SOCKET_IFNAME=nosuch0 selects no network interface")
        self.assert_code(results[0], COMM)
        self.assert_last_says(results[0], r"rank 1 \(pid .*NCCL_SOCKET_IFNAME=nosuch0 selects no network interface")

    def test_row_110_messages_of_nccl(self):
        """They are in the logs of the ranks, and not on standard output."""
        env = {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAMES": "lo"}
        r = self.train("device=cuda", "log.level=warn", "--procs", 2, *self.SETS, run="run", env=self.soft(2, env=env))
        self.assertNotIn("NCCL INFO", r.out + r.err)
        self.assertEqual(r.err.count("NCCL does not read NCCL_SOCKET_IFNAMES; did you mean NCCL_SOCKET_IFNAME?"), 1)
        for rank in range(2):
            self.assertRegex(self.log(rank), rf"(?m)info {rank}/2 nccl: .*NCCL INFO comm .* rank {rank} nranks 2 .*Init COMPLETE$")
        self.train("device=cuda", "--procs", 2, *self.SETS, run="other", env=self.soft(2, env={**env, "NCCL_DEBUG_FILE": self.path("mine.%p")}))
        self.assertNotIn(" nccl: ", self.log(0, "other"))
        self.assertRegex(self.log(1, "other"), r"(?m)info 1/2 dist: environment: NCCL_DEBUG=INFO$")
        mine = [f for f in os.listdir(self.path()) if f.startswith("mine.")]
        self.assertEqual(len(mine), 2)
        self.assertIn("Init COMPLETE", read_text(self.path(mine[0])))

    def test_warning_of_nccl(self):
        r = self.train("device=cuda", "--procs", 2, "launch.devices=0,0", *self.SETS, run="run", env=self.soft(2, env={"NCCL_DEBUG": "WARN"}),
                       expect=COMM)
        self.assertRegex(self.log(0) + self.log(1), r"(?m)warn ./2 nccl: .*NCCL WARN Duplicate GPU detected : rank ")
        self.assertRegex(r.err, r"nccl: .*NCCL WARN Duplicate GPU detected")
        self.assert_last_says(r, "NCCL: .*: invalid usage .*: Duplicate GPU detected", "hint: .*RUN/log/")

    def test_versions_differ(self):
        results = self.two({}, {"SOFT_NCCL_VERSION": "22703"}, expect=None)
        for r in results:
            self.assertNotEqual(r.code, OK)
            self.assertRegex(r.err, r"rank 1 \(pid \d+ on .*\) has NCCL 2\.27\.3, but rank 0 \(pid \d+ on .*\) has NCCL 2\.2[89]")

    def test_settings_differ(self):
        results = self.two({"NCCL_ALGO": "Ring", "NCCL_HOSTID": "a"}, {"NCCL_ALGO": "Tree", "NCCL_HOSTID": "b", "NCCL_NET": "Socket"})
        self.assertIn('different settings of NCCL: NCCL_ALGO is "Ring" on rank 0, but "Tree" on rank 1', results[0].err)
        self.assertIn('NCCL_NET is not set on rank 0, but "Socket" on rank 1', results[0].err)
        self.assertNotIn("NCCL_HOSTID", results[0].err)
        self.assertEqual(len(re.findall("different settings", results[0].err)), 2)


class Faults(Soft, ranks.Faults):
    """The host waits for a step whose collectives wait for a rank."""

    STOPPED = "work of the GPU with collectives has not finished within 4.0 s"

    def test_errors_of_nccl(self):
        """While it connects, when a step is posted, and while a step runs."""
        faults = (({"SOFT_NCCL_FAULT": "init@1:0:2"}, COMM, "NCCL: ncclCommInitRankConfig: unhandled system error"),
                  ({"SOFT_GPU_FAULT": "ncclAllReduce:9:1"}, DEVICE, "allreduce: NCCL: .*unhandled cuda error"),
                  ({"SOFT_NCCL_FAULT": "error@1:9:3"}, COMM, "NCCL: .*internal error"))
        for i, (env, code, message) in enumerate(faults):
            with self.subTest(**env):
                p = self.start_ranks(2, "train.cuda_graph=off", run=f"run-{i}", env=env)
                r = p.wait(30)
                self.assert_code(r, code)
                self.assert_last_says(r, message)
                self.until(lambda: not self.marked(), "everything was gone", p)

    def test_row_115_rank_that_does_not_connect(self):
        p = self.start_ranks(2, "dist.timeout=2", run="run", env={"SOFT_NCCL_FAULT": "init@1"})
        r = p.wait(30)
        self.assert_code(r, COMM)
        self.assert_last_says(r, "ncclCommInitRankConfig has not finished within 2.0 s; all ranks have begun, but no rank has connected",
                              "NCCL_DEBUG=INFO .*dist.iface")
        self.assertNotIn("connecting rank", r.err)

    def test_without_gpus(self):
        r = self.train("device=cpu", "--procs", 2, *ranks.SMALL, run="run", env=self.soft(2), expect=2)
        self.assert_last_says(r, 'communicator "nccl" needs GPUs')

    def test_shared_gpu(self):
        r = self.train("device=cuda", "--procs", 2, "launch.devices=0,0", *ranks.SMALL, run="run", env=self.soft(2), expect=COMM)
        self.assertTrue(re.search("Duplicate GPU detected", r.err), r.err)


if __name__ == "__main__":
    main()
