"""The CPUs of ranks and of their threads (launch.bind)."""

import os
import re
import unittest

from harness import SOURCE, Case, main, read_text

SEVERAL = len(os.sched_getaffinity(0)) >= 2


def cpus_of(text):
    """{0, 1, 5} of "0-1,5"."""
    ends = [part.split("-") for part in text.split(",")]
    return {cpu for part in ends for cpu in range(int(part[0]), int(part[-1]) + 1)}


def threads_of(pid):
    """{name: [CPUs, ...]} of the threads of a process."""
    found = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        status = dict(line.split(":\t", 1) for line in read_text(f"/proc/{pid}/task/{task}/status").splitlines() if ":\t" in line)
        found.setdefault(status["Name"], []).append(cpus_of(status["Cpus_allowed_list"]))
    return found


class Binding(Case):
    def setUp(self):
        super().setUp()
        if "hwloc      yes" not in self.run_ctrain("info").out:
            self.skipTest("ctrain was built without hwloc")

    def look(self, *sets, n_ranks=2, run="run", **more):
        """Starts a run whose ranks stop in step 3. Returns the CPUs that each rank is bound to, according to its log, and its threads."""
        p = self.start_training("data.workers=1", "train.epochs=1", f"launch.procs={n_ranks}", *sets, run=run, env={"CTRAIN_FAILPOINT": "step:3=stop"}, **more)
        threads = [threads_of(self.until_stopped(rank, p)) for rank in range(n_ranks)]
        logs = [read_text(self.path(run, "log", f"rank-{rank:05d}.log")) for rank in range(n_ranks)]
        self.end_all()
        if "cannot be divided" in logs[0]:
            self.skipTest("this machine has too few cores")
        bound = [re.search("binding: CPUs ([0-9]+([,-][0-9]+)*)", log) for log in logs]
        return [cpus_of(m[1]) if m else None for m in bound], threads

    @unittest.skipUnless(SEVERAL, "one CPU only")
    def test_core(self):
        """Each rank has its own cores, and each compute thread but the main thread one of them. All other threads have the cores of the rank."""
        ranks, threads = self.look("launch.bind=core")
        self.assertEqual(ranks[0] & ranks[1], set())
        for cpus, t in zip(ranks, threads):
            self.assertEqual(t["ctrain-loader"] + t["ct-watchdog"], [cpus, cpus])
            self.assertLessEqual(t["ctrain"][0], cpus)
        (cpus,), (t,) = self.look("launch.bind=core", "launch.threads=2", n_ranks=1, run="threads")
        self.assertEqual(cpus, os.sched_getaffinity(0))
        self.assertEqual(t["ctrain-loader"], [cpus])
        own, second = sorted(t["ctrain"], key=len, reverse=True)
        self.assertTrue(own == cpus and second < cpus, (cpus, t))

    @unittest.skipUnless(SEVERAL, "one CPU only")
    def test_results(self):
        """Binding does not change the weights."""
        r = self.train("launch.bind=core")
        self.assert_quiet(r)
        self.assert_equals_reference()

    def test_off(self):
        """Ranks that leave CPUs to other programs are not bound unless this is requested."""
        for sets in ((), ("launch.bind=off",)):
            ranks, threads = self.look("launch.threads=1", *sets, n_ranks=1, run="-".join(("run", *sets)))
            self.assertEqual(ranks, [None])
            self.assertEqual([cpus for of_name in threads[0].values() for cpus in of_name if cpus != os.sched_getaffinity(0)], [])

    def test_taskset(self):
        """The launcher's CPUs are divided. If they are too few, nothing is bound, and a warning says why."""
        cpu = max(os.sched_getaffinity(0))
        prefix = ("taskset", "-c", str(cpu))
        ranks, threads = self.look("launch.bind=core", n_ranks=1, prefix=prefix)
        self.assertEqual(ranks, [{cpu}])
        self.assertEqual([cpus for of_name in threads[0].values() for cpus in of_name if cpus != {cpu}], [])
        r = self.train("launch.bind=core", "train.max_steps=1", run="two", prefix=prefix)
        why = "2 ranks with 1 thread each, but only 1 CPU"
        self.assert_says(r, f"warn 0/2 worker: launch.bind=core: none: {why}")
        self.assertNotIn("warn 1/2", r.err)
        r = self.run_ctrain("plan", self.config(), "launch.bind=core", prefix=prefix)
        self.assertIn(f"binding      none: {why}\n", r.out)

    @unittest.skipUnless(SEVERAL, "one CPU only")
    def test_bound_by_another_launcher(self):
        cpu = max(os.sched_getaffinity(0))
        env = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.free_port())}
        r = self.train("launch.bind=core", "train.max_steps=1", env=env, prefix=("taskset", "-c", str(cpu)))
        self.assert_says(r, r"launch.bind=core: none: the launcher has already bound this rank to 1 of \d+ CPUs")

    def test_plan(self):
        """The machines are not this one; hwloc describes them."""
        env = {"HWLOC_SYNTHETIC": "pack:2 [numa] core:4 pu:2"}
        sets = ("launch.procs=2", "launch.threads=1")
        for command in ("plan", "doctor"):
            r = self.run_ctrain(command, self.config(), *sets, "launch.bind=numa", env=env)
            self.assertIn("binding      of ranks to CPUs\n  rank 0     CPUs 0-7, NUMA node 0\n  rank 1     CPUs 8-15, NUMA node 1\n", r.out)
        xml = os.path.join(SOURCE, "tests", "trainer", "plan", "two_sockets.xml")
        r = self.run_ctrain("plan", self.config(), "launch.procs=20", "launch.threads=1", "launch.bind=numa", "batch.global=20", env={"HWLOC_XMLFILE": xml})
        self.assertIn("binding      none: 20 ranks with 1 thread each, but only 16 CPUs\n", r.out)
        r = self.run_ctrain("plan", self.config(), *sets, "launch.bind=core", env={"HWLOC_XMLFILE": xml})
        self.assertIn("\n  rank 1     CPUs 4-7,12-15, NUMA node 1, each compute thread on one core\n", r.out)
        # A run does not bind itself to CPUs of another machine.
        r = self.train("launch.bind=numa", "train.max_steps=1", env=env)
        self.assert_says(r, "launch.bind=numa: none: the topology is that of another machine")


if __name__ == "__main__":
    main()
