"""How ranks find each other, started by hand as other launchers do; and ranks that should not meet."""

import os
import signal
import socket
import time

from harness import COMM, OK, STOPPED, USAGE, Case, main, read_text

MISMATCH = USAGE


class Meeting(Case):
    def worker(self, rank, world, port, *sets, run="run", env=None, **identity):
        identity = {"RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **identity, **(env or {})}
        return self.start_training(*sets, run=run, env={k: str(v) for k, v in identity.items() if v is not None})

    def world(self, n, port, *sets, **more):
        return [self.worker(r, n, port, *sets, **more) for r in range(n)]

    def wait_all(self, workers, expect=OK, timeout=60):
        """The first ones' end tells why the others wait."""
        results = []
        for w in workers:
            results.append(w.wait(timeout))
            self.assert_code(results[-1], expect)
        self.assertEqual(self.marked(), {})
        return results


class Rendezvous(Meeting):
    def test_env(self):
        self.wait_all(self.world(2, self.free_port()))
        self.assert_equals_reference()
        self.assertEqual(self.metrics(kind="run")[0]["world_size"], 2)

    def test_env_url_and_late_master(self):
        """Rank 1 first: it waits for rank 0's store."""
        port = self.free_port()
        late = self.worker(1, 2, port, "launch.init=env://")
        self.until(lambda: self.rank_pid(1), "rank 1 had started", late)
        self.wait_all([late, self.worker(0, 2, port, "launch.init=env://")])
        self.assert_equals_reference()

    def test_stopped_ranks_print_one_message(self):
        """srun and mpirun send a signal to all ranks, of which there may be thousands."""
        ranks = self.world(2, self.free_port(), "train.epochs=1000")
        self.until_step(5, ranks[0])
        for rank in ranks:
            rank.signal(signal.SIGTERM)
        results = self.wait_all(ranks, STOPPED)
        self.assertEqual([r.err.count("stopped by a signal at step") for r in results], [1, 0])
        for rank in (0, 1):
            self.assertIn("stopped by a signal at step", read_text(self.path("run", "log", f"rank-{rank:05}.log")))

    def test_row_22_tcp_url(self):
        url = f"tcp://127.0.0.1:{self.free_port()}"
        none = {"MASTER_ADDR": None, "MASTER_PORT": None}
        self.wait_all([self.worker(r, 3, 0, "--init", url, **none) for r in range(3)])
        self.assertEqual(self.metrics(kind="run")[0]["world_size"], 3)

    def test_row_31_options_replace_the_environment(self):
        """Of ranks that another program starts: rank 1 has only the options."""
        port, other = self.free_port(), self.free_port()
        options = ("--master-addr", "127.0.0.1", "--master-port", port)
        none = {"RANK": None, "WORLD_SIZE": None, "MASTER_ADDR": None, "MASTER_PORT": None}
        first = self.worker(0, 2, other, *options, MASTER_ADDR="192.0.2.1")
        self.wait_all([first, self.worker(1, 2, 0, "--rank", 1, "--world-size", 2, *options, **none)])
        self.assert_equals_reference()

    def test_tcp_url_by_the_launcher(self):
        self.train("--init", f"tcp://127.0.0.1:{self.free_port()}")
        self.assert_equals_reference()

    def test_row_23_and_24_file_url(self):
        url = "file://" + self.path("meet")
        none = {"MASTER_ADDR": None, "MASTER_PORT": None}
        self.wait_all([self.worker(r, 2, 0, "--init", url, **none) for r in range(2)])
        self.assert_equals_reference()
        # What a killed run left there is not taken for the next one's.
        killed = [self.worker(r, 2, 0, "--init", url, run="killed", CTRAIN_FAILPOINT="step:5@0=stop", **none) for r in range(2)]
        self.until_stopped(0, killed[0])
        self.end_all()
        [k.wait() for k in killed]
        self.wait_all([self.worker(r, 2, 0, "--init", url, run="again", **none) for r in range(2)])
        self.assert_equals_reference(run="again")

    def test_file_url_by_the_launcher(self):
        self.train("--init", "file://" + self.path("meet"))
        self.assert_equals_reference()

    def test_torchrun(self):
        """Its own store sits on MASTER_PORT."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            port = s.getsockname()[1]
            env = {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0,
                   "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1, "ROLE_RANK": 0, "ROLE_WORLD_SIZE": 2,
                   "TORCHELASTIC_USE_AGENT_STORE": "True"}
            self.wait_all([self.worker(r, 2, port, LOCAL_RANK=r, env=env) for r in range(2)])
        self.assert_equals_reference()
        self.assertIn("torchrun", self.metrics(kind="run")[0]["launcher"])

    def test_slurm(self):
        port = self.free_port()

        def rank(r):
            env = {"SLURM_STEP_NUM_TASKS": 2, "SLURM_NTASKS": 2, "SLURM_PROCID": r, "SLURM_LOCALID": r, "SLURM_NODEID": 0,
                   "SLURM_STEP_NODELIST": socket.gethostname(), "SLURM_STEP_TASKS_PER_NODE": 2, "SLURM_JOB_ID": 4711, "SLURM_STEP_ID": 0,
                   "SLURM_JOB_NUM_NODES": 1, "SLURM_NNODES": 1, "SLURM_STEP_NUM_NODES": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            return self.start_training(env={k: str(v) for k, v in env.items()})
        self.wait_all([rank(r) for r in range(2)])
        self.assert_equals_reference()

    def test_open_mpi(self):
        port = self.free_port()

        def rank(r):
            env = {"OMPI_COMM_WORLD_RANK": r, "OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_LOCAL_RANK": r, "OMPI_COMM_WORLD_LOCAL_SIZE": 2,
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            return self.start_training(env={k: str(v) for k, v in env.items()})
        self.wait_all([rank(r) for r in range(2)])
        self.assert_equals_reference()

    def test_two_nodes_on_one_host(self):
        """Two launchers, as on two hosts: what they share is the port and the token."""
        port = self.free_port()
        nodes = [self.start_training("--nodes", 2, "--node-rank", k, "--procs", 2, "--master-addr", "127.0.0.1", "--master-port", port,
                                     env={"CTRAIN_TOKEN": "secret"}) for k in (0, 1)]
        self.wait_all(nodes)
        self.assertEqual(self.metrics(kind="run")[0]["world_size"], 4)
        self.assertEqual(sorted(self.losses()), list(range(1, 43)))

    def late_rank_0(self, start):
        """train.resume=never: rank 1 waits, and only then rank 0 renames the directory of the earlier run, which must stay as it was."""
        self.train("train.max_steps=3")
        stacks = self.write("run/log/stacks-00001.txt", "reason signal 11\n")
        before = read_text(self.path("run", "log", "rank-00001.log"))
        sets = ("train.resume=never", "train.max_steps=4", "log.level=debug")
        early = start(1, *sets, env={"CTRAIN_TOKEN": "secret", "CTRAIN_FAILPOINT": "join@1=stop"})
        pid = self.until_stopped(1, early)
        late = start(0, *sets, env={"CTRAIN_TOKEN": "secret"})
        self.until(lambda: os.path.exists(self.path("run", "lock")) and os.path.exists(self.path("run.old-1")), "rank 0 had the new directory", late)
        os.kill(pid, signal.SIGCONT)
        self.wait_all([late, early])
        self.assertEqual(list(self.losses()), [1, 2, 3, 4])
        self.assertIn(" 1/2 ", read_text(self.path("run", "log", "rank-00001.log")))
        self.assertEqual(read_text(self.path("run.old-1", "log", "rank-00001.log")), before)
        self.assertTrue(os.path.exists(stacks.replace("/run/", "/run.old-1/")))

    def test_never_resume_and_late_rank_0(self):
        port = self.free_port()
        self.late_rank_0(lambda rank, *sets, **more: self.worker(rank, 2, port, *sets, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=2, **more))

    def test_never_resume_and_late_node_0(self):
        def node(k, *sets, **more):
            return self.start_training("--nodes", 2, "--node-rank", k, "--procs", 1, "--master-addr", "127.0.0.1", "--master-port", port, *sets, **more)
        port = self.free_port()
        self.late_rank_0(node)

    def test_backends(self):
        for backend in ("shm", "gloo"):
            for world in (2, 3):
                with self.subTest(backend=backend, world=world):
                    run = f"{backend}-{world}"
                    self.train(f"dist.backend={backend}", "--procs", world, run=run)
                    self.assertEqual(self.metrics(run, "run")[0]["backend"], backend)
        a, b = self.losses("shm-3"), self.losses("gloo-3")
        for step, loss in a.items():
            self.assertAlmostEqual(b[step] / loss, 1, delta=1e-6, msg=f"step {step}")
        self.assert_says(self.train("dist.backend=self", run="self", expect=USAGE), "self", "world of one|one rank|2 ranks|several")

    def test_limit_on_file_sizes(self):
        """Shared memory is a file to the kernel. The pages of the ranks fit into this limit, but not the communicator's memory."""
        r = self.train("dist.backend=shm", prefix=["sh", "-c", 'ulimit -f 2000; exec "$0" "$@"'], expect=4)
        self.assert_last_says(r, r"rank \d \(pid \d+\) failed: .*shared memory", "File too large", r"ulimit -f")

    def test_contradicting_environment(self):
        for env, words in (({"RANK": 2, "WORLD_SIZE": 2}, ("RANK", "WORLD_SIZE", "2")),
                           ({"RANK": 0}, ("WORLD_SIZE",)),
                           ({"RANK": "one", "WORLD_SIZE": 2}, ("RANK", "one")),
                           ({"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 3, "LOCAL_WORLD_SIZE": 2}, ("LOCAL_RANK", "3", "LOCAL_WORLD_SIZE"))):
            with self.subTest(env=env):
                env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": self.free_port(), **env}
                r = self.train(env={k: str(v) for k, v in env.items()}, expect=USAGE)
                self.assert_says(r, *words)


    def test_another_number_of_ranks(self):
        """What the command line asks for and what the launcher says: an error, not one of the two ignored."""
        for world, local, args, words in ((2, None, ("--procs", 4), ("--procs requests 4", "there are 2")),
                                          (3, 3, ("launch.procs=2",), ("requests 2 ranks on this host", "there are 3")),
                                          (1, 1, ("--nproc_per_node=2",), ("--nproc_per_node requests 2", "there are 1"))):
            with self.subTest(args=args):
                more = {} if local is None else {"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": local}
                r = self.worker(0, world, self.free_port(), *args, **more).wait()
                self.assert_code(r, USAGE)
                self.assert_last_says(r, *words, "hint:")
        self.wait_all(self.world(2, self.free_port(), "--procs", 2))
        # Other commands whose ranks another launcher can start.
        env = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.free_port())}
        for command in (("bench", "comm"), ("bench", "step", "--trace", self.path("trace.json")), ("eval", "--checkpoint", self.path("none"))):
            with self.subTest(command=command):
                r = self.run_ctrain(*command, self.config(), "--procs", 3, env=env, expect=USAGE)
                self.assert_last_says(r, "--procs requests 3 ranks on this host, but according to the environment there are 2", "hint:")

    def test_env_url_without_environment(self):
        for env, words in (({}, "MASTER_ADDR and MASTER_PORT are"), ({"MASTER_ADDR": "127.0.0.1"}, "MASTER_PORT is"), ({"MASTER_PORT": "1"}, "MASTER_ADDR is")):
            r = self.train("--init", "env://", env=env, expect=USAGE)
            self.assert_last_says(r, "env://", f"{words} not set", "hint:")
            self.assertNotIn("rank ", r.err)


class Strangers(Meeting):
    def test_port_in_use(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            port = s.getsockname()[1]
            r = self.train("--master-port", port, expect=COMM)
            self.assert_last_says(r, rf"port {port}\b|:{port}\b", "in use", rf"pid {os.getpid()}\b")
            r = self.worker(0, 2, port).wait()
            self.assert_code(r, COMM)
            self.assert_last_says(r, rf"{port}\b", "in use")
        self.assertEqual(self.marked(), {})

    def test_row_28_T7_two_launchers_on_one_port(self):
        port = self.free_port()
        first = self.start_training("--master-port", port, env={"CTRAIN_FAILPOINT": "step:7@0=stop"})
        pid = self.until_stopped(0, first)
        r = self.train("--master-port", port, run="second", expect=COMM)
        self.assert_last_says(r, rf"{port}\b", "in use", rf"pid {first.pid}\b")
        os.kill(pid, signal.SIGCONT)
        self.assert_code(first.wait(), OK)
        self.assert_equals_reference()

    def test_rank_of_another_run(self):
        """Rank 1 of another run connects to this run's port: the error names it, and no other rank is affected."""
        port = self.free_port()
        first = self.worker(0, 2, port, "dist.run_id=alpha")
        self.until(lambda: self.rank_pid(0), "rank 0 had started", first)
        r = self.worker(1, 2, port, "dist.run_id=beta", run="other").wait()
        self.assert_code(r, MISMATCH)
        self.assert_last_says(r, "alpha", "beta")
        second = self.worker(1, 2, port, "dist.run_id=alpha")
        self.wait_all([first, second])
        self.assert_equals_reference()

    def test_wrong_token(self):
        port = self.free_port()
        first = self.worker(0, 2, port, env={"CTRAIN_TOKEN": "right"})
        self.until(lambda: self.rank_pid(0), "rank 0 had started", first)
        r = self.worker(1, 2, port, env={"CTRAIN_TOKEN": "wrong"}).wait()
        self.assert_code(r, MISMATCH)
        self.assert_last_says(r, "token")
        self.assertNotIn("right", r.err.replace("copyright", ""))
        self.wait_all([first, self.worker(1, 2, port, env={"CTRAIN_TOKEN": "right"})])
        self.assert_equals_reference()

    def test_same_rank_twice(self):
        port = self.free_port()
        first = self.worker(0, 3, port)
        second = self.worker(1, 3, port)
        self.until(lambda: self.rank_pid(1), "rank 1 had started", second)
        self.until(lambda: os.path.exists(self.path("run", "log", "rank-00001.log")), "rank 1 was at work", second)
        twin = self.worker(1, 3, port, "dist.rendezvous_timeout=5")
        # Which of the two came first is not ours to say; one of them is refused by name.
        self.until(lambda: second.popen.poll() is not None or twin.popen.poll() is not None, "one of the twins was refused")
        refused = (twin if twin.popen.poll() is not None else second).wait()
        self.assert_code(refused, MISMATCH)
        self.assert_last_says(refused, r"rank 1\b")
        self.end_all()

    def test_noise_on_the_port(self):
        """A port scanner and a browser talk to the store while the run goes on."""
        port = self.free_port()
        p = self.start_training("--master-port", port, env={"CTRAIN_FAILPOINT": "step:7@0=stop"})
        pid = self.until_stopped(0, p)
        for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 4096, b"\xff" * 70000, b""):
            with socket.create_connection(("127.0.0.1", port), 5) as s:
                try:
                    s.sendall(noise)
                except (BrokenPipeError, ConnectionResetError):
                    pass
        os.kill(pid, signal.SIGCONT)
        self.assert_code(p.wait(), OK)
        self.assert_equals_reference()

    def test_missing_rank_is_named(self):
        port = self.free_port()
        some = [self.worker(r, 3, port, "dist.rendezvous_timeout=2") for r in (0, 2)]
        for r in self.wait_all(some, COMM, 15):
            self.assert_last_says(r, r"rank 1\b|missing.*\b1\b")

    def test_missing_master_is_named(self):
        port = self.free_port()
        r = self.worker(1, 2, port, "dist.rendezvous_timeout=2").wait(15)
        self.assert_code(r, COMM)
        self.assert_last_says(r, rf"127\.0\.0\.1:{port}|port {port}")

    def test_unknown_master_host(self):
        r = self.worker(1, 2, 29400, "dist.rendezvous_timeout=2", MASTER_ADDR="no-such-host.invalid").wait(30)
        self.assert_code(r, COMM)
        self.assert_last_says(r, r"no-such-host\.invalid")


class Disagreement(Meeting):
    def check(self, sets, *words, expect=MISMATCH):
        port = self.free_port()
        since = time.monotonic()
        workers = [self.worker(r, 3, port, *(sets if r == 1 else ())) for r in range(3)]
        for r in self.wait_all(workers, expect):
            self.assert_last_says(r, r"rank 1\b", *words)
        self.assertLess(time.monotonic() - since, 30)  # far less than dist.rendezvous_timeout

    def test_row_19_config(self):
        self.check(["optim.lr=0.07"], r"optim\.lr", r"0\.05", r"0\.07")

    def test_model(self):
        self.check(["model.hidden=48"], r"model\.hidden", "48")

    def test_seed(self):
        self.check(["run.seed=3"], r"run\.seed", "3")

    def test_batch(self):
        self.check(["batch.global=96"], r"batch\.global", "96")

    def test_data(self):
        for name, seed in (("one", 1), ("two", 2)):
            self.run_ctrain("data", "digits", "--out", self.path(name), "--train", 300, "--test", 50, "--seed", seed)
        port = self.free_port()
        workers = [self.worker(r, 2, port, "data.name=mnist", f"data.dir={self.path('one' if r == 0 else 'two')}") for r in range(2)]
        for r in self.wait_all(workers, MISMATCH):
            self.assert_last_says(r, r"rank 1\b", "training data")

    def test_engine(self):
        self.check(["train.engine=ref"], "engine", "ref")

    def test_bench_comm(self):
        """Otherwise, the ranks would wait for each other until dist.timeout."""
        options = ("--op", "allreduce", "--max", "8K")
        for args, say in ((("dist.backend=gloo",), r"dist\.backend differs: rank 1 .* has gloo, rank 0 .* has auto"),
                          (("--op", "reduce,broadcast"), "--op differs: rank 1 .* has reduce,broadcast, rank 0 .* has allreduce"),
                          (("--max", "16K"), "--max differs: rank 1 .* has 16384, rank 0 .* has 8192"),
                          (("--iters", "3"), "--iters differs: rank 1 .* has 3, rank 0 .* has 0 .chosen by rank 0"),
                          (("--type", "double"), "--type differs: rank 1 .* has double, rank 0 .* has float")):
            with self.subTest(args=args):
                env = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.free_port())}
                ranks = [self.start("bench", "comm", self.config(), *options, *(args if k == 1 else ()), env={**env, "RANK": str(k)}) for k in (0, 1)]
                for r in self.wait_all(ranks, MISMATCH):
                    self.assert_last_says(r, "start: " + say, "hint: start all ranks with .*the same options")

    def test_world_size(self):
        port = self.free_port()
        workers = [self.worker(0, 2, port, "dist.rendezvous_timeout=3"), self.worker(1, 3, port, "dist.rendezvous_timeout=3")]
        for w in workers:
            r = w.wait(20)
            self.assertIn(r.code, (MISMATCH, COMM), r.describe())
            self.assert_last_says(r, r"WORLD_SIZE|world")

    def test_data_that_one_rank_lacks(self):
        self.run_ctrain("data", "digits", "--out", self.path("data"), "--train", 300, "--test", 50)
        port = self.free_port()
        sets = ["data.name=mnist"]
        workers = [self.worker(r, 2, port, *sets, f"data.dir={self.path('data' if r == 0 else 'nowhere')}") for r in range(2)]
        results = [w.wait() for w in workers]
        self.assert_code(results[1], 3)
        self.assert_last_says(results[1], "nowhere", "ctrain data digits")
        self.assertIn(results[0].code, (3, 5), results[0].describe())
        self.assert_last_says(results[0], r"rank 1\b")


if __name__ == "__main__":
    main()
