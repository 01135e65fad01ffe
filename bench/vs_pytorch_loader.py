#!/usr/bin/env python3
"""Loading ImageNet-like shards, RandomResizedCrop and flip: ctrain against PyTorch's DataLoader, alternating runs, medians, ratio.

  bench/vs_pytorch_loader.py --python NAME=INTERPRETER [--python ...] (each with torch, torchvision and Pillow)
      [--shards DIR] [--pattern 'imagenet-train-{000000..000007}.tar']    (../shared/data/imagenet-wds)
      [--threads 2] [--batch 64] [--size 224] [--seconds 5] [--rounds 3] [--classes 1000]
      [--ctrain build/release/ctrain] [--seekable] [--set KEY=VALUE ...]

ctrain runs `bench data` with --threads threads, the DataLoader has as many workers (bench/peers/loader_peer.py), once handing
over uint8, as ctrain does (its engine normalises), and once normalised floats, as usual ("NAME floats"). Prints one JSON object:
"ratio" is ctrain's median over the peer's, "share_of_decode_only" what `bench data` measured against decoding alone. --seekable: ctrain
reads the same images as packed by `data pack --seekable`, the peers read the original shards (restart markers make Pillow slower).
"""
import argparse, json, os, re, statistics, subprocess, sys, tarfile, tempfile

import host

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = """\
model: {name: resnet18}
data:
  name: shards
  augment: {flip: true}
  val: none
optim: {lr: 0.1}
train: {epochs: 1}
"""


def shared(*parts):
    return os.path.join(os.environ.get('CTRAIN_SHARED') or os.path.join(HERE, '..', '..', 'shared'), *parts)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--python', action='append', default=[])
    p.add_argument('--shards', default=shared('data', 'imagenet-wds'))
    p.add_argument('--pattern', default='imagenet-train-{000000..000007}.tar')
    p.add_argument('--threads', type=int, default=2)
    p.add_argument('--batch', type=int, default=64)
    p.add_argument('--size', type=int, default=224)
    p.add_argument('--seconds', type=int, default=5)
    p.add_argument('--rounds', type=int, default=3)
    p.add_argument('--classes', type=int, default=1000)
    p.add_argument('--ctrain', default=os.path.join(HERE, '..', 'build', 'release', 'ctrain'))
    p.add_argument('--seekable', action='store_true')
    p.add_argument('--set', action='append', default=[])
    return p.parse_args()


def expand(pattern):
    """Names of a brace list, as ctrain reads it."""
    m = re.search(r'\{(\d+)\.\.(\d+)\}', pattern)
    if not m:
        return [pattern]
    first, last = m.groups()
    return [n for i in range(int(first), int(last) + 1)
            for n in expand(pattern[:m.start()] + str(i).zfill(len(first)) + pattern[m.end():])]


def run(cmd):
    out = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if out.returncode != 0:
        sys.exit(' '.join(cmd) + ' failed: ' + out.stderr.decode(errors='replace')[-2000:])
    return json.loads(out.stdout.decode().strip().splitlines()[-1])


def pack(a, folder):
    """The images of all shards, packed again with --seekable: where, and their brace list."""
    for name in expand(a.pattern):
        with tarfile.open(os.path.join(a.shards, name)) as tar:
            parts = {}
            for m in tar:
                key, _, ext = m.name.partition('.')
                if m.isfile():
                    parts.setdefault(key, {})[ext.lower()] = tar.extractfile(m).read()
        for key, v in parts.items():
            to = os.path.join(folder, 'images', '%06d' % int(v['cls']))
            os.makedirs(to, exist_ok=True)
            with open(os.path.join(to, key.replace('/', '_') + '.jpg'), 'wb') as f:
                f.write(next(v[e] for e in ('jpg', 'jpeg', 'png') if e in v))
    run([a.ctrain, 'data', 'pack', os.path.join(folder, 'images'), os.path.join(folder, a.pattern), '--seekable', '--json'])
    return folder, a.pattern


def run_ctrain(a, folder, shards, pattern):
    return run([a.ctrain, 'bench', 'data', os.path.join(folder, 'loader.yaml'), '--json', '--threads', str(a.threads), '--seconds',
                str(a.seconds), 'data.dir=' + shards, 'data.train=' + pattern, 'data.index_dir=' + folder, 'data.train.size=%d' % a.size,
                'batch.global=%d' % a.batch] + ([] if a.seekable else ['data.classes=%d' % a.classes]) + a.set)


def run_peer(a, python, extra=()):
    return run([python, os.path.join(HERE, 'peers', 'loader_peer.py')] + [os.path.join(a.shards, n) for n in expand(a.pattern)] +
               ['--workers', str(a.threads), '--batch', str(a.batch), '--size', str(a.size), '--seconds', str(a.seconds)] + list(extra))


def main():
    a = arguments()
    pythons = [spec.partition('=')[::2] for spec in a.python]
    peers = [(name + suffix, python, extra) for name, python in pythons for suffix, extra in (('', []), (' floats', ['--floats']))]
    ours, theirs = [], {name: [] for name, _, _ in peers}
    with tempfile.TemporaryDirectory(prefix='ctrain-bench-') as folder:
        with open(os.path.join(folder, 'loader.yaml'), 'w') as f:
            f.write(CONFIG)
        shards, pattern = pack(a, folder) if a.seekable else (a.shards, a.pattern)
        for _ in range(a.rounds):
            ours.append(run_ctrain(a, folder, shards, pattern))
            for name, python, extra in peers:
                theirs[name].append(run_peer(a, python, extra))
                ours.append(run_ctrain(a, folder, shards, pattern))
        decode = {name: run_peer(a, python, ['--decode-only']) for name, python in pythons}
    med = lambda rows, key: round(statistics.median(r[key] for r in rows), 3)
    spread = lambda rows: [round(f(r['images_per_sec'] for r in rows), 1) for f in (min, max)]
    keys = ('images_per_sec', 'decode_only_images_per_sec', 'share_of_decode_only', 'core_images_per_sec', 'images_per_cpu_sec',
            'decode_only_images_per_cpu_sec')
    out = {'bench': 'vs_pytorch_loader', 'machine': host.describe(a.ctrain), 'threads': a.threads, 'batch': a.batch, 'size': a.size, 'rounds': a.rounds, 'seekable': a.seekable,
           'samples': ours[0]['samples'], 'ctrain': {**{k: med(ours, k) for k in keys}, 'range': spread(ours), 'bound_by': ours[-1]['bound_by']},
           'peers': {}}
    for name, rows in theirs.items():
        out['peers'][name] = {**{k: rows[0][k] for k in ('version', 'torchvision', 'pillow')}, 'images_per_sec': med(rows, 'images_per_sec'),
                              'range': spread(rows), 'decode_only_images_per_cpu_sec':
                              decode[name.removesuffix(' floats')]['decode_only_images_per_cpu_sec'],
                              'ratio': round(med(ours, 'images_per_sec') / med(rows, 'images_per_sec'), 3)}
    print(json.dumps(out, indent=1))


if __name__ == '__main__':
    main()
