#!/usr/bin/env python3
"""Fine-tuning on CIFAR-10: ResNet-20 is trained on classes 0-4 and fine-tuned on classes 5-9, with and without a frozen backbone,
by ctrain and by PyTorch from the same weights with the same recipe (docs/FINETUNING.md has the results).

  bench/finetune.py --python INTERPRETER [--data-dir DIR] [--work DIR] [--ctrain build/release/ctrain]
      [--images 5000] [--base-epochs 6] [--epochs 4] [--seeds 1] [--threads 2]

--data-dir has data_batch_1.bin and test_batch.bin. Prints one JSON line for the machine and one for each run. The images are written as PNG files, because an
image directory can have any classes.
"""
import argparse, json, os, struct, subprocess, sys, zlib

import host

HERE = os.path.dirname(os.path.abspath(__file__))
PEER = os.path.join(HERE, 'peers', 'finetune_peer.py')
RECIPE = {'batch': 64, 'head_lr': 0.1, 'all_lr': 0.02, 'weight_decay': 5e-4}


def shared(*parts):
    return os.path.join(os.environ.get('CTRAIN_SHARED') or os.path.join(HERE, '..', '..', 'shared'), *parts)


def png(planes):
    """A 32x32 RGB image, from the planes of a CIFAR record."""
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    pixels = bytearray(3072)
    for c in range(3):
        pixels[c::3] = planes[1024 * c:1024 * (c + 1)]
    rows = b''.join(b'\0' + bytes(pixels[96 * y:96 * (y + 1)]) for y in range(32))
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 32, 32, 8, 2, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b'')


def write_images(a):
    for part, name, most in ('train', 'data_batch_1.bin', a.images), ('val', 'test_batch.bin', 10000):
        with open(os.path.join(a.data_dir, name), 'rb') as f:
            raw = f.read()
        for half in 'low', 'high':
            records = [i for i in range(len(raw) // 3073) if (raw[3073 * i] >= 5) == (half == 'high')][:most]
            for i in records:
                directory = os.path.join(a.work, half, part, str(raw[3073 * i]))
                os.makedirs(directory, exist_ok=True)
                with open(os.path.join(directory, '%05d.png' % i), 'wb') as f:
                    f.write(png(raw[3073 * i + 1:3073 * (i + 1)]))


def without_head(a, path):
    """The weights without the last layer, which both sides start from random values: the new classes have nothing to do with the old ones."""
    with open(path, 'rb') as f:
        raw = f.read()
    n = struct.unpack('<Q', raw[:8])[0]
    header, body = {}, b''
    for name, t in json.loads(raw[8:8 + n]).items():
        if name != '__metadata__' and not name.startswith('fc.'):
            begin, end = t['data_offsets']
            header[name] = dict(t, data_offsets=[len(body), len(body) + end - begin])
            body += raw[8 + n + begin:8 + n + end]
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    out = os.path.join(a.work, 'backbone.safetensors')
    with open(out, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + body)
    return out


def train(a, name, half, epochs, lr, seed, *sets):
    run = os.path.join(a.work, 'runs', '%s-%d' % (name, seed))
    mean, std = '[0.4914,0.4822,0.4465]', '[0.247,0.2435,0.2616]'
    command = [a.ctrain, os.path.join(HERE, 'configs', 'finetune.yaml'), 'data.dir=' + os.path.join(a.work, half), 'run.dir=' + run,
               'train.epochs=%d' % epochs, 'optim.lr=%g' % lr, 'optim.weight_decay=%g' % RECIPE['weight_decay'], 'run.seed=%d' % seed,
               'batch.global=%d' % RECIPE['batch'], 'data.mean=' + mean, 'data.std=' + std, '--procs', '1',
               'launch.threads=%d' % a.threads, 'train.resume=never', *sets]
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if r.returncode != 0:
        sys.exit(r.stdout)
    with open(os.path.join(run, 'metrics.jsonl')) as f:
        lines = [json.loads(line) for line in f]
    report(a, 'ctrain', name, seed, [m['top1'] for m in lines if m['kind'] == 'eval'], lines[-1]['seconds'])
    return run


def report(a, who, name, seed, top1, seconds):
    print(json.dumps({'who': who, 'run': name, 'seed': seed, 'top1': [round(x, 4) for x in top1], 'seconds': round(seconds, 1)}), flush=True)


def peer(a, name, lr, seed, weights, freeze):
    command = [a.python, PEER, '--data-dir', a.data_dir, '--images', a.images, '--epochs', a.epochs, '--lr', lr, '--seed', seed, '--threads',
               a.threads, '--batch', RECIPE['batch'], '--weight-decay', RECIPE['weight_decay'], '--weights', weights] + (['--freeze'] if freeze else [])
    r = json.loads(subprocess.run([str(x) for x in command], stdout=subprocess.PIPE, text=True, check=True).stdout)
    report(a, 'pytorch ' + r['version'], name, seed, r['top1'], r['seconds'])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--python', required=True)
    p.add_argument('--data-dir', default=shared('data', 'cifar-10-batches-bin'))
    p.add_argument('--work', default='finetune')
    p.add_argument('--ctrain', default=os.path.join(HERE, '..', 'build', 'release', 'ctrain'))
    for name, value in ('images', 5000), ('base-epochs', 6), ('epochs', 4), ('seeds', 1), ('threads', 2):
        p.add_argument('--' + name, type=int, default=value)
    a = p.parse_args()
    print(json.dumps({'machine': host.describe(a.ctrain)}), flush=True)
    write_images(a)
    base = train(a, 'base', 'low', a.base_epochs, 0.1, 1)
    weights = without_head(a, os.path.join(base, 'checkpoints', 'last', 'model.safetensors'))
    start = ('model.weights=' + weights, 'model.strict=false')
    for seed in range(1, a.seeds + 1):
        train(a, 'scratch', 'high', a.epochs, 0.1, seed)
        train(a, 'frozen', 'high', a.epochs, RECIPE['head_lr'], seed, *start, 'model.freeze=[backbone]')
        peer(a, 'frozen', RECIPE['head_lr'], seed, weights, True)
        train(a, 'unfrozen', 'high', a.epochs, RECIPE['all_lr'], seed, *start)
        peer(a, 'unfrozen', RECIPE['all_lr'], seed, weights, False)


if __name__ == '__main__':
    main()
