"""Cases of Slurm that take long, or need PyTorch. Stage long of scripts/test.sh runs them."""

import os

from harness import CTRAIN, OK, main
from slurm_cluster import STOP, SlurmCase

TORCHRUN = "/usr/bin/torchrun"  # of the package python3-torch


class SlurmLong(SlurmCase):

    def test_T5_torchrun(self):
        """A real torchrun in each of two tasks on a node is refused; one on each node trains."""
        if not os.access(TORCHRUN, os.X_OK):
            self.skipTest(f"there is no {TORCHRUN}")
        # The default of --redirects and --tee, 0, fails in torchrun 1.13 with Python 3.11.
        ranks = ("--redirects=1", "--tee=1", "--nproc_per_node=2", "--no_python", CTRAIN, self.path("tiny.yaml"))
        own_port = ("sh", "-c", 'exec "$0" --master_addr=127.0.0.1 --master_port=$((29500 + SLURM_LOCALID)) "$@"', TORCHRUN)
        r = self.srun("-N2", "--ntasks-per-node=2", *own_port, *ranks, f"run.dir={self.path('run')}").wait()
        self.assertNotEqual(r.code, OK)
        self.assert_says(r, "srun has started 4 tasks, and each of them has started torchrun, which expects 1 node", "srun without torchrun")
        self.assertFalse(os.path.exists(self.path("run", "metrics.jsonl")))
        nodes = ("--nnodes=2", "--rdzv_backend=c10d", f"--rdzv_endpoint={self.cluster.names[0]}:29431")
        self.assert_code(self.srun("-N2", "--ntasks-per-node=1", TORCHRUN, *nodes, *ranks, f"run.dir={self.path('run')}").wait(), OK)
        self.assert_undisturbed()

    def test_lost_node_in_a_step(self):
        """Slurm itself notices that the node does not answer."""
        # With background saves, the thread that saves the epoch before may stop between two system calls.
        self.lose_node(STOP, False, "checkpoint.background=false")

    def test_lost_node_in_a_save(self):
        self.lose_node("ckpt.rename:4@0=stop", at_once=False)


if __name__ == "__main__":
    main()
