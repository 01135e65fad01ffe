"""sass_budget.py counts what it says, and finds kernels that became worse."""

import contextlib
import io
import os
import tempfile
import unittest
import unittest.mock

import sass_budget

TEXT = """
	.section	.text._Z3addv,"ax",@progbits
.text._Z3addv:
        .type           _Z3addv,@function
_Z3addv:
        /*0000*/                   LDG.E R0, desc[UR4][R2.64] ;
        /*0010*/                   LDG.E R1, desc[UR4][R2.64+0x4] ;
        /*0020*/                   LDG.E R9, desc[UR4][R2.64+0x8] ;
        /*0030*/                   I2F.U32.RP R5, R6 ;
        /*0040*/              @!P0 BRA `(.L_x_3) ;
.L_x_1:
        /*0050*/                   LDG.E.128 R12, desc[UR4][R2.64] ;
        /*0060*/              @!P1 LDG.E.64 R16, desc[UR4][R4.64] ;
{between}
        /*0090*/                   FADD R8, R15, R17 ;
        /*00a0*/                   STL [R1], R8 ;
        /*00b0*/              @!P2 BRA `(.L_x_1) ;
        /*00c0*/                   CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_rn_f64_full) ;
.L_x_3:
        /*00d0*/                   EXIT ;
.L_x_4:
        /*00e0*/                   BRA `(.L_x_4);
        /*00f0*/                   NOP;
        .type           $__internal_0_$__cuda_sm20_div_rn_f64_full,@function
$__internal_0_$__cuda_sm20_div_rn_f64_full:
        /*0100*/                   I2F.RP R5, R6 ;
        /*0110*/                   RET.REL.NODEC R4 `(_Z3addv) ;
"""


def facts(between=""):
    return sass_budget.facts(sass_budget.read_kernels(TEXT.replace("{between}", between))["_Z3addv"])


class Facts(unittest.TestCase):
    def test_counts(self):
        self.assertEqual(facts(), {"size": 12, "loads": 2, "bytes": 24, "fp64": 1, "divisions": 1, "in_loops": 0, "local": 1})

    def test_use_ends_the_group(self):
        self.assertEqual(facts("        /*0070*/ FADD R30, R13, R31 ;\n        /*0080*/ LDG.E R18, desc[UR4][R6.64] ;")["bytes"], 24)
        self.assertEqual(facts("        /*0070*/ FADD R30, R11, R31 ;\n        /*0080*/ LDG.E R18, desc[UR4][R6.64] ;")["bytes"], 28)

    def test_branch_ends_the_group(self):
        self.assertEqual(facts("        /*0070*/ @P3 BRA `(.L_x_3) ;\n        /*0080*/ LDG.E R18, desc[UR4][R6.64] ;")["bytes"], 24)

    def test_divisions_in_loops(self):
        self.assertEqual(facts("        /*0070*/ I2F.RP R30, R31 ;")["in_loops"], 1)
        self.assertEqual(facts("        /*0070*/ CALL.REL.NOINC `($__internal_1_$__cuda_sm20_rem_u64) ;")["in_loops"], 1)

    def test_loop_with_code_elsewhere(self):
        """A block that is placed after the loop and goes on after it is in no loop."""
        text = TEXT.replace("{between}", "").replace(".L_x_4:", ".L_x_5:\n        /*00d8*/ I2F.RP R30, R31 ;\n        /*00d9*/ BRA `(.L_x_3) ;\n.L_x_4:")
        self.assertEqual(sass_budget.facts(sass_budget.read_kernels(text)["_Z3addv"])["in_loops"], 0)

    def test_resident_warps(self):
        self.assertEqual(sass_budget.resident_warps("sm_90", 256, 80, 32768), 24)  # three blocks: registers
        self.assertEqual(sass_budget.resident_warps("sm_90", 256, 32, 65536), 24)  # three blocks: shared memory
        self.assertEqual(sass_budget.resident_warps("sm_80", 256, 32, 0), 64)


class Table(unittest.TestCase):
    def setUp(self):
        self.row = {"size": 100, "loads": 4, "bytes": 64, "fp64": 0, "divisions": 2, "in_loops": 0, "local": 0, "warps": 32}
        self.table = {"vec add<bf16>": {arch: dict(self.row) for arch in sass_budget.ARCHS}}

    def found(self, arch="sm_90", **changes):
        return {"vec add<bf16>": {a: {**self.row, **(changes if a == arch else {})} for a in sass_budget.ARCHS}}

    def test_same_or_better(self):
        self.assertEqual(sass_budget.compare(self.found(), self.table), [])
        self.assertEqual(sass_budget.compare(self.found(loads=8, bytes=128, divisions=0, warps=64, size=125), self.table), [])

    def test_worse(self):
        for field, value in (("size", 126), ("loads", 3), ("bytes", 63), ("fp64", 1), ("divisions", 3), ("in_loops", 1), ("warps", 24)):
            self.assertEqual(sass_budget.compare(self.found(**{field: value}), self.table),
                             [f"vec add<bf16> on sm_90: {field} {self.row[field]} -> {value}"])

    def test_rules(self):
        rules = sass_budget.RULES
        self.addCleanup(setattr, sass_budget, "RULES", rules)
        sass_budget.RULES = ((r"vec .*", "local", 0),)
        self.assertEqual(sass_budget.broken_rules(self.found()), [])
        self.assertIn("local is 2", sass_budget.broken_rules(self.found(local=2))[0])
        sass_budget.RULES = ((r"vector .*", "local", 0),)
        self.assertEqual(sass_budget.broken_rules(self.found()), ["no kernel matches vector .*, which has a rule for local"])

    def test_only_in_one(self):
        self.assertEqual(sass_budget.compare(self.found(), {}), ["vec add<bf16>: no row"])
        self.assertEqual(sass_budget.compare({}, self.table), ["vec add<bf16>: no kernel"])

    def test_missing_architecture(self):
        found = self.found()
        self.assertEqual(sass_budget.missing_code(found), [])
        del found["vec add<bf16>"]["sm_100"]
        self.assertEqual(sass_budget.missing_code(found), ["vec add<bf16>: no code for sm_100"])

    def test_differences(self):
        self.assertEqual(sass_budget.differences(self.found(), self.table), [])
        self.assertIn("loads 4 -> 4/1/4, warps 32 -> 32/24/32", sass_budget.differences(self.found(loads=1, warps=24), self.table)[0])


class Program(unittest.TestCase):
    """main with a compiler that prints a version, and without objects."""

    def setUp(self):
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.path, self.nvcc = os.path.join(tmp.name, "table.tsv"), os.path.join(tmp.name, "nvcc")
        with open(self.nvcc, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
        os.chmod(self.nvcc, 0o755)
        self.row = {"size": 100, "loads": 4, "bytes": 64, "fp64": 0, "divisions": 0, "in_loops": 0, "local": 0, "warps": 32}

    def run_main(self, *options, archs=sass_budget.ARCHS, **changes):
        """(message of the exit or None, output)"""
        found = {"vec add<bf16>": {a: {**self.row, **changes} for a in archs}}
        output = io.StringIO()
        with unittest.mock.patch.object(sass_budget, "read_objects", return_value=found), contextlib.redirect_stdout(output), \
                unittest.mock.patch.object(sass_budget, "RULES", ((r".*", "local", 0),)), \
                unittest.mock.patch("sys.argv", ["sass_budget.py", *options, self.path, self.nvcc, "tools", "report"]):
            try:
                sass_budget.main()
            except SystemExit as e:
                return e.code, output.getvalue()
        return None, output.getvalue()

    def edit(self, old, new):
        with open(self.path, encoding="utf-8") as f:
            table = f.read()
        self.assertIn(old, table)
        with open(self.path, "w", encoding="utf-8") as f:
            f.write(table.replace(old, new))

    def test_writes_and_compares(self):
        self.assertIn("No such file", self.run_main()[0])
        self.assertIsNone(self.run_main("--write")[0])
        self.assertIsNone(self.run_main()[0])
        self.assertIn("loads 4 -> 3", self.run_main(loads=3)[0])

    def test_incompatible_table(self):
        self.run_main("--write")
        self.edit("loads", "reads")
        self.assertIn("columns", self.run_main()[0])
        self.assertIsNone(self.run_main("--write")[0])
        self.assertIsNone(self.run_main()[0])

    def test_missing_architecture_is_not_written(self):
        self.assertIn("no code for sm_100", self.run_main("--write", archs=("sm_80", "sm_90"))[0])
        self.assertFalse(os.path.exists(self.path))

    def test_another_compiler(self):
        self.run_main("--write")
        self.edit("V13.0.88", "V13.1.1")
        code, output = self.run_main(loads=3)
        self.assertIsNone(code)
        self.assertIn("only the rules are checked", output)
        self.assertIn("local is 1", self.run_main(local=1)[0])


if __name__ == "__main__":
    unittest.main()
