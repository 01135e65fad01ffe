#!/usr/bin/env python3
"""Prints what a stage of a Dockerfile does, as shell code for a system without a container engine: dockerfile.py FILE STAGE.

STAGE is the name after AS, or "final" for the last one. The code runs as root in a system like the stage's base; the build context is in
$CONTEXT, and the files that other stages have made are in $STAGES/NAME. It leaves what the image says about its processes in /image.env, to
be read by sh: IMAGE_USER, IMAGE_DIR, IMAGE_ENTRYPOINT, IMAGE_CMD and the variables of ENV. An instruction that is not known is an error."""

import json
import re
import shlex
import sys

PRELUDE = r"""set -e
put() { # FROM SOURCE... TARGET
	from=$1; shift
	for to; do :; done
	while [ $# -gt 1 ]; do
		case $1:$to in
		*:*/ | *:. | *:*/.) mkdir -p "$to" ;;
		*) mkdir -p "$(dirname "$to")" ;;
		esac
		if [ -d "$from/$1" ]; then mkdir -p "$to"; cp -a "$from/$1/." "$to"; else cp -a "$from/$1" "$to"; fi
		shift
	done
}"""


def stages(text):
    """{name: [(instruction, arguments)]}"""
    found, here = {}, None
    text = re.sub(r"(?m)^\s*#.*\n", "", text).replace("\\\n", " ")
    for line in filter(str.strip, text.splitlines()):
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            name = re.search(r" AS (\w+)$", rest)
            here = found.setdefault(name[1] if name else "final", [])
        elif here is not None:
            here.append((word, rest.strip()))
        elif word != "ARG":
            raise SystemExit(f"dockerfile: {word} before FROM")
    return found


def code(steps):
    user, directory, entry, cmd, env = "0:0", "/", [], [], []
    yield PRELUDE
    for word, rest in steps:
        if word == "RUN":
            yield f"(cd {directory} && sh -c {shlex.quote(rest)})"
        elif word == "COPY":
            source = re.match(r"--from=(\w+) (.*)", rest)
            yield f'(cd {directory} && put "{"$STAGES/" + source[1] if source else "$CONTEXT"}" {source[2] if source else rest})'
        elif word == "WORKDIR":
            directory = rest
            yield f"mkdir -p {directory}"
        elif word == "USER":
            user = rest
        elif word == "ENV":
            env += rest.split()
        elif word == "ENTRYPOINT":
            entry = json.loads(rest)
        elif word == "CMD":
            cmd = json.loads(rest)
        elif word not in ("LABEL", "STOPSIGNAL"):
            raise SystemExit(f"dockerfile: unknown instruction {word}")
    words = (f"IMAGE_USER={user}", f"IMAGE_DIR={directory}", f"IMAGE_ENTRYPOINT={shlex.quote(shlex.join(entry))}",
             f"IMAGE_CMD={shlex.quote(shlex.join(cmd))}", *(f"export {e}" for e in env))
    yield "cat >/image.env <<'END'\n" + "\n".join(words) + "\nEND"


def main():
    path, name = sys.argv[1:]
    with open(path, encoding="utf-8") as f:
        found = stages(f.read())
    if name not in found:
        raise SystemExit(f"dockerfile: {path} has no stage {name}")
    print("\n".join(code(found[name])))


if __name__ == "__main__":
    main()
