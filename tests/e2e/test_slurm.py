"""ctrain as jobs of a real Slurm on three hosts: started by srun in several ways, cancelled, out of time, preempted, requeued, without a
node. Each job ends with the weights of an undisturbed one. test_slurm_long.py has further cases."""

import contextlib
import json
import os
import re
import signal
import subprocess

from harness import CTRAIN, OK, STOPPED, USAGE, main, read_text, state_of
from slurm_cluster import N_GPUS, N_STEPS, STOP, STOP_AT, SlurmCase


def has_signal(pid, field, sig):
    """True if a set of signals in the status of the process (SigBlk: blocked; ShdPnd: pending) contains this one."""
    found = re.search(rf"(?m)^{field}:\s*([0-9a-f]+)", read_text(f"/proc/{pid}/status"))
    return bool(found and int(found[1], 16) >> (sig - 1) & 1)


def takes(pid, sig):
    """True if the process is a rank that reads this signal from a file descriptor. Earlier, the signal would kill it."""
    return read_text(f"/proc/{pid}/status").startswith("Name:\tctrain\n") and has_signal(pid, "SigBlk", sig)


class Slurm(SlurmCase):
    def signal_stopped(self, job, pid):
        """Sends USR1 to a job. Its rank that has stopped continues when it has the signal: scancel does not wait for that."""
        self.query("scancel", "--signal=USR1", job)
        self.cluster.until(lambda: has_signal(pid, "ShdPnd", signal.SIGUSR1), f"the signal had reached pid {pid}")
        os.kill(pid, signal.SIGCONT)

    # ---- the script

    def test_row_98_script(self):
        """The script passes Slurm's own check, says what its options are for, and does not replace a file that ctrain has not written."""
        path = self.script("--time", "10", "--cpus-per-task", 2, "--partition", "low", "--mem", "1000", "optim.lr=0.05")
        text = read_text(path)
        for line in (r"#SBATCH --job-name=tiny", r"#SBATCH --nodes=2", r"#SBATCH --ntasks-per-node=2 +# .+", r"#SBATCH --time=10 +# .+",
                     r"#SBATCH --cpus-per-task=2 +# .+", r"#SBATCH --requeue +# .+", r"#SBATCH --output=tiny-%j\.log"):
            self.assertRegex(text, rf"(?m)^{line}$")
        subprocess.run(["bash", "-n", path], check=True)
        self.query("sbatch", "--test-only", path)
        self.write("mine.sbatch", "#!/bin/bash\n")
        r = self.start("slurm", "tiny.yaml", "--out", self.path("mine.sbatch")).wait()
        self.assert_code(r, USAGE)
        self.assert_last_says(r, "mine.sbatch exists, and was not generated", "--out")
        self.assertEqual(read_text(self.path("mine.sbatch")), "#!/bin/bash\n")

    def test_row_98_options_of_a_site(self):
        """Slurm accepts options after --, a range of nodes, the type of GPUs and the index of an array in a value."""
        more = ("--exclusive", "--nice=10", "--mail-type=END", "--mail-user", "me@example.org", "--begin=now", "--dependency=singleton",
                "--signal=USR1@120", "--hint=nomultithread", "--distribution=block", "--no-kill", "--oversubscribe", "--wait-all-nodes=1", "--kill-on-invalid-dep=yes")
        path = self.script("--cpus-per-task", 1, "--array", "0-1", "batch.global=24", "run.seed=%a", "--", *more, nodes="1..2")
        text = read_text(path)
        self.assertIn("#SBATCH --nodes=1-2\n", text)
        self.assertIn("#SBATCH --mail-user me@example.org\n", text)
        self.assertIn('run.seed="$SLURM_ARRAY_TASK_ID"', text)
        self.query("sbatch", "--test-only", path)
        for words, message in ((("--gpus", 8), "#SBATCH --gpus-per-node=4"), (("--gpus-per-node", "a100:3"), "#SBATCH --gpus-per-node=a100:3")):
            self.assertIn(message, read_text(self.script(*words, procs=None)))
        for words, message in ((("--gpus", 7), "cannot be divided evenly among the nodes"), (("--node-rank", 1), "--node-rank cannot be used"),
                               (("--", "--nodes=3"), "--nodes cannot follow --"), (("--procs", "3,1"), "the same number of ranks on all nodes")):
            r = self.start("slurm", "tiny.yaml", "--nodes", 2, *words, "--out", self.path("bad.sbatch")).wait()
            self.assert_code(r, USAGE)
            self.assert_last_says(r, message)
        r = self.start("slurm", "tiny.yaml", "--nodes", "1..3", "--procs", 2, "batch.global=24", "--out", self.path("bad.sbatch")).wait()
        self.assertNotIn("not divisible", r.err)
        r = self.start("slurm", "tiny.yaml", "--nodes", "1..5", "--procs", 1, "batch.global=24", "--out", self.path("bad.sbatch")).wait()
        self.assert_last_says(r, "batch.global 24 is not divisible by the 5 ranks of 5 nodes")

    def test_row_98_submit_and_status(self):
        out = self.query(CTRAIN, "slurm", "tiny.yaml", "--nodes", 2, "--procs", 2, "--submit", "run.dir=run")
        job = re.search(r"submitted job (\d+)", out)[1]
        self.jobs.append(job)
        self.finish_job(job)
        status = json.loads(self.query(CTRAIN, "slurm", "status", job, "--json"))[0]
        self.assertEqual((status["job"], status["name"], status["state"], status["run_dir"], status["log"]),
                         (job, "tiny", "COMPLETED", self.path("run"), self.path(f"tiny-{job}.log")))
        self.assertEqual((status["last"]["kind"], status["last"]["step"]), ("end", N_STEPS))
        self.assertTrue(status["log_tail"])
        text = self.query(CTRAIN, "slurm", "status")
        self.assertRegex(text, rf"job {job} \(tiny\): COMPLETED")
        self.assertIn(status["log_tail"][-1].strip()[:20], text)

    # ---- ways to start

    def test_row_104_srun_and_salloc(self):
        """A task for each rank, and a task for each node that starts the ranks; WORLD_SIZE and MASTER_PORT as in tutorials."""
        ways = {"tasks": ("srun", "-N2", "--ntasks-per-node=2"), "nodes": ("srun", "-N2", "--ntasks-per-node=1"),
                "salloc": ("salloc", "-N2", "--ntasks-per-node=2", "srun")}
        for name, (program, *options) in ways.items():
            with self.subTest(way=name):
                more = ("--procs", 2) if name == "nodes" else ()
                r = self.srun(*options, CTRAIN, self.path("tiny.yaml"), f"run.dir={self.path(name)}", *more, program=program,
                              env={"WORLD_SIZE": "4", "MASTER_PORT": "12345"} if name == "tasks" else {}).wait()
                self.assert_code(r, OK)
                self.assertEqual((self.metrics(name, "run")[0]["world_size"], self.metrics(name, "run")[0]["ranks_per_node"]), (4, 2))
                self.assert_undisturbed(name)

    def test_other_commands_start_ranks_on_each_node(self):
        """eval and bench comm, as training does."""
        def step(*args):
            r = self.srun("-N2", "--ntasks-per-node=1", CTRAIN, *args, "--procs", 2, "--json").wait()
            self.assert_code(r, OK)
            return r.json()
        bench = step("bench", "comm", self.path("tiny.yaml"), "--max", 8, "--iters", 1, "--warmup", 0)
        self.assertEqual((bench["world_size"], bench["hosts"]), (4, 2))
        self.query("srun", "-N2", "--ntasks-per-node=2", CTRAIN, "tiny.yaml", "run.dir=run", "train.max_steps=2")
        result = step("eval", self.path("tiny.yaml"), f"run.dir={self.path('run')}", "--checkpoint", "last")
        self.assertEqual(result["loss"], self.metrics(kind="eval")[-1]["loss"])

    def test_row_112_doctor(self):
        """A task for each node, which starts 2 ranks, and a task for each rank, of which one works on each node."""
        for tasks, more in ((1, ("--procs", 2)), (2, ())):
            with self.subTest(tasks=tasks):
                r = self.srun("-N2", f"--ntasks-per-node={tasks}", CTRAIN, "doctor", self.path("tiny.yaml"), f"run.dir={self.path('run')}",
                              *more).wait()
                for k in (0, 1):
                    self.assertRegex(r.out, rf"(?m)^node {k} .*: ctrain .*, 2 ranks,")
                self.assertRegex(r.out, r"(?m)^from 1 +\d+ +-")
                self.assertNotIn("error [", r.out)
        r = self.srun("-N2", "--ntasks-per-node=2", CTRAIN, "doctor", self.path("tiny.yaml"), "--procs", 2, f"run.dir={self.path('run')}").wait()
        self.assert_code(r, USAGE)
        self.assertIn("error [nested-launch]", r.out)

    def test_row_104_heterogeneous(self):
        r = self.srun("-N1", "--ntasks-per-node=2", ":", "-N1", "--ntasks-per-node=2", "srun", "--het-group=0,1", CTRAIN,
                      self.path("tiny.yaml"), f"run.dir={self.path('run')}", program="salloc").wait()
        self.assert_code(r, OK)
        self.assertEqual(self.metrics(kind="run")[0]["world_size"], 4)
        self.assert_undisturbed()

    def test_row_99_cpus(self):
        """Threads follow --cpus-per-task; here, Slurm does not bind tasks to CPUs."""
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("one CPU")
        for cpus in (1, 2):
            r = self.srun("-N2", "--ntasks-per-node=2", f"--cpus-per-task={cpus}", CTRAIN, self.path("tiny.yaml"), "launch.threads=auto",
                          "train.max_steps=2", f"run.dir={self.path(str(cpus))}").wait()
            self.assert_code(r, OK)
            self.assertEqual(self.metrics(str(cpus), "run")[0]["threads"], cpus)

    def test_row_99_gpus(self):
        """A rank uses the GPU with its local rank modulo the number of GPUs that Slurm shows it: all of the node, or one."""
        soft = os.path.join(os.path.dirname(CTRAIN), "soft_cudart")
        if not os.path.exists(os.path.join(soft, "libctrain_cuda.so")):
            self.skipTest("built without CUDA's headers")
        # Each task first prints which GPUs Slurm has given to it.
        command = ("sh", "-c", 'echo "visible: $CUDA_VISIBLE_DEVICES" && exec "$@"', "sh", CTRAIN, self.path("tiny.yaml"), "device=cuda",
                   "dist.backend=shm", "train.autotune=off", "train.max_steps=4")
        digests = set()
        for option, visible in ((f"--gpus-per-node={N_GPUS}", {"0,1"}), ("--gpus-per-task=1", {"0", "1"})):
            with self.subTest(option=option):
                r = self.srun("-N1", f"--ntasks-per-node={N_GPUS}", option, *command, f"run.dir={self.path(option)}",
                              env={"CTRAIN_CUDA_LIBS": soft, "SOFT_GPU_DEVICES": str(N_GPUS)}).wait()
                self.assert_code(r, OK)
                self.assertEqual(set(re.findall("visible: (.*)", r.out)), visible)
                digests.add(self.digest(option))
        self.assertEqual(len(digests), 1)

    def test_row_105_T5_T6_refused(self):
        """T5: srun and a launcher; T6: $SLURM_NODEID of the batch script, or one that is not exported; WORLD_SIZE of another job."""
        cases = ((("--procs", 3), {}, ("launch within launch: --procs requests 3 ranks on this host, .* there are 2", "srun")),
                 (("--nodes", 2, "--node-rank", 0, "--master-addr", self.cluster.names[0]), {},
                  ("--node-rank 0: srun has started tasks on 2 nodes", r"remove --node-rank; \$SLURM_NODEID")),
                 (("--nodes", 2, "--node-rank=", "--master-addr", self.cluster.names[0]), {}, ("the value of --node-rank is empty", "export it")),
                 (("--nodes", 3, "--master-addr", self.cluster.names[0]), {}, ("--nodes 3, but srun has started tasks on 2 nodes",)),
                 ((), {"WORLD_SIZE": "8"}, ("WORLD_SIZE=8 and SLURM_STEP_NUM_TASKS=4", "do not export WORLD_SIZE")))
        for args, env, words in cases:
            with self.subTest(args=args, env=env):
                r = self.srun("-N2", "--ntasks-per-node=2", CTRAIN, self.path("tiny.yaml"), f"run.dir={self.path('run')}", *args,
                              env=env).wait()
                self.assert_code(r, USAGE)
                self.assert_says(r, *words)
                self.assertFalse(os.path.exists(self.path("run", "metrics.jsonl")))

    # ---- ends of a job

    def test_row_106_scancel(self):
        """A cancelled job saves and is not requeued; the same script, submitted again, continues."""
        job, _ = self.start_stopped()
        self.query("scancel", job)
        now = self.until_job(job, "CANCELLED")
        self.assertEqual(now["Restarts"], "0")
        self.cluster.until(lambda: not self.marked(), "the ranks had ended")
        self.assert_checkpoints_whole()
        self.assertGreaterEqual(self.checkpoints()[-1], f"step-{STOP_AT:012d}")
        self.assertIn("not requeued", self.log_of(job))
        self.finish_job(self.submit(self.path("run.sbatch")))

    def test_row_106_usr1(self):
        """--signal=USR1: ctrain saves and requeues the job, which resumes, even if the job began with train.resume=never."""
        job, pid = self.start_stopped(sets=("train.resume=never",))
        self.signal_stopped(job, pid)
        self.finish_job(job, restarts=(1, 1))
        self.assertGreaterEqual(self.metrics(kind="run")[-1]["resumed_step"], STOP_AT)

    def test_row_99_time_limit(self):
        """Without any signal, ctrain stops and requeues the job before its time is over. Another rank waits until rank 0 has noticed."""
        job = self.submit(self.script("--time", "2", "launch.stop_before=100"), env={"CTRAIN_FAILPOINT": f"step:{STOP_AT}@1=stop"})
        pid = self.until_rank_stopped(1)
        self.cluster.until(lambda: "reaches its time limit" in self.log_of(job), "little time was left")
        os.kill(pid, signal.SIGCONT)
        self.finish_job(job, restarts=(1, 9))

    def test_row_99_time_limit_in_start(self):
        """The time limit comes while rank 0 waits for rank 1. The job is requeued, but not again if that start does not get further."""
        job = self.submit(self.script("--time", "1", "launch.stop_before=60"), env={"CTRAIN_FAILPOINT": "join@1=stop"})
        self.cluster.until(lambda: self.job(job)["Restarts"] == "1", "the job was requeued")
        self.cluster.until(lambda: "not requeued again" in self.log_of(job), "rank 0 of the second start had ended")
        # Rank 1 has stopped. Ranks 2 and 3 may have started too late to meet rank 0, and would then wait for it.
        ended = set()

        def failed():
            for pid in self.marked().keys() - ended:
                if takes(pid, signal.SIGUSR1):
                    ended.add(pid)
                    with contextlib.suppress(ProcessLookupError):  # one that has not stopped may end between the two signals
                        for sig in (signal.SIGUSR1, signal.SIGCONT):
                            os.kill(pid, sig)
            return self.job(job)["JobState"] == "FAILED"
        self.cluster.until(failed, f"job {job} had failed")
        now = self.job(job)
        self.assertEqual((now["ExitCode"], now["Restarts"]), (f"{STOPPED}:0", "1"))
        self.assertIn("request more time", self.log_of(job))

    def test_row_106_requeue_by_hand(self):
        """scontrol requeue of a running job, whose tasks start the ranks of their nodes: it saves; Slurm starts it again, once."""
        self.write("nodes.sbatch", f"#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=1 --requeue --open-mode=append --output=tiny-%j.log\n"
                                   f"srun --kill-on-bad-exit=0 {CTRAIN} tiny.yaml --procs 2 run.dir=run\n")
        job = self.submit("nodes.sbatch", env={"CTRAIN_FAILPOINT": STOP})
        self.until_rank_stopped()
        self.query("scontrol", "requeue", job)
        self.finish_job(job, restarts=(1, 1))
        self.assertGreaterEqual(self.metrics(kind="run")[-1]["resumed_step"], STOP_AT)

    def test_no_requeue(self):
        for run, options, sets, log in (("run", ("--no-requeue",), (), "--no-requeue"), ("config", (), ("launch.requeue=false",), "")):
            with self.subTest(run=run):
                job, pid = self.start_stopped(*options, sets=sets, run=run)
                self.signal_stopped(job, pid)
                now = self.until_job(job, "FAILED")
                self.assertEqual((now["ExitCode"], now["Restarts"]), (f"{STOPPED}:0", "0"))
                self.assertIn(log, self.log_of(job))
                self.finish_job(self.submit(self.path(f"{run}.sbatch")), run)

    def test_preemption(self):
        """A job of a partition with higher priority takes the nodes. Within the grace time, ctrain saves and requeues its job."""
        job, _ = self.start_stopped("--exclusive")
        nodes = self.job(job)["NumNodes"]
        self.assertEqual(nodes, "2")
        other = self.query("sbatch", "--parsable", "-p", "high", "-N3", "--exclusive", "--wrap", "true").strip()
        self.jobs.append(other)
        self.until_job(other, "COMPLETED")
        self.finish_job(job, restarts=(1, 1))

    def test_row_102_array_and_two_jobs_on_a_node(self):
        """The tasks of an array run at the same time on the same nodes, each in its run directory and with its port. One is requeued."""
        script = self.script("--array", "0-1")
        first = self.submit(script, f"--nodelist={self.cluster.names[0]},{self.cluster.names[1]}", env={"CTRAIN_FAILPOINT": STOP})

        def stopped():
            found = [(p, e) for p, e in self.marked().items() if state_of(p) == "T" and e.get("SLURM_PROCID") == "0"]
            return {e["SLURM_ARRAY_TASK_ID"]: (p, e) for p, e in found} if len(found) == 2 else None
        ranks = self.cluster.until(stopped, "both tasks of the array were in step 30")
        self.assertEqual(ranks["0"][1]["SLURM_STEP_NODELIST"], ranks["1"][1]["SLURM_STEP_NODELIST"])
        self.signal_stopped(f"{first}_1", ranks["1"][0])
        os.kill(ranks["0"][0], signal.SIGCONT)
        for k in (0, 1):
            self.assertEqual(self.until_job(f"{first}_{k}", "COMPLETED")["Restarts"], str(k))
            self.assert_undisturbed(f"run-{k}")

    # ---- lost nodes

    def test_lost_node_in_a_save(self):
        """Rank 0 of the first start has written all files of a checkpoint, and is about to publish it."""
        self.lose_node("ckpt.rename:4@0=stop", at_once=True)


if __name__ == "__main__":
    main()
