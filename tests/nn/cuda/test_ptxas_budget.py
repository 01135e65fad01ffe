"""ptxas_budget.py finds kernels that exceed their budget."""

import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ptxas_budget.py")
ENTRY = """ptxas info    : Compiling entry function '{name}' for '{arch}'
ptxas info    : Function properties for {name}
    {stack} bytes stack frame, {spilled} bytes spill stores, {spilled} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers{shared}
"""


def report(registers=30, stack=0, spilled=0, shared=1024, name="_Z3addIfEv4args", archs=("sm_80", "sm_90", "sm_100")):
    return "ptxas info    : 0 bytes gmem\n" + "".join(
        ENTRY.format(name=name, arch=arch, registers=registers, stack=stack, spilled=spilled, shared=f", {shared} bytes smem" if shared else "")
        for arch in archs)


class Budget(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory(prefix="ctrain-ptxas-")
        self.addCleanup(self.tmp.cleanup)
        self.budget = os.path.join(self.tmp.name, "budget.tsv")
        self.run_script("--write", report())

    def run_script(self, *args):
        *options, text = args
        path = os.path.join(self.tmp.name, "vec.cu.o.ptxas")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return subprocess.run([sys.executable, "-B", SCRIPT, *options, self.budget, path], capture_output=True, text=True)

    def check(self, text, *says):
        r = self.run_script(text)
        self.assertEqual(r.returncode, 1 if says else 0, r.stderr)
        for s in says:
            self.assertIn(s, r.stderr)

    def test_same(self):
        with open(self.budget, encoding="utf-8") as f:
            self.assertIn("\nvec add<float>\t30\t30\t30\t1024\t0\n", f.read())
        self.check(report())

    def test_tolerance(self):
        self.check(report(38))
        self.check(report(39), "vec add<float>: 39 registers on sm_90, the budget is 38")

    def test_memory(self):
        self.check(report(shared=1028), "1028 bytes of shared, the budget is 1024")
        self.check(report(stack=8), "8 bytes of stack, the budget is 0")

    def test_spills(self):
        self.check(report(spilled=4, archs=("sm_80",)) + report(archs=("sm_90", "sm_100")), "8 bytes of registers are spilled on sm_80")
        self.run_script("--write", report(spilled=4))
        self.check(report(spilled=4), "are spilled")

    def test_new_kernel(self):
        self.check(report() + report(64, name="_Z3newIfEv4args"))
        self.check(report() + report(65, name="_Z3newIfEv4args"), "vec new<float>: 65 registers on sm_90, the budget is 64")

    def test_missing_architecture(self):
        self.check(report(archs=("sm_80", "sm_90")), "not compiled for sm_100")

    def test_empty_report(self):
        self.check("", "has no kernels")


if __name__ == "__main__":
    unittest.main()
