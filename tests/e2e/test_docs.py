"""What README and docs/ show is true: examples run, files exist, commands and options are known, fields are those that a run writes."""

import ast
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import time
import unittest

try:
    import jsonschema
except ImportError:
    jsonschema = None

import doc_commands
from harness import SOURCE, Case, main, read_text

PAGES = sorted(glob.glob(os.path.join(SOURCE, "*.md")) + glob.glob(os.path.join(SOURCE, "d*", "*.md")))
# What an example that shows one section needs besides.
REST = """
data: {name: synthetic, shape: [1, 28, 28], classes: 10, n_train: 256, n_val: 64}
batch: {per_rank: 32}
train: {epochs: 1}
"""
# Words of CONTRIBUTING.md's glossary that texts avoid, and what is checked so far: add directories as they become clean.
BANNED = re.compile(
    r"(?<!\.)\b(folders?|blanks|nobody|somebody|everybody|afresh|for ever|as it stands|left alone|passed over|pictures?|"
    r"colours?|neighbours?|last words|kept index(es)?|whose turn|an? whole number|texts|goodbyes?|greetings?|our (own )?kernels?|DESIGN [0-9])\b",
    re.I,
)
PLAIN = ("README.md", "docs/*.md", "configs/*.yaml", "trainer/*.[ch]", "trainer/*/*.[ch]", "trainer/*/*/*.[ch]", "trainer/*/*.def",
         "bench/*.[ch]", "base/*.[ch]", "base/*/*.[ch]", "base/*/*/*.[ch]", "dist/*.[ch]", "dist/*/*.[ch]", "dist/*/*/*.[ch]",
         "dist/*/*/*.cc", "tests/*.[ch]", "tests/base/*.[ch]", "tests/dist/*.[ch]", "tests/nn/*.[ch]", "tests/nn/*/*.[ch]", "tests/data/*.[ch]",
         "tests/trainer/*.[ch]", "tests/trainer/*/*.[ch]", "tests/golden/*.[ch]", "tests/e2e/*.py", "examples/*.c",
         "data/*.[ch]", "data/*/*.[ch]", "infer/*.[ch]", "infer/*/*.[ch]", "tests/infer/*.[ch]", "nn/*.[ch]", "nn/*/*.[ch]", "nn/*/*/*.[ch]")


def prose(path, text):
    """(line, text) of what people read: everything in a page or config; comments and messages in C, docstrings in Python."""
    if path.endswith(".py"):
        documented = (node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)))
        return [(node.body[0].lineno, ast.get_docstring(node)) for node in documented if ast.get_docstring(node)]
    if not path.endswith((".c", ".h", ".def", ".cc")):
        return list(enumerate(text.split("\n"), 1))
    parts = re.finditer(r'/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', text, re.S)
    return [(text.count("\n", 0, m.start()) + 1, re.sub(r"\s*\n[\s*]*", " ", m[0])) for m in parts if " " in m[0]]


def banned_words(path, text):
    return [f"{path}:{line}: {m[0]}" for line, part in prose(path, text) for m in BANNED.finditer(part)]


def literals(text):
    """The string literals of a C file, one per line; adjacent ones are joined."""
    string = r'"(?:[^"\\\n]|\\.)*"'
    joined = (re.findall(string, m[0]) for m in re.finditer(rf"{string}(?:\s*(?:PRI\w+\s*)?{string})*", text))
    return "\n".join("".join(s[1:-1] for s in parts) for parts in joined)


FOLDERS = ("base", "bench", "cmake", "configs", "data", "dist", "docker", "docs", "infer", "nn", "scripts", "tests", "trainer")


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", read_text(page), re.S | re.M)


class Docs(Case):
    def test_models(self):
        """Every example of MODELS.md is a network that trains."""
        examples = blocks(os.path.join(SOURCE, "docs", "MODELS.md"), "yaml")
        self.assertGreater(len(examples), 3)
        for i, text in enumerate(examples):
            with self.subTest(example=text):
                self.train("train.max_steps=2", run=f"run-{i}", config=self.config(text + REST, f"example-{i}.yaml"))

    def test_model_facts(self):
        page = read_text(os.path.join(SOURCE, "docs", "MODELS.md"))
        for name in self.schema("model", "name")["enum"]:
            self.assertRegex(page, rf"(?m)^\| `{name}` \|", "MODELS.md has no row for this model")
        for name, count in re.findall(r"^\| `(\w+)` \|.*\| ([\d,]+)(?: with .*)? \|$", page, re.M):
            with self.subTest(model=name):
                r = self.run_ctrain("plan", self.config("model: {}" + REST, "plain.yaml"), f"model.name={name}", "--no-measure")
                self.assertIn(f"{name}: {count.replace(',', '')} parameters", r.out)

    def schema(self, section, key):
        with open(os.path.join(SOURCE, "docs", "config.schema.json"), encoding="utf-8") as f:
            return json.load(f)["properties"][section]["properties"][key]

    @unittest.skipUnless(jsonschema, "no python3-jsonschema")
    def test_json_schema(self):
        """The schema is valid, as are its defaults and examples, and it accepts the configs and refuses wrong values."""
        with open(os.path.join(SOURCE, "docs", "config.schema.json"), encoding="utf-8") as f:
            schema = json.load(f)
        jsonschema.Draft7Validator.check_schema(schema)
        keys = [("", schema)]
        for name, part in keys:
            for value in part.get("examples", []) + ([part["default"]] if "default" in part else []):
                with self.subTest(key=name, value=value):
                    jsonschema.Draft7Validator(part).validate(value)
            keys += [(f"{name}.{k}", p) for k, p in part.get("properties", {}).items()]
        self.assertGreater(sum("examples" in part for _, part in keys), 30)
        good = {"optim": {"lr": 0.1}, "schedule": {"milestones": [30, 60]}, "launch": {"procs": "auto"}}
        jsonschema.Draft7Validator(schema).validate(good)
        for bad in ({"optim": {"lr": 0}}, {"optim": {"learning_rate": 0.1}}, {"schedule": {"milestones": 30}}):
            self.assertFalse(jsonschema.Draft7Validator(schema).is_valid(bad), bad)

    def test_row_40_communicators(self):
        """DISTRIBUTED.md describes every communicator."""
        page = read_text(os.path.join(SOURCE, "docs", "DISTRIBUTED.md"))
        for name in self.schema("dist", "backend")["enum"]:
            self.assertIn(f"`{name}`", page)

    def test_row_121_and_125_coming_from(self):
        """The examples of COMING_FROM.md: `$ COMMAND`, and what it prints."""
        page = os.path.join(SOURCE, "docs", "COMING_FROM.md")
        for text in blocks(page, "yaml"):
            self.write("default_config.yaml", text)
        examples = [b for b in blocks(page, "") if b.startswith("$ ctrain import ")]
        self.assertGreater(len(examples), 7)
        for text in examples:
            command, wanted = text.split("\n", 1)
            with self.subTest(command=command):
                r = self.run_ctrain(*shlex.split(command)[2:], cwd=self.path(""))
                self.assertEqual(r.out, wanted)

    def test_features(self):
        """FEATURES.md lists all rows, each with a test case that has the number of the row in its name; and all named test cases exist."""
        page = read_text(os.path.join(SOURCE, "docs", "FEATURES.md"))
        rows = {row: tests for row, tests in re.findall(r"(?m)^\| (T?\d+) \|.*\| (`(?:tests|scripts)/.*) \|$", page)}
        for row in [str(n) for n in (*range(1, 46), *range(98, 126))] + [f"T{n}" for n in range(1, 15)]:
            self.assertTrue(row in rows, f"row {row} is missing")
            name = rf"_(trap_{row[1:]}|{row})_" if row[0] == "T" else rf"_row_(\d+_and_)?0?{row}_"
            self.assertRegex(rows[row], name, f"row {row} has no test named after it")
        for path, names in re.findall(r"`((?:tests|scripts)/[\w/]+\.\w+)`((?: `\w+\*?`,?)*)", page):
            text = read_text(os.path.join(SOURCE, path))
            self.assertTrue(text, f"there is no {path}")
            for name in re.findall(r"\w+\*?", names):
                with self.subTest(path=path, name=name):
                    self.assertTrue(re.search(rf"\b{name.replace('*', r'[a-z_0-9]+')}\(", text), "there is no such test case")

    def test_troubleshooting(self):
        """The messages in the first columns of TROUBLESHOOTING.md are those of the program; "..." stands for what varies."""
        sources = [p for d in ("base", "nn", "data", "dist", "trainer") for p in glob.glob(os.path.join(SOURCE, d, "**", "*.[ch]"), recursive=True)]
        known = "\n".join(literals(read_text(path)) for path in sources)
        page = read_text(os.path.join(SOURCE, "docs", "TROUBLESHOOTING.md"))
        quoted = [q for cell in re.findall(r"(?m)^\| (.*?) \|", page) for q in re.findall(r"`([^`]* [^`]*)`", cell)]
        self.assertGreater(len(quoted), 25)
        for message in quoted:
            with self.subTest(message=message):
                pattern = r"[^\n]{1,30}".join(re.escape(part) for part in message.split("..."))
                self.assertTrue(re.search(pattern, known), "no message of the program has this")

    def test_switches(self):
        """The switches in GPU.md exist: config keys with valid values, and environment variables that ctrain or NCCL reads."""
        page = read_text(os.path.join(SOURCE, "docs", "GPU.md"))
        rules = read_text(os.path.join(SOURCE, "dist", "settings", "table.c"))
        level = read_text(os.path.join(SOURCE, "nn", "cuda", "cuda_engine.c"))
        switches = re.findall(r"(?m)^\| \d+ \| .* \| `([^`]*)` \| .* \|$", page)
        self.assertGreater(len(switches), 12)
        for switch in switches:
            with self.subTest(switch=switch):
                name = switch.split("=")[0]
                if name.startswith("NCCL_"):
                    self.assertTrue(f'"{name}"' in rules or f"({name[5:]})" in rules, "NCCL does not read it")
                elif name == name.upper():
                    self.assertTrue(name == "CUDA_LAUNCH_BLOCKING" or f'"{name}"' in level, "nothing reads it")
                else:
                    self.run_ctrain("check", self.config(), switch)

    def test_plain_english(self):
        """Pages, config documentation, comments and messages use the words of the glossary."""
        found = []
        for pattern in PLAIN:
            paths = glob.glob(os.path.join(SOURCE, pattern))
            self.assertTrue(paths, pattern)
            for path in paths:
                found += banned_words(os.path.relpath(path, SOURCE), read_text(path))
        self.assertEqual([], found)

    def test_plain_english_can_fail(self):
        text = 'int folder; /* of the\n * folder */\nfail("cannot read folder");\n'
        self.assertEqual(["x.c:1: folder", "x.c:3: folder"], banned_words("x.c", text))
        self.assertEqual(["x.py:2: folder"], banned_words("x.py", 'def folder():\n    """The folder."""\n'))
        self.assertEqual(["x.md:2: nobody"], banned_words("x.md", "fine\nnobody reads it\n"))

    def test_paths(self):
        """Files of the repository that a page names are there."""
        for page in PAGES:
            text = re.sub(r"<!--.*?-->", "", read_text(page), flags=re.S)
            named = set(re.findall(rf"(?<![\w/.~$-])((?:{'|'.join(FOLDERS)})/[\w./*{{}},-]*[\w*}}])", text))
            linked = {os.path.join(os.path.relpath(os.path.dirname(page), SOURCE), m) for m in re.findall(r"\]\(([\w./-]+)\)", text)}
            for path in named | linked:
                with self.subTest(page=os.path.relpath(page, SOURCE), path=path):
                    options = re.fullmatch(r"(.*)\{(.*)\}(.*)", path)
                    for one in [options[1] + o + options[3] for o in options[2].split(",")] if options else [path]:
                        self.assertTrue(glob.glob(os.path.join(SOURCE, one)), f"there is no {one}")

    def test_anchors(self):
        """A link to a section leads to one; a repository's web pages and mkdocs name sections alike."""
        sections = {page: {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in re.findall(r"(?m)^#+ (.*)$", read_text(page))}
                    for page in PAGES}
        links = [(page, os.path.normpath(os.path.join(os.path.dirname(page), to)) if to else page, anchor)
                 for page in PAGES for to, anchor in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", read_text(page))]
        self.assertGreater(len(links), 10)
        for page, to, anchor in links:
            with self.subTest(page=os.path.relpath(page, SOURCE), to=os.path.relpath(to, SOURCE)):
                self.assertIn(anchor, sections[to])

    def test_source_tree(self):
        """ARCHITECTURE.md describes every directory with sources, and names those of back ends, which contain all communicators."""
        page = read_text(os.path.join(SOURCE, "docs", "ARCHITECTURE.md"))
        tree = page[page.index("\n## Source tree\n"):page.index("\n## The libraries of trainer/\n")]
        rows = re.findall(r"(?m)^\| (`[^|]*`) \| (.*) \|$", tree)
        directories = re.findall(r"(?m)^([\w/]+):", read_text(os.path.join(SOURCE, "scripts", "arrows.txt")))
        self.assertGreater(len(directories), 60)
        for directory in directories:
            above, name = os.path.split(directory)
            described = any(f"`{directory}/`" in names or f"`{above}/`" in names and f"`{name}/`" in text for names, text in rows)
            self.assertTrue(described, f"the source tree of ARCHITECTURE.md has no row for {directory}/")
        backends = re.search(r'split\("([^"]*)", backends', read_text(os.path.join(SOURCE, "scripts", "check_style.sh")))[1].split()
        listed = re.search(r"every header of a back-end directory \(([^)]*)\)", page)[1]
        self.assertEqual(backends, re.findall("`(.*?)`", listed))
        for directory in directories:
            if directory.startswith("dist/comm/"):
                self.assertIn(directory, backends, "the list `backends` of scripts/check_style.sh lacks a communicator")

    def test_list_of_pages(self):
        """README lists all pages; the menu of the web site is this list."""
        for page in os.listdir(os.path.join(SOURCE, "docs")):
            if page.endswith(".md"):
                self.assertIn(f"\n| [docs/{page}](docs/{page}) |", read_text(os.path.join(SOURCE, "README.md")))

    @unittest.skipUnless(shutil.which("mkdocs"), "mkdocs is not installed")
    def test_web_site(self):
        """scripts/site.sh, which fails for a link to a missing page, makes pages that load nothing from the network."""
        site = self.path("site")
        r = subprocess.run([os.path.join(SOURCE, "scripts", "site.sh"), site], capture_output=True, text=True, check=False)
        self.assertEqual((r.returncode, r.stdout), (0, f"site: {site}/index.html\n"), r.stderr)
        pages = glob.glob(os.path.join(site, "*.html"))
        self.assertGreaterEqual(len(pages), len(PAGES))
        for page in pages:
            self.assertEqual([], re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=.(?:https?:)?//.*?>", read_text(page)), page)

    def test_commands(self):
        """`ctrain ...` in pages: the command exists and knows the options; keys exist."""
        known = self.run_ctrain("help").out
        for page in PAGES:
            text = read_text(page)
            shell = re.findall(r"^ctrain (.*)", "\n".join(blocks(page, "sh")), re.M)
            inline = re.findall(r"`ctrain ([^`\n]*)`", re.sub(r"```.*?```", "", text, flags=re.S))
            for line in shell + inline:
                words = line.partition("#")[0].split()
                if not words or not re.match(r"[a-z]", words[0]):
                    continue
                with self.subTest(page=os.path.relpath(page, SOURCE), line=line):
                    command = [] if "." in words[0] else [words[0]]
                    if command:
                        self.assertRegex(known, rf"(?m)^  {re.escape(words[0])} ")
                    two = len(words) > 1 and re.search(rf"(?m)^  {words[0]} {re.escape(words[1])} ", known)
                    help_page = self.run_ctrain("help", *(words[:2] if two else command or ["train"])).out
                    for option in [w for w in words if w.startswith("--")]:
                        self.assertIn(option.partition("=")[0], help_page)
                    for key in [w.partition("=")[0] for w in words if re.match(r"[a-z]+\.[a-z_.]+=", w)]:
                        self.assertIn(key, self.run_ctrain("help", key).out)

    def test_commands_of_bare_systems(self):
        """The lists of commands that scripts/test_chroot.sh skips or prepares for are those of the pages."""
        steps = doc_commands.plan(doc_commands.read_pages())
        self.assertGreater(len([1 for step in steps if not step[3]]), 10)
        pages = {"a.md": "# A\n```sh\nmake x \\\n  y   # why\n\nmake z\n```\n"}
        skipped = {("a.md", "make z"): "no z here"}
        steps = doc_commands.plan(pages, skipped, {})
        self.assertEqual([step[1:4] for step in steps], [(3, "make x \\\n  y   # why", None), (6, "make z", "no z here")])
        self.assertIn("\nmake x \\\n  y   # why\n", doc_commands.script(steps))
        self.assertNotIn("make z", doc_commands.script(steps))
        for stale in ({("a.md", "make w"): "gone"}, {("b.md", "make z"): "gone"}):
            with self.assertRaisesRegex(SystemExit, "no such command.*\n(a.md: make w|b.md: make z)"):
                doc_commands.plan(pages, skipped, stale)
        for block in ("```bash\nctrain x\n```\n", "```\nCTRAIN_TOKEN=1 ctrain x\n```\n"):
            with self.assertRaisesRegex(SystemExit, "a.md:2: mark shell code as sh"):
                doc_commands.plan({"a.md": block}, {}, {})
        output = "```\nctrain 0.1.0\n```\n\n```\n$ ctrain x\nctrain y\n```\n"
        self.assertEqual(doc_commands.plan({"a.md": output}, {}, {}), [])

    def test_metrics_fields(self):
        """FORMATS.md names every field of metrics.jsonl, and no other."""
        table = {}
        section = read_text(os.path.join(SOURCE, "docs", "FORMATS.md")).partition("## metrics.jsonl")[2].partition("\n## ")[0]
        for kind, fields in re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.M):
            text = re.sub(r"\(.*?\)", "", fields)
            table[kind] = set(re.findall(r"\w+", text))
        before = time.time()
        self.train("checkpoint.every_steps=10", "--restarts", 3, env={"CTRAIN_FAILPOINT": "step:15@1"})
        after = time.time()
        written = {}
        for m in self.metrics():
            written.setdefault(m["kind"], set()).update(set(m) - {"v", "kind", "time"})
            self.assertTrue(before - 1 <= m["time"] <= after + 1, m)
        self.assertEqual(sorted(table), sorted(written))
        for kind, fields in written.items():
            self.assertEqual(sorted(fields), sorted(table[kind]), kind)

    def test_run_folder(self):
        """The files of FORMATS.md's first table are what a run leaves."""
        page = read_text(os.path.join(SOURCE, "docs", "FORMATS.md")).partition("## metrics")[0]
        self.train("checkpoint.every_steps=10", "log.tensorboard=true")
        named = [n for row in re.findall(r"^\| (`.*?) \|", page, re.M) for n in re.findall(r"`(.*?)`", row)]
        self.assertGreater(len(named), 5)
        for name in named:
            pattern = re.sub(r"\d{12}", "*", name)
            self.assertTrue(glob.glob(self.path("run", pattern)), f"no {name} in the run folder")
        for left in os.listdir(self.path("run")):
            self.assertTrue(any(left == n.split("/")[0] for n in named), f"FORMATS.md does not name {left}")


if __name__ == "__main__":
    main()
