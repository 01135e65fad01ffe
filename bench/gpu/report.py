"""Writes the rows of the gate as one JSON file and one Markdown table."""
import json
import os
import time


def text(value):
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 10 else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}"
    return "" if value is None else str(value)


def cell(s):
    return str(s).replace("|", "\\|").replace("\n", " ")


def markdown(rows, title, summary):
    lines = [f"# {title}", "", summary, "", "| step | check | status | value | note |", "| --- | --- | --- | ---: | --- |"]
    for r in rows:
        value = f"{text(r.get('value'))} {r.get('unit', '')}".strip()
        lines.append("| " + " | ".join(cell(x) for x in (r["step"], r["check"], r["status"], value, r.get("note", ""))) + " |")
    return "\n".join(lines) + "\n"


def write(out, rows, dry, seconds):
    counts = {}
    for r in rows:
        counts[r["status"]] = counts.get(r["status"], 0) + 1
    date = time.strftime("%Y-%m-%d", time.gmtime())
    card = next((r["value"] for r in rows if r["check"] == "card"), None)
    result = {"bench": "gpu_gate", "dry": dry, "date": date, "card": card, "seconds": seconds, "counts": counts, "rows": rows}
    with open(os.path.join(out, "gate.json"), "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    where = "on the software GPU: no speed here is that of a GPU" if dry else f"on {card or 'an unknown card'}"
    summary = f"{date}, {where}, {seconds:.0f} s: " + ", ".join(f"{n} {status}" for status, n in sorted(counts.items())) + "."
    with open(os.path.join(out, "gate.md"), "w", encoding="utf-8") as f:
        f.write(markdown(rows, "Gate" + (", dry run" if dry else ""), summary))
