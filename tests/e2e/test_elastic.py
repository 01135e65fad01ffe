"""launch.nodes: MIN..MAX: a job loses nodes, continues with those that are left, and takes nodes in again."""

import os
import signal

import test_restart
from harness import COMM, OK, main, state_of

SETS = test_restart.SETS


class Elastic(test_restart.Restarts):
    """Launchers on this host, each with one rank. The global batch of 48 samples can be divided among 1, 2, 3 and 4 ranks."""

    def setUp(self):
        super().setUp()
        self.port = self.free_port()

    def node(self, k, nodes, *sets, point="", restarts=3, **more):
        return self.start_job(point, "--nodes", nodes, "--node-rank", k, "--procs", 1, "--master-addr", "127.0.0.1", "--master-port", self.port,
                              "dist.rendezvous_timeout=30", *sets, restarts=restarts, **more)

    def start_nodes(self, n, start):
        """Starts node 0 last, because it waits only for launch.join_wait; the others try until it is there."""
        return [start(k) for k in reversed(range(n))][::-1]

    def worlds(self, run="run"):
        return [(m["world_size"], m["nodes"]) for m in self.metrics(run, "run")]

    def kill_node(self, process, rank):
        """Kills a launcher whose rank has stopped at a failpoint; the rank ends with it."""
        pid = self.until_stopped(rank, process)
        process.signal(signal.SIGKILL)
        process.wait()
        self.until(lambda: state_of(pid) in ("", "Z"), f"rank {rank} had ended")

    def finish(self, nodes, code=OK):
        results = [n.wait() for n in nodes]
        for r in results:
            self.assert_code(r, code)
        self.assertEqual(self.marked(), {})
        return results

    def assert_close_to_reference(self, *sets, run="run"):
        """The samples of each step are the same, so the losses are, except for the order of the additions."""
        expected, _ = self.reference(*sets)
        losses = self.losses(run)
        self.assertEqual(list(losses), list(expected))
        for step, loss in losses.items():
            self.assertAlmostEqual(loss / expected[step], 1, delta=1e-6, msg=f"step {step}")

    def test_row_48_two_nodes_one_and_two_again(self):
        nodes = self.start_nodes(2, lambda k: self.node(k, "1..2", "launch.join_wait=1", point=("step:7@0=stop", "step:5@1=stop")[k]))
        self.kill_node(nodes[1], 1)
        pid = self.until_stopped(0, nodes[0])  # alone, in step 11
        nodes[1] = self.node(1, "1..2")
        self.until(lambda: "this node is taken in" in nodes[1].err, "node 1 was waiting", nodes[1])
        self.until(lambda: "more nodes are there" in nodes[0].err, "node 0 had noticed it", nodes[0])
        os.kill(pid, signal.SIGCONT)
        os.kill(self.until_stopped(0, nodes[0]), signal.SIGCONT)
        r = self.finish(nodes)[0]
        self.assertEqual(self.worlds(), [(2, 2), (1, 1), (2, 2)], r.describe())
        self.assertEqual(self.resumed(), [0, 4, 12])
        self.assertEqual([(m["attempt"], m["restart"], m["rank"], m["step"]) for m in self.metrics(kind="restart")], [(1, 1, 1, 4), (2, 1, -1, 12)])
        self.assert_says(r, "starting with 1 of 2 nodes", "stopped at step 12 to continue with more nodes")
        self.assert_close_to_reference(*SETS)

    def test_row_48_four_ranks_and_three(self):
        """The node that is lost is not the last one, so the ranks get other numbers."""
        nodes = self.start_nodes(4, lambda k: self.node(k, "2:4", "launch.join_wait=1", point="step:7@1=stop" if k == 1 else ""))
        self.kill_node(nodes.pop(1), 1)
        r = self.finish(nodes)[0]
        self.assertEqual(self.worlds(), [(4, 4), (3, 3)], r.describe())
        self.assertEqual(self.resumed(), [0, 4])
        self.assert_close_to_reference(*SETS)

    def test_node_that_cannot_take_part(self):
        """32 samples cannot be divided among 3 ranks. The third node waits, and ends with the job."""
        nodes = self.start_nodes(3, lambda k: self.node(k, "2..3", "launch.join_wait=1", "batch.global=32", "train.max_steps=8"))
        r = self.finish(nodes)
        self.assertEqual(self.worlds(), [(2, 2)])
        self.assert_says(r[2], "this node is taken in")

    def test_too_few_nodes(self):
        r = self.node(0, "2..3", "dist.rendezvous_timeout=1", restarts=1).wait()
        self.assert_code(r, COMM)
        self.assert_last_says(r, r"only 1 of at least 2 nodes have joined within 1\.\d s", "start ctrain on more nodes")


if __name__ == "__main__":
    main()
