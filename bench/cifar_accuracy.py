#!/usr/bin/env python3
"""Test accuracy of ResNet-18 on CIFAR-10's first training file (10,000 images), ctrain against PyTorch with the same recipe.

  bench/cifar_accuracy.py --results FILE.json --python NAME=INTERPRETER [--python ...]
      [--data-dir DIR]            directory with data_batch_1.bin and test_batch.bin (../shared/data/cifar-10-batches-bin)
      [--seeds 3] [--epochs 8] [--threads 2] [--precision fp32 --precision bf16] [--peer-precision fp32]
      [--ctrain build/release/ctrain] [--set KEY=VALUE ...] [--only-report]

The recipe is bench/configs/cifar_accuracy.yaml, and again bench/peers/cifar_peer.py. Seed by seed, one run after the other. Each
result is written to FILE.json at once: when started again, the script does only the missing runs (results of another recipe are an
error). Prints the file's summary: mean and all values of each side, and the difference between its mean and the first peer's, in points.
"""
import argparse, hashlib, json, os, shutil, statistics, subprocess, sys, tempfile, time

import host

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG, PEER = os.path.join(HERE, 'configs', 'cifar_accuracy.yaml'), os.path.join(HERE, 'peers', 'cifar_peer.py')


def shared(*parts):
    return os.path.join(os.environ.get('CTRAIN_SHARED') or os.path.join(HERE, '..', '..', 'shared'), *parts)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--results', required=True)
    p.add_argument('--python', action='append', default=[])
    p.add_argument('--data-dir', default=shared('data', 'cifar-10-batches-bin'))
    p.add_argument('--seeds', type=int, default=3)
    p.add_argument('--epochs', type=int, default=8)
    p.add_argument('--threads', type=int, default=2)
    p.add_argument('--precision', action='append', default=[])
    p.add_argument('--peer-precision', action='append', default=[])
    p.add_argument('--ctrain', default=os.path.join(HERE, '..', 'build', 'release', 'ctrain'))
    p.add_argument('--set', action='append', default=[])
    p.add_argument('--only-report', action='store_true')
    return p.parse_args()


def recipe(a):
    """What results in one file must share: both scripts' text and the length."""
    h = hashlib.sha256()
    for path in (CONFIG, PEER):
        with open(path, 'rb') as f:
            h.update(f.read())
    return {'epochs': a.epochs, 'set': a.set, 'sha256': h.hexdigest()[:16]}


def load(a):
    if not os.path.exists(a.results):
        return {'bench': 'cifar_accuracy', 'recipe': recipe(a), 'runs': []}
    with open(a.results) as f:
        results = json.load(f)
    if results['recipe'] != recipe(a):
        sys.exit('%s holds results of another recipe (%s, now %s): give another file' % (a.results, results['recipe'], recipe(a)))
    return results


def save(a, results):
    results['summary'] = summary(results)
    with open(a.results + '.tmp', 'w') as f:
        json.dump(results, f, indent=1)
        f.write('\n')
        f.flush()
        os.fsync(f.fileno())
    os.replace(a.results + '.tmp', a.results)


def run_ctrain(a, precision, seed):
    d = tempfile.mkdtemp(prefix='ctrain-bench-')
    try:
        cmd = [a.ctrain, CONFIG, 'run.dir=' + d + '/run', 'run.seed=%d' % seed, 'precision=' + precision, 'data.dir=' + a.data_dir,
               'data.train=data_batch_1.bin', 'data.val=test_batch.bin', 'train.epochs=%d' % a.epochs,
               'launch.threads=%d' % a.threads, '--procs', '1'] + a.set
        out = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if out.returncode != 0:
            sys.exit(' '.join(cmd) + ' failed: ' + out.stdout.decode(errors='replace')[-2000:])
        with open(d + '/run/metrics.jsonl') as f:
            rows = [json.loads(line) for line in f]
        last = lambda kind: [r for r in rows if r['kind'] == kind][-1]
        return {'test_top1': last('eval')['top1'], 'last_loss': last('end')['last_loss'],
                'train_seconds': round(last('end')['seconds'] - last('eval')['seconds'], 1)}
    finally:
        shutil.rmtree(d)


def run_peer(a, python, precision, seed):
    cmd = [python, PEER, '--data-dir', a.data_dir, '--seed', str(seed), '--epochs', str(a.epochs), '--precision', precision,
           '--threads', str(a.threads)]
    out = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if out.returncode != 0:
        sys.exit(' '.join(cmd) + ' failed: ' + out.stderr.decode(errors='replace')[-2000:])
    j = json.loads(out.stdout.decode().strip().splitlines()[-1])
    return {k: j[k] for k in ('test_top1', 'last_loss', 'train_seconds', 'version')}


def summary(results):
    who = {}
    for r in results['runs']:
        who.setdefault(r['who'], []).append(r)
    out, base = {}, None
    for name, rows in who.items():
        if base is None and name.startswith('pytorch'):
            base = statistics.mean(r['test_top1'] for r in rows)
    for name, rows in who.items():
        top1 = [r['test_top1'] for r in rows]
        out[name] = {'seeds': [r['seed'] for r in rows], 'top1': [round(100 * v, 2) for v in top1],
                     'mean': round(100 * statistics.mean(top1), 2), 'std': round(100 * statistics.stdev(top1), 2) if len(top1) > 1 else None,
                     'points_over_peer': round(100 * (statistics.mean(top1) - base), 2) if base is not None else None,
                     'train_seconds': round(statistics.median(r['train_seconds'] for r in rows), 1)}
    return out


def main():
    a = arguments()
    results = load(a)
    jobs = [('ctrain ' + p, lambda seed, p=p: run_ctrain(a, p, seed)) for p in a.precision or ['fp32', 'bf16']]
    for spec in a.python:
        name, _, interpreter = spec.partition('=')
        for p in a.peer_precision or ['fp32']:
            jobs.append(('pytorch %s %s' % (name, p), lambda seed, i=interpreter, p=p: run_peer(a, i, p, seed)))
    for seed in range(1, 1 if a.only_report else a.seeds + 1):
        for who, run in jobs:
            if any(r['who'] == who and r['seed'] == seed for r in results['runs']):
                continue
            started = time.time()
            row = {'who': who, 'seed': seed, **run(seed), 'machine': host.describe(a.ctrain)}
            results['runs'].append(row)
            save(a, results)
            print('%s, seed %d: %.2f %% in %.0f s' % (who, seed, 100 * row['test_top1'], time.time() - started), file=sys.stderr, flush=True)
    print(json.dumps({**results, 'summary': summary(results)}, indent=1))


if __name__ == '__main__':
    main()
