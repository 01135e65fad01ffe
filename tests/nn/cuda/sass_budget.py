#!/usr/bin/env python3
"""Compares the machine code of GPU kernels with the table in sass_budget.tsv.

    sass_budget.py [--write] TABLE NVCC TOOLS REPORT...    NVCC is the compiler of the build, TOOLS the directory of cuobjdump and nvdisasm; a
                                                           report OBJECT.ptxas is beside OBJECT

The fields of a kernel, from its code for each architecture:
    size        instructions, without the functions that are called
    loads       global loads that are in flight together: the most in code without branches, before an instruction uses a result of one. If
                a loop loads, only loops count.
    bytes       the same in bytes per thread
    fp64        calls of functions that divide, invert or take roots of doubles
    divisions   integer divisions
    in_loops    those of them that are in loops
    local       accesses to local memory
    warps       warps per multiprocessor, as registers, static shared memory and threads permit
A kernel is worse than its row if loads, bytes or warps are lower, or if others are higher; the size may grow by a quarter. Each kernel must
have a row, and each row a kernel. RULES are limits that --write, which makes the rows anew, cannot change. If the table was made with another
version of nvcc, only the rules are checked.
"""

import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import ptxas_budget

ARCHS = ("sm_80", "sm_90", "sm_100")
MORE_IS_BETTER = ("loads", "bytes", "warps")
FIELDS = ("size", "loads", "bytes", "fp64", "divisions", "in_loops", "local", "warps")
COLUMNS = r"norm (forward_sums|backward_sums|apply|backward_data)<.*|bias_backward partial_sums<.*"
# (kernels, field, limit). An H100 has about 17 KB in flight per multiprocessor if its memory is busy all the time.
RULES = ((r".*", "local", 0), (COLUMNS, "bytes", 32), (COLUMNS, "fp64", 0), (COLUMNS, "in_loops", 0), (COLUMNS, "warps", 16),
         (r"pool .*", "in_loops", 0), (r"pool .*", "divisions", 4), (r"pool max_.*", "bytes", 24),
         (r"(input input|gather gather)<.*", "divisions", 2))
HEAD = """# The machine code of GPU kernels; sass_budget.py describes the fields. Where the architectures differ: sm_80/sm_90/sm_100. Written by:
# cmake --build build/release --target sass_budget
"""
# Kernels that are not launched with 256 threads per block.
THREADS = {r"loss rows<.*": 128, r"update (lamb_moments|lars_sums|norm_sums)": 1024, r"update factors": 64}
SHARED_BYTES = {"sm_80": 164 << 10, "sm_90": 228 << 10, "sm_100": 228 << 10}  # of a multiprocessor
MAX_WARPS, MAX_BLOCKS, REGISTERS, BLOCK_SHARED_BYTES = 64, 32, 65536, 1024

LINE = re.compile(r"^ +/\*[0-9a-f]+\*/ +(?:(@!?U?P\w+) +)?([A-Z0-9_]+)([A-Z0-9_.]*) *(.*?) *;?$")
LABEL = re.compile(r"^(\.L_x_\d+):")
TARGET = re.compile(r"`\((\.L_x_\d+)\)")
REGISTER = re.compile(r"\bR(\d+)(\.64)?\b")
FP64_CALL = re.compile(r"_f64|dblrcp|dsqrt|accurate_pow")
DIVISION_CALL = re.compile(r"sm20_(div|rem)_[us]64")
LOAD_BYTES = {".128": 16, ".64": 8, ".U16": 2, ".S16": 2, ".U8": 1, ".S8": 1}


class Instruction:
    def __init__(self, predicate, name, suffix, operands):
        self.predicate, self.name, self.suffix, self.operands = predicate, name, suffix, operands
        self.target = m[1] if (m := TARGET.search(operands)) else None
        self.is_load = name == "LDG"
        self.bytes = next((n for s, n in LOAD_BYTES.items() if s in suffix), 4)
        self.registers = {int(r[1]) + i for r in REGISTER.finditer(operands) for i in range(2 if r[2] else 1)}

    def loaded(self):
        first = int(REGISTER.search(self.operands)[1])
        return set(range(first, first + max(1, self.bytes // 4)))

    def branches(self):
        return self.name in ("BRA", "BRX", "EXIT", "RET", "CALL", "JMP")

    def falls_through(self):
        return self.name == "CALL" or not self.branches() or self.predicate is not None or "P" in self.operands.split("`")[0] or ".DIV" in self.suffix

    def is_division(self):
        return self.name == "I2F" and self.suffix.endswith(".RP") or self.name == "CALL" and bool(DIVISION_CALL.search(self.operands))


def read_kernels(text):
    """{mangled name: [blocks]}: the code of the kernels without the functions that they call, as lists of instructions, with labels"""
    kernels, blocks = {}, None
    for line in text.splitlines():
        if line.startswith(".text."):
            blocks = kernels.setdefault(line[len(".text."):].rstrip(":"), [("", [])])
        elif "@function" in line and line.split()[1].startswith("$"):
            blocks = [("", [])]
        elif blocks is not None and (m := LABEL.match(line)):
            blocks.append((m[1], []))
        elif blocks is not None and (m := LINE.match(line)):
            i = Instruction(*m.groups())
            if i.name == "NOP" or i.name == "BRA" and i.target == blocks[-1][0] and not blocks[-1][1]:  # padding
                continue
            blocks[-1][1].append(i)
            if i.branches():
                blocks.append(("", []))
    return kernels


def blocks_in_loops(blocks):
    """The indices of the blocks from which control can return to them."""
    labels = {label: b for b, (label, _) in enumerate(blocks) if label}
    after = []
    for b, (_, code) in enumerate(blocks):
        last = code[-1] if code else None
        after.append([labels[i.target] for i in code[-1:] if i.name == "BRA" and i.target in labels] +
                     ([b + 1] if b + 1 < len(blocks) and (last is None or last.falls_through()) else []))
    loops = set()
    for b in range(len(blocks)):
        seen, stack = set(), list(after[b])
        while stack and b not in seen:
            a = stack.pop()
            if a not in seen:
                seen.add(a)
                stack.extend(after[a])
        if b in seen:
            loops.add(b)
    return loops


def in_flight(block):
    """Of global loads that are in flight together: (number, bytes)"""
    most, now, pending = (0, 0), (0, 0), set()
    for i in block:
        if i.registers & pending:
            now, pending = (0, 0), set()
        if i.is_load:
            now, pending = (now[0] + 1, now[1] + i.bytes), pending | i.loaded()
            most = max(most, now, key=lambda n: n[1])
    return most


def facts(blocks):
    loops = blocks_in_loops(blocks)
    code = [(i, b in loops) for b, (_, block) in enumerate(blocks) for i in block]
    looped = any(i.is_load and loop for i, loop in code)
    loads, n_bytes = max((in_flight(block) for b, (_, block) in enumerate(blocks) if b in loops or not looped), key=lambda n: n[1])
    return {"size": len(code), "loads": loads, "bytes": n_bytes, "fp64": sum(i.name == "CALL" and bool(FP64_CALL.search(i.operands)) for i, _ in code),
            "divisions": sum(i.is_division() for i, _ in code), "in_loops": sum(i.is_division() for i, loop in code if loop),
            "local": sum(i.name in ("LDL", "STL") for i, _ in code)}


def resident_warps(arch, threads, registers, shared):
    warps = (threads + 31) // 32
    by_registers = REGISTERS // 4 // ((registers + 7) // 8 * 8 * 32) * 4 // warps
    by_shared = SHARED_BYTES[arch] // (BLOCK_SHARED_BYTES + (shared + 127) // 128 * 128)
    return min(by_registers, by_shared, MAX_BLOCKS, MAX_WARPS // warps) * warps


def disassemble(tools, report):
    """[(architecture, text)] of an object"""
    def run(tool, *args, **options):
        return subprocess.run([os.path.join(tools, tool), *args], capture_output=True, text=True, check=True, **options).stdout
    with tempfile.TemporaryDirectory(prefix="ctrain-sass-") as tmp:
        run("cuobjdump", "-xelf", "all", report[:-len(".ptxas")], cwd=tmp)
        return [(name.split(".")[-2], run("nvdisasm", "-c", "-ndf", os.path.join(tmp, name))) for name in sorted(os.listdir(tmp))]


def read_objects(tools, reports):
    """{"file kernel": {architecture: {field: value}}}"""
    found = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for report, code in zip(reports, pool.map(lambda r: disassemble(tools, r), reports)):
            used = ptxas_budget.read_report(report)
            names = ptxas_budget.demangled(sorted({name for name, _ in used}))
            for arch, text in code:
                for mangled, blocks in read_kernels(text).items():
                    name = f"{os.path.basename(report).split('.')[0]} {names[mangled]}"
                    threads = next((n for pattern, n in THREADS.items() if re.fullmatch(pattern, name)), 256)
                    k = used[mangled, arch]
                    found.setdefault(name, {})[arch] = {**facts(blocks), "warps": resident_warps(arch, threads, k["registers"], k["shared"])}
    return found


def row_of(kernel):
    """The cells of a row: one value, or one for each architecture."""
    cells = []
    for field in FIELDS:
        values = [str(kernel[arch][field]) for arch in ARCHS]
        cells.append(values[0] if len(set(values)) == 1 else "/".join(values))
    return cells


def read_table(path):
    """(version of nvcc, {"file kernel": {architecture: {field: value}}}); raises ValueError if the table is not one of this script."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    version = re.search(r"^# nvcc (\S+)$", text, re.MULTILINE)
    lines = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    if version is None or lines[:1] != [["kernel", *FIELDS]]:
        raise ValueError(f"{path}: the version of nvcc is missing, or the columns are not those of this script")
    table = {}
    for name, *cells in lines[1:]:
        for arch, values in zip(ARCHS, zip(*((c.split("/") * len(ARCHS))[:len(ARCHS)] for c in cells))):
            table.setdefault(name, {})[arch] = dict(zip(FIELDS, map(int, values), strict=True))
    return version[1], table


def is_worse(field, value, limit):
    return value < limit if field in MORE_IS_BETTER else value > (limit * 5 // 4 if field == "size" else limit)


def missing_code(found):
    return [f"{name}: no code for {arch}" for name, kernel in sorted(found.items()) for arch in ARCHS if arch not in kernel]


def broken_rules(found):
    """The kernels that break a rule, and the rules without kernels, as sentences."""
    bad = []
    for pattern, field, limit in RULES:
        names = [name for name in sorted(found) if re.fullmatch(pattern, name)]
        if not names:
            bad.append(f"no kernel matches {pattern}, which has a rule for {field}")
        bad += [f"{name} on {arch}: {field} is {found[name][arch][field]}, but the rule for {pattern} is {limit}"
                for name in names for arch in ARCHS if is_worse(field, found[name][arch][field], limit)]
    return bad


def compare(found, table):
    """What is worse than the table, or in only one of the two, as sentences."""
    bad = []
    for name in sorted(set(found) | set(table)):
        if name not in table or name not in found:
            bad.append(f"{name}: {'no row' if name in found else 'no kernel'}")
            continue
        bad += [f"{name} on {arch}: {field} {table[name][arch][field]} -> {found[name][arch][field]}"
                for arch in ARCHS for field in FIELDS if is_worse(field, found[name][arch][field], table[name][arch][field])]
    return bad


def differences(found, table):
    """The rows that are not those of the table, as lines of a table: FIELD OLD -> NEW."""
    lines = []
    for name in sorted(set(found) | set(table)):
        if name not in table or name not in found:
            lines.append(f"{name:40}  {'no row' if name in found else 'no kernel'}")
            continue
        changes = [f"{field} {a} -> {b}" for field, a, b in zip(FIELDS, row_of(table[name]), row_of(found[name])) if a != b]
        if changes:
            lines.append(f"{name:40}  {', '.join(changes)}")
    return lines


def write_table(path, version, found):
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"{HEAD}# nvcc {version}\n" + "\t".join(("kernel", *FIELDS)) + "\n")
        f.writelines("\t".join((name, *row_of(k))) + "\n" for name, k in sorted(found.items()))


def main():
    arguments = [a for a in sys.argv[1:] if a != "--write"]
    if len(arguments) < 4:
        sys.exit(__doc__)
    write = "--write" in sys.argv
    path, nvcc, tools, *reports = map(os.path.abspath, arguments)
    version = re.search(r"V[0-9.]+", subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout)[0]
    found = read_objects(tools, reports)
    if bad := missing_code(found):
        sys.exit("\n".join(bad))
    try:
        version_of_table, table = read_table(path)
    except (OSError, ValueError) as e:
        if not write:
            sys.exit(f"sass_budget: {e}")
        version_of_table, table = version, {}
    print(f"{len(found)} kernels", *differences(found, table), sep="\n")
    bad = broken_rules(found)
    if write:
        write_table(path, version, found)
    elif version == version_of_table:
        bad += compare(found, table)
    else:
        print(f"The table is of nvcc {version_of_table}, but the build is of {version}: only the rules are checked.")
    if bad:
        sys.exit("\n".join(["These kernels are not as they should be:", *bad, "If this is intended: cmake --build build/release --target sass_budget"]))


if __name__ == "__main__":
    main()
