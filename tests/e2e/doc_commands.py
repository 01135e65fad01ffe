#!/usr/bin/env python3
"""Makes one shell script of every shell command that README.md and docs/*.md show, in their order: doc_commands.py [--list].

scripts/test_chroot.sh runs the script in bare Debian systems, where ctrain was built by hand. Commands are run as they are written. What
they need and a reader would have (a trained run, images) is made before, see BEFORE. SKIPPED lists the commands that cannot run there, and
why. An entry of either list that matches no command is an error. --list prints what is run and what is not.
"""

import os
import re
import sys

SOURCE = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))

# {(page, start of the command): reason}
SKIPPED = {
    ("README.md", "scripts/quickstart.sh"): "another part of scripts/test_chroot.sh runs it, on a machine without packages",
    ("README.md", "scripts/test.sh"): "runs for half an hour; scripts/test_chroot.sh runs its --quick form",
    ("README.md", "ctrain configs/mnist_ddp.yaml --nodes 2 --node-rank 0"): "needs two hosts; tests/e2e/test_hosts.py runs two network namespaces",
    ("README.md", "ctrain configs/mnist_ddp.yaml --nodes 2 --node-rank 1"): "needs two hosts",
    ("README.md", "ctrain launch --hosts a:4,b:4"): "needs two hosts; tests/e2e/test_ssh.py runs sshd in two network namespaces",
    ("README.md", "scripts/setup.sh"): "another part of scripts/test_chroot.sh has run it",
    ("README.md", "scripts/build.sh"): "another part of scripts/test_chroot.sh has run it",
    ("docs/CONTAINERS.md", "docker "): "needs a container engine; tests/e2e/test_container_engines.py runs it",
    ("docs/CONTAINERS.md", "podman "): "needs Podman; tests/e2e/test_container_engines.py runs it",
    ("docs/CONTAINERS.md", "srun "): "needs Slurm and a container engine; tests/e2e/test_container_engines.py runs it",
    ("docs/DISTRIBUTED.md", "CTRAIN_TOKEN=5fbb... ctrain"): "needs two hosts; tests/e2e/test_hosts.py passes the secret in this variable",
    ("docs/DOCTOR.md", "ctrain doctor CONFIG.yaml --nodes 2 --node-rank 0"): "needs two hosts; tests/e2e/test_doctor.py runs three network namespaces",
    ("docs/DOCTOR.md", "ctrain doctor CONFIG.yaml --nodes 2 --node-rank 1"): "needs two hosts",
    ("docs/DOCTOR.md", "srun --ntasks-per-node=1 ctrain doctor"): "needs Slurm; tests/e2e/test_slurm.py runs a cluster",
    ("docs/FINETUNING.md", "bench/finetune.py"): "needs PyTorch and CIFAR-10",
    ("docs/MODELS.md", "ctrain configs/resnet50_imagenet.yaml model.weights"):
        "trains ResNet-50 on ImageNet for 90 epochs; tests/e2e/test_torchvision.py starts from weights of torchvision",
    ("docs/PERFORMANCE.md", "bench/vs_pytorch.py --model convnet"): "needs PyTorch; tests/e2e/test_bench.py runs it with a stand-in",
    ("docs/PERFORMANCE.md", "bench/vs_pytorch.py --model mlp"): "needs PyTorch",
    ("docs/PERFORMANCE.md", "bench/vs_pytorch.py --model resnet18_cifar"): "needs PyTorch",
    ("docs/INSTALL.md", "dpkg --add-architecture arm64"): "another part of scripts/test_chroot.sh builds for aarch64",
    ("docs/INSTALL.md", "apt-get update"): "as above",
    ("docs/INSTALL.md", "apt-get install -y --no-install-recommends cmake"): "as above",
    ("docs/INSTALL.md", "cmake -S . -B build/aarch64"): "as above",
    ("docs/INSTALL.md", "cmake --build build/aarch64"): "as above",
    ("docs/SLURM.md", "sbatch mnist_ddp.sbatch"): "needs Slurm; tests/e2e/test_slurm.py runs a cluster",
    ("docs/SLURM.md", "ctrain slurm status"): "needs Slurm; tests/e2e/test_slurm.py",
    ("docs/SLURM.md", "srun ctrain CONFIG.yaml"): "needs Slurm",
    ("docs/SLURM.md", "if [ $? -eq 75 ]"): "needs Slurm",
    ("docs/TWO_NODES.md", "ctrain doctor configs/mnist_ddp.yaml --nodes 2 --node-rank 0"): "needs two hosts; see docs/DOCTOR.md",
    ("docs/TWO_NODES.md", "ctrain doctor configs/mnist_ddp.yaml --nodes 2 --node-rank 1"): "needs two hosts",
    ("docs/TWO_NODES.md", "ctrain configs/mnist_ddp.yaml --nodes 2 --node-rank 0"): "needs two hosts; tests/e2e/test_hosts.py runs two network namespaces",
    ("docs/TWO_NODES.md", "ctrain configs/mnist_ddp.yaml --nodes 2 --node-rank 1"): "needs two hosts",
    ("docs/TWO_NODES.md", "ctrain launch --hosts a,b"): "needs two hosts; tests/e2e/test_ssh.py runs sshd in two network namespaces",
}

# What is made before everything: README starts after scripts/quickstart.sh, whose data and run are there, and a reader has images.
FIRST = r"""
cmake --install build/release >/dev/null
ctrain data show configs/smoke.yaml 0 --out cat.png >/dev/null
"""
IMAGENET = r"""
mkdir -p ILSVRC2012/val
for i in $(seq 1 1000); do
	mkdir -p ILSVRC2012/train/n$(printf %08d $i)
	cp cat.png ILSVRC2012/train/n$(printf %08d $i)/1.png
done
echo ImageId,PredictionString >LOC_val_solution.csv
for i in $(seq 1 20); do
	name=ILSVRC2012_val_$(printf %08d $i)
	cp cat.png ILSVRC2012/val/$name.png
	echo "$name,n$(printf %08d $i) 1 1 5 5" >>LOC_val_solution.csv
done
mkdir -p datasets/imagenet
ctrain data pack ILSVRC2012/train 'datasets/imagenet/train-%06d.tar' >/dev/null
ctrain data pack ILSVRC2012/val 'datasets/imagenet/val-%06d.tar' --val-map LOC_val_solution.csv >/dev/null
"""
# {(page, start of the command): what the reader has by then}
BEFORE = {
    ("README.md", "ctrain predict runs/resnet18_cifar10"):
        "ctrain configs/resnet18_cifar10.yaml data.name=synthetic data.shape=[3,32,32] data.n_train=64 data.n_val=10 batch.global=8 "
        "train.max_steps=1 log.console=off",
    ("README.md", "ctrain data pack IMAGES/train"):
        "mkdir -p IMAGES/train/cat IMAGES/train/dog datasets/mine && cp cat.png IMAGES/train/cat && cp cat.png IMAGES/train/dog",
    ("README.md", "ctrain bench data"): IMAGENET,
    ("docs/DATA.md", "ctrain data check mine.yaml"):
        "mkdir -p datasets/mine && for d in train/cat train/dog val/cat val/dog; do mkdir -p datasets/mine/$d && cp cat.png datasets/mine/$d; done\n"
        "cat >mine.yaml <<'EOF'\n@first yaml@EOF",
    ("docs/DATA.md", "ctrain data pack ILSVRC2012/train"): "rm -r datasets/imagenet",
    ("docs/DATA.md", "ctrain predict runs/resnet50_imagenet"):
        "ctrain configs/resnet50_imagenet.yaml train.max_steps=1 train.eval_every=0 batch.per_rank=2 data.train.size=96 log.console=off\n"
        "mkdir -p more && cp cat.png photo.jpg && cp cat.png more",
    ("docs/DATA.md", "ctrain predict model.safetensors photo.jpg"): "ctrain export runs/resnet50_imagenet --out model.safetensors",
    ("docs/EXPORT.md", "cc -g -fsanitize=address examples/classify.c"): "ldconfig",
    ("docs/EXPORT.md", "ctrain export runs/mnist_ddp --out model.safetensors"): "rm -f model.safetensors",
    ("docs/MODELS.md", "ctrain export runs/NAME"): "ln -s mnist_ddp runs/NAME",
    ("docs/INSTALL.md", "mkdir -p ~/.local/share"): "hash -r",
    ("docs/METRICS.md", "jq -r 'select(.kind == \"eval\") |"): "apt-get -qq -y install jq >/dev/null",
    ("docs/OWN_IMAGES.md", "ctrain init photos"):
        "i=0; for c in cat dog fox; do mkdir -p photos/$c; for k in 1 2 3 4 5 6 7 8 9 10; do\n"
        "i=$((i + 1)); ctrain data show configs/smoke.yaml $i --out photos/$c/$k.png >/dev/null\ndone; done",
}


# A line of a block without a language that is no output.
COMMAND = re.compile(r"^(\w+=\S* )*(ctrain [a-z]|scripts/|srun |docker |cmake |apt-get )", re.M)


def blocks(text, language):
    """(line, text) of the fenced blocks in a language that matches the pattern."""
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    return [(text[:m.start(2)].count("\n") + 1, m[2]) for m in found if re.fullmatch(language, m[1])]


def commands(page, text):
    """(page, line, command) of its shell blocks; a command ends where its last line does not end with a backslash."""
    for first, block in blocks(text, "sh"):
        for m in re.finditer(r"(?:.*\\\n)*.*\n", block):
            if m[0].strip() and not m[0].lstrip().startswith("#"):
                yield page, first + block[:m.start()].count("\n"), m[0].rstrip("\n")


def read_pages():
    pages = {}
    for path in ["README.md", *sorted(f"docs/{n}" for n in os.listdir(os.path.join(SOURCE, "docs")) if n.endswith(".md"))]:
        with open(os.path.join(SOURCE, path), encoding="utf-8") as f:
            pages[path] = f.read()
    return pages


def match(table, page, command, used):
    """The entry for the command; more than one is an error."""
    keys = [k for k in table if k[0] == page and command.startswith(k[1])]
    if len(keys) > 1:
        raise SystemExit(f"doc_commands: {page}: several entries match {command!r}")
    used.update(keys)
    return table[keys[0]] if keys else None


def plan(pages, skipped=None, before=None):
    """[(page, line, command, why it is skipped, what comes before)]; raises SystemExit for entries of the lists that match nothing."""
    skipped, before = SKIPPED if skipped is None else skipped, BEFORE if before is None else before
    out, used = [], set()
    for page, text in pages.items():
        for line, code in blocks(text, "|bash|shell|console"):
            if not code.startswith("$ ") and COMMAND.search(code):
                raise SystemExit(f"doc_commands: {page}:{line}: mark shell code as sh")
        for _, line, command in commands(page, text):
            first = match(before, page, command, used)
            if first and "@first yaml@" in first:
                first = first.replace("@first yaml@", blocks(text, "yaml")[0][1])
            out.append((page, line, command, match(skipped, page, command, used), first))
    stale = [f"{page}: {start}" for page, start in [*skipped, *before] if (page, start) not in used]
    if stale:
        raise SystemExit("doc_commands: there is no such command (any more):\n" + "\n".join(stale))
    return out


def script(steps):
    lines = ["set -eu", FIRST]
    for page, line, command, why, first in steps:
        if why:
            continue
        if first:
            lines.append(first)
        where = f"{page}:{line}"
        quoted = command.replace("'", "'\\''")
        lines.append(f"echo \"== $SECONDS s  {where}: \"'{quoted}'\n{{\n{command}\n}} || {{ echo 'FAILED with exit code '$?': {where}'; exit 1; }}")
    return "\n".join(lines) + "\n"


def main():
    steps = plan(read_pages())
    if sys.argv[1:] == ["--list"]:
        for page, line, command, why, _ in steps:
            print(f"{'skip' if why else 'run '}  {page}:{line}: {command}" + (f"\n      {why}" if why else ""))
        return
    if sys.argv[1:]:
        sys.exit(__doc__)
    sys.stdout.write(script(steps))


if __name__ == "__main__":
    main()
