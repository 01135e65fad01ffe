#!/usr/bin/env python3
"""scripts/format.py finds a missing blank line after declarations, and functions that are too long. usage: format_self_test.py SCRIPTS"""
import sys
import unittest

sys.path.insert(0, sys.argv.pop(1))
import format as rules  # noqa: E402

BODY = """int f(int a)
{{
{}
}}
"""


def missing(body):
    return [at - 1 for at in rules.missing_blank_lines(BODY.format(body).split("\n"))]


class Format(unittest.TestCase):
    def test_blank_line_after_declarations(self):
        for declaration in ("int x = a;", "const struct ct_x *x = g(a);", "enum e *const *x;", "int (*x)(int) = g;", "size_t x[3];",
                            "static const char *const x[] = {\n\t\t\"a\",\n\t};", "struct {\n\t\tint a;\n\t} x;", "unsigned x, y;"):
            self.assertEqual([], missing(f"\t{declaration}\n\n\tg(a);"), declaration)
            self.assertEqual([], missing(f"\t{declaration}"), declaration)
            self.assertEqual([1 + len(declaration.split("\n"))], missing(f"\t{declaration}\n\tg(a);"), declaration)
            self.assertEqual([], missing(f"\t{declaration}\n\t/* Why. */\n\tint z;\n\n\tg(a);"), declaration)
        self.assertEqual([3], missing("\tif (a) {\n\t\tint x = a;\n\t\tg(x);\n\t}"))

    def test_statements(self):
        for statement in ("return a;", "goto out;", "g(a);", "a = 1;", "a *= 2;", "*p = a;", "CT_TRY(g(a));", "sizeof(a);", "else_(a);"):
            self.assertEqual([], missing(f"\t{statement}\n\tg(a);"), statement)
        self.assertEqual([], missing("\tstruct x y = {\n\t\t.a = {\n\t\t\t1,\n\t\t},\n\t};"))

    def test_long_functions(self):
        for n, offences in ((60, 0), (61, 1)):
            lines = BODY.format("\n".join("\tg(a);" for _ in range(n))).split("\n")
            self.assertEqual(offences, len(rules.too_long("a.c", lines)))
        self.assertIn("f has 61 lines", rules.too_long("a.c", lines)[0][1])
        rules.LONG[("a.c", "f")] = rules.LONG[("b.c", "f")] = "a reason"
        self.assertEqual([], rules.too_long("a.c", lines))
        self.assertIn("f has at most 60 lines: remove it", rules.too_long("b.c", lines[1:])[0][1])
        rules.LONG[("a.c", "g")] = "a reason"
        self.assertIn("g has at most 60 lines: remove it", rules.too_long("a.c", lines)[0][1])


if __name__ == "__main__":
    unittest.main()
