#!/usr/bin/env python3
"""Checks that the program reads each config key, so that no key is accepted without having an effect.

usage: tests/style/config_keys.py [ROOT]

A key counts as read if code outside trainer/config uses its field through a variable or field named c, cfg or config, such as `cfg->optim.lr`,
and does not only assign it. Whether the value then has the right effect is not checked here.
"""
import os
import re
import sys
import tempfile

DIRECTORIES = ("base", "nn", "data", "dist", "infer", "trainer")
KEYS = "trainer/config/keys.def"
COMMENT = re.compile(r"/\*(?s:.*?)\*/|//.*")
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
ENTRY = re.compile(r"^(KEY|PART|TOP|RANGE)\(([^()]*?),\s*(?:[A-Z]|\.)", re.MULTILINE)
# A use of a field, and not an assignment.
USE = re.compile(r"\b(?:c|cfg|config)(?:->|\.)([a-z_]\w*(?:\.\w+)*)\b(?!\s*=[^=])")


def fields(root):
    """Yields the line and the path of each field of the config: (53, "optim.lr")."""
    with open(os.path.join(root, KEYS), encoding="utf-8") as f:
        source = f.read()
    for m in ENTRY.finditer(source):
        section, *names = [s.strip() for s in m.group(2).split(",")]
        if m.group(1) == "TOP":
            paths = [section]
        elif m.group(1) == "RANGE":
            paths = [f"{section}.{name}" for name in names]
        else:
            paths = [f"{section}.{names[-1]}"]
        for path in paths:
            yield source.count("\n", 0, m.start()) + 1, path


def uses(root):
    """The fields that the code outside trainer/config reads, and the sections that contain them."""
    found = set()
    for directory in DIRECTORIES:
        for at, _, names in os.walk(os.path.join(root, directory)):
            if os.path.relpath(at, root).split(os.sep)[:2] == ["trainer", "config"]:
                continue
            for name in names:
                if not name.endswith((".c", ".h", ".cc")):
                    continue
                with open(os.path.join(at, name), encoding="utf-8", errors="replace") as f:
                    code = STRING.sub('""', COMMENT.sub(" ", f.read()))
                for path in USE.findall(code):
                    found.update(path[:m.start()] for m in re.finditer(r"\.|$", path))
    return found


def offences(root):
    found = uses(root)
    return [f"{KEYS}:{line}: no code reads the key's field {path}" for line, path in fields(root) if path not in found]


def self_test():
    """Plants keys that are read, assigned, named in comments, and forgotten."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in ((KEYS, 'KEY(a, used, INT, .lo = 1)\nKEY(a, forgotten, INT, .doc = "s->a.forgotten")\nKEY(a.b, deep, BOOL,\n    .def = "0")\n'
                                  "KEY(a, assigned, INT, LEARNED)\nPART(a, b.size, b_size, SIZES, ADVANCED)\nTOP(top, ENUM(ct_top, CT_TOPS), LEARNED)\n"
                                  "TOP(other, STR, .choices = WORDS(\"x\"))\nRANGE(a, most, least, .lo = 1)\nKEY(a, kind, ENUM(ct_kind, CT_KINDS), LEARNED)\n"),
                           ("trainer/config/check.c", "int f(struct c *c) { return c->a.forgotten + c->other; }\n"),
                           ("trainer/run/x.c", "/* c->a.forgotten */ const char *s = \"c->a.forgotten\";\nint g = cfg->a.used + s->cfg.a.b.deep + c->a.most;\n"
                                               "void h(void) { c->a.assigned = 3; if (cfg->top == 1) f(&cfg->a.b_size.v, c->a.kind); x->other = 1; }\n")):
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
        found = [o.split()[-1] for o in offences(root)]
    if found != ["a.forgotten", "a.assigned", "other", "a.least"]:
        sys.exit(f"tests/style/config_keys.py: the self-test found {found}")


def main():
    self_test()
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    n_fields = sum(1 for _ in fields(root))
    found = offences(root)
    print(*found, sep="\n", end="\n" * bool(found))
    if n_fields < 100:
        sys.exit(f"{KEYS}: only {n_fields} fields were found")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
