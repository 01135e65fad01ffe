"""A thousand runs that end in different ways, at different moments. Each ends soon, with the right exit code, and leaves no process."""

import collections
import os
import random
import shutil
import signal
import time

from harness import COMM, OK, STOPPED, Case, main

RUNS = 1000
# The run may end before the signal, and the signal may arrive before ctrain handles it.
CODES = {"finish": (OK,), "stop": (OK, STOPPED, -signal.SIGTERM), "kill": (OK, COMM, -signal.SIGKILL)}


class Ends(Case):
    def end_one(self, r, how):
        sets = ("--procs", r.choice((2, 3)), f"dist.backend={r.choice(('shm', 'gloo'))}", f"train.max_steps={r.randrange(1, 40)}",
                f"checkpoint.every_steps={r.randrange(2, 20)}")
        p = self.start_training(*sets, "train.epochs=100")
        if how != "finish":
            time.sleep(r.uniform(0, 0.3))  # any moment of the run
        if how == "stop":
            p.signal(signal.SIGTERM)
        elif how == "kill" and self.marked():
            try:
                os.kill(r.choice(sorted(self.marked())), signal.SIGKILL)
            except (ProcessLookupError, IndexError):
                pass  # it has just ended
        result = p.wait(20)
        self.assertIn(result.code, CODES[how], result.describe())
        self.until(lambda: not self.marked(), "no process was left", seconds=5)
        shutil.rmtree(self.path("run"), ignore_errors=True)
        return result.code

    def test_row_20_a_thousand_ends(self):
        r = random.Random(20)
        seen = collections.Counter()
        for i in range(RUNS):
            how = r.choice(tuple(CODES))
            with self.subTest(run=i, how=how):
                seen[how, self.end_one(r, how)] += 1
        for end in (("finish", OK), ("stop", STOPPED), ("kill", COMM), ("kill", -signal.SIGKILL)):
            self.assertGreater(seen[end], 0, seen)


if __name__ == "__main__":
    main()
