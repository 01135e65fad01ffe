#!/usr/bin/env python3
"""The results of the gate, as one JSON file that is complete after each row. report.py FILE prints its rows as a Markdown table.

Keys: dry, peers, date, seconds, complete (false: the gate was stopped or killed), verdict (fail: a row is bad; incomplete: the gate was stopped,
or one of the steps that check results has not run or has skipped a check; else pass), counts (rows by status), steps (name, state, seconds
and, after a bad row, the end of the log), rows, and what describes the run: options, commit, card, libraries (ctrain info), device_json (for cuDNN's queries
without a GPU) and plans (that ctrain chose for this GPU)."""
import json
import os
import sys
import time

BAD = ("fail", "timeout", "error")


class Results:
    def __init__(self, path, steps, required, **about):
        """required: the names of the steps without which the verdict is not "pass"."""
        self.path, self.begin, self.rows, self.required = path, time.monotonic(), [], required
        self.steps = {name: {"name": name, "state": "not run"} for name in steps}
        self.about = {"date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **about}
        self.write()

    def seconds(self):
        return round(time.monotonic() - self.begin, 2)

    def add(self, step, entry):
        """Returns the row with the time at which it was added."""
        self.rows.append({"step": step, "at": self.seconds(), **entry})
        if entry["check"] == "card":
            self.about["card"] = entry["value"]
        self.write()
        return self.rows[-1]

    def bad(self, step=None):
        return [r for r in self.rows if r["status"] in BAD and step in (None, r["step"])]

    def has_run(self, step):
        statuses = {r["status"] for r in self.rows if r["step"] == step}
        return self.steps.get(step, {}).get("state") == "done" and "pass" in statuses and "skipped" not in statuses

    def verdict(self, complete):
        if self.bad():
            return "fail"
        return "pass" if complete and all(map(self.has_run, self.required)) else "incomplete"

    def write(self, complete=False):
        """Replaces the file, so that there is a valid one whenever the gate is killed."""
        counts = {}
        for r in self.rows:
            counts[r["status"]] = counts.get(r["status"], 0) + 1
        result = {"bench": "gpu_gate", **self.about, "seconds": self.seconds(), "complete": complete, "verdict": self.verdict(complete),
                  "counts": counts, "steps": list(self.steps.values()), "rows": self.rows}
        with open(self.path + ".new", "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)
            f.write("\n")
        os.replace(self.path + ".new", self.path)
        return result["verdict"]


def text(value):
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 10 else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}"
    return "" if value is None else str(value)


def cell(s):
    return str(s).replace("|", "\\|").replace("\n", " ")


def markdown(result):
    where = "on the software GPU: no speed here is that of a GPU" if result["dry"] else f"on {result.get('card', 'an unknown card')}"
    lines = ["# Gate" + (", several GPUs" if result["peers"] else "") + (", dry run" if result["dry"] else ""), "",
             f"{result['date'][:10]}, {result['commit']}, {where}, {result['seconds']:.0f} s" +
             (", " if result["complete"] else ", stopped, ") + result["verdict"] + ": " + ", ".join(f"{n} {status}" for status, n in sorted(result["counts"].items())) + ".",
             "", "| step | check | status | value | note |", "| --- | --- | --- | ---: | --- |"]
    for r in result["rows"]:
        value = f"{text(r.get('value'))} {r.get('unit', '')}".strip()
        lines.append("| " + " | ".join(cell(x) for x in (r["step"], r["check"], r["status"], value, r.get("note", ""))) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(markdown(json.load(file)))
