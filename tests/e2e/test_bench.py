"""`ctrain bench`: one JSON object with the figures that comparisons read, for every part and communicator."""

from harness import USAGE, Case, main


class Bench(Case):
    def test_step(self):
        j = self.run_ctrain("bench", "step", self.config(), "--steps", 3).json()
        self.assertEqual((j["bench"], j["model"], j["steps"], j["allocations"]), ("step", "mlp", 3, 0))
        self.assertGreater(j["images_per_sec"], 0)
        self.assertLessEqual(j["step_ms_min"], j["step_ms_median"])
        names = [n["name"] for n in j["nodes"]]
        for name in ("fc1", "fc2"):
            self.assertIn(name, names)
        for key in ("data_ms", "forward_ms", "backward_ms", "optim_ms", "gflops_per_sec"):
            self.assertGreaterEqual(j[key], 0, key)

    def test_loader(self):
        j = self.run_ctrain("bench", "loader", self.config(), "--steps", 21).json()
        self.assertEqual((j["bench"], j["data"], j["images"]), ("loader", "synthetic", 1000))
        self.assertGreater(j["images_per_sec"], 0)

    def test_comm(self):
        for backend, procs in (("self", 1), ("shm", 2), ("gloo", 2)):
            with self.subTest(backend=backend):
                j = self.run_ctrain("bench", "comm", self.config(), "--steps", 1, "--procs", procs, f"dist.backend={backend}").json()
                self.assertEqual((j["bench"], j["backend"], j["world_size"]), ("comm", backend, procs))
                rows = {(r["op"], r["bytes"]): r for r in j["rows"]}
                self.assertEqual({op for op, _ in rows}, {"allreduce", "allgather", "broadcast", "reduce_scatter"})
                for op, factor in (("allreduce", 2 * (procs - 1) / procs), ("allgather", (procs - 1) / procs), ("broadcast", 1)):
                    for size in (4096, 100 << 20):
                        r = rows[op, size]
                        self.assertEqual(r["rounds"], 1)
                        # nccl-tests' meaning: bytes / time, and what a link must carry of it.
                        self.assertAlmostEqual(r["algbw_gbps"] * r["us"] * 1e3 / size, 1, delta=1e-6)
                        self.assertAlmostEqual(r["busbw_gbps"], r["algbw_gbps"] * factor, delta=1e-9 + 1e-6 * r["algbw_gbps"])

    def test_steps_that_are_no_number(self):
        for part, text in (("step", "x"), ("loader", "0"), ("comm", "5x"), ("comm", "1000000000")):
            with self.subTest(part=part):
                r = self.run_ctrain("bench", part, self.config(), "--steps", text, expect=USAGE)
                self.assert_last_says(r, f"--steps {text}")


if __name__ == "__main__":
    main()
