"""launch.nodes: MIN..MAX: a job loses nodes, continues with those that are left, and takes nodes in again."""

import os
import signal
import sys
import unittest

import test_restart
from harness import COMM, main, state_of
from hosts import HostsCase, why_not

SETS = test_restart.SETS
NO_HOSTS = why_not()


class Worlds:
    def worlds(self, run="run"):
        return [(m["world_size"], m["nodes"]) for m in self.metrics(run, "run")]

    def assert_close_to_reference(self, *sets, run="run"):
        """The samples of each step are the same, so the losses are, except for the order of the additions."""
        expected, _ = self.reference(*sets)
        losses = self.losses(run)
        self.assertEqual(list(losses), list(expected))
        for step, loss in losses.items():
            self.assertAlmostEqual(loss / expected[step], 1, delta=1e-6, msg=f"step {step}")

    def let_node_0_return(self, nodes, pid):
        """Rank 0, which is on node 1, has stopped. Lets it continue when node 0 can be taken in."""
        self.until(lambda: "this node is taken in" in nodes[0].err, "node 0 was waiting", nodes[0], 40)
        self.until(lambda: "more nodes are there" in nodes[1].err + nodes[2].err, "the leader had noticed it", nodes[1])
        os.kill(pid, signal.SIGCONT)

    def assert_node_0_returned(self, results, firsts=(4,)):
        """firsts: the steps from which the second attempt may continue."""
        self.assertEqual(self.worlds(), [(3, 3), (2, 2), (3, 3)], results[1].describe())
        resumed = [m["resumed_step"] for m in self.metrics(kind="run")]
        first = resumed[1]
        self.assertIn(first, firsts)
        # If node 2 leads the job, its rank had begun the step of the next save before it knew of node 0.
        self.assertIn(resumed, ([0, first, first + 8], [0, first, first + 12]))
        self.assertEqual([(m["restart"], m["step"]) for m in self.metrics(kind="restart")], [(1, first), (1, resumed[2])])
        self.assertEqual(sum("takes its place" in r.err for r in results), 1)
        self.assertFalse(os.path.exists(self.path("run", "leader")))
        self.assert_close_to_reference(*SETS)


class Elastic(Worlds, test_restart.Restarts):
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

    def kill_node(self, process, rank):
        """Kills a launcher whose rank has stopped at a failpoint; the rank ends with it."""
        pid = self.until_stopped(rank, process)
        process.signal(signal.SIGKILL)
        process.wait()
        self.until(lambda: state_of(pid) in ("", "Z"), f"rank {rank} had ended")

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

    def test_row_48_store_host_lost(self):
        """Another launcher takes the place of node 0's, which then returns as a node like the others. The run is not moved aside."""
        sets = ("launch.join_wait=1", "train.resume=never")
        nodes = self.start_nodes(3, lambda k: self.node(k, "2..3", *sets, point="step:7@0=stop" if k < 2 else ""))
        self.kill_node(nodes[0], 0)
        pid = self.until_stopped(0, nodes[1], 40)  # in step 11
        nodes[0] = self.node(0, "2..3", *sets)
        self.let_node_0_return(nodes, pid)
        self.assert_node_0_returned(self.finish(nodes))

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


@unittest.skipIf(NO_HOSTS, NO_HOSTS)
class ThreeHosts(Worlds, HostsCase):
    """Three network namespaces and a switch."""

    n_hosts = 3
    own_switch = True

    def three(self, timeout):
        """Rank 0 stops in its seventh step, on node 0, and in the next attempt on node 1, for less than the timeout."""
        return [self.node(k, *SETS, "--restarts", 3, "launch.join_wait=1", "dist.rendezvous_timeout=60", f"dist.timeout={timeout}", procs=1,
                          nodes="2..3", env={"CTRAIN_FAILPOINT": "step:7@0=stop" if k < 2 else ""}) for k in range(3)]

    def test_row_48_power_cut_of_the_store_host(self):
        nodes = self.three(5)
        self.until_stopped(0, nodes[0])
        os.kill(self.hosts[0].init, signal.SIGKILL)
        nodes.pop(0).wait()
        os.kill(self.until_stopped(0, nodes[0], 60), signal.SIGCONT)
        results = self.finish(nodes)
        self.assertEqual(self.worlds(), [(3, 3), (2, 2)], results[0].describe())
        self.assertEqual([m["resumed_step"] for m in self.metrics(kind="run")], [0, 4])
        self.assertEqual(sum("takes its place" in r.err for r in results), 1)
        self.assert_close_to_reference(*SETS)

    def test_row_48_cut_cable_of_the_store_host(self):
        """Node 0 is alive and can lock the run directory, but it has too few nodes. When the cable is repaired, it joins the others."""
        nodes = self.three(30)
        pid = self.until_stopped(0, nodes[0])
        self.hosts[0].run("ip", "link", "set", "eth0", "down")
        os.kill(pid, signal.SIGCONT)
        pid = self.until_stopped(0, nodes[1], 90)
        self.hosts[0].run("ip", "link", "set", "eth0", "up")
        self.let_node_0_return(nodes, pid)
        os.kill(self.until_stopped(0, nodes[0], 40), signal.SIGCONT)
        # If rank 0 had received the gradients of the others before the cable was cut, it completes its step and saves.
        self.assert_node_0_returned(self.finish(nodes), (4, 8))


if __name__ == "__main__":
    if NO_HOSTS:
        print(f"  {NO_HOSTS}", file=sys.stderr)
    main()
