#!/usr/bin/env python3
"""ctrain against PyTorch DDP: alternating runs on this machine, medians, ratio.

  bench/vs_pytorch.py --peer torch_train.py --model mlp [--procs 1] [--threads 1] [--rounds 5]
      --python NAME=INTERPRETER ...   one or more PyTorch installations
      [--preload LIB.so]              also run each with this library preloaded ("tuned": an allocator such as tcmalloc)
      [--loader]                      also run each with torch's DataLoader instead of a tensor in memory
      [--data-dir DIR] [--steps 1500] [--ctrain build/release/ctrain]

The peer prints one JSON line with images_per_sec (steady steps only), startup_seconds and peak_rss_mb; ctrain's figures are taken
from its metrics.jsonl (steps after the first 20 %). Prints one JSON object; "ratio" is ctrain's median over the peer's.
"""
import argparse, json, os, shutil, statistics, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--peer', required=True)
    p.add_argument('--model', default='mlp', choices=['mlp', 'convnet'])
    p.add_argument('--procs', type=int, default=1)
    p.add_argument('--threads', type=int, default=1)
    p.add_argument('--rounds', type=int, default=5)
    p.add_argument('--steps', type=int, default=1500)
    p.add_argument('--python', action='append', default=[])
    p.add_argument('--preload', default='')
    p.add_argument('--loader', action='store_true')
    p.add_argument('--data-dir', default='datasets/mnist')
    p.add_argument('--ctrain', default=os.path.join(HERE, '..', 'build', 'release', 'ctrain'))
    return p.parse_args()


def run_ctrain(a):
    """One run: images/s of the steady steps, startup seconds, peak resident MiB of the largest process."""
    d = tempfile.mkdtemp(prefix='ctrain-bench-')
    try:
        every = max(a.steps // 50, 1)
        cmd = [a.ctrain, os.path.join(HERE, 'configs', a.model + '.yaml'), 'run.dir=' + d + '/run', 'data.dir=' + a.data_dir,
               'train.max_steps=%d' % a.steps, 'log.every=%d' % every, 'launch.threads=%d' % a.threads, '--procs', str(a.procs)]
        with open(d + '/err', 'w+') as err:
            child = subprocess.Popen(cmd, stdout=subprocess.DEVNULL, stderr=err)
            _, status, usage = os.wait4(child.pid, 0)  # peak memory of the largest process of the job
            if status != 0:
                err.seek(0)
                sys.exit('ctrain failed: ' + err.read())
        rows = [json.loads(line) for line in open(d + '/run/metrics.jsonl')]
        steps = [r for r in rows if r['kind'] == 'step']
        steady = steps[len(steps) // 5:]
        seconds = sum(1 / r['images_per_sec'] for r in steady)
        end = [r for r in rows if r['kind'] == 'end'][-1]
        return {'images_per_sec': len(steady) / seconds, 'startup_seconds': end['startup_seconds'],
                'peak_rss_mb': usage.ru_maxrss // 1024,
                'exposed_comm_ms': statistics.median(r['exposed_comm_ms'] for r in steady)}
    finally:
        shutil.rmtree(d)


def run_peer(a, python, preload, loader):
    steps = max(min(a.steps, 400), 20)
    cmd = [python, a.peer, '--model', a.model, '--procs', str(a.procs), '--threads', str(a.threads), '--batch', '64', '--steps', str(steps),
           '--warmup', str(max(steps // 10, 5)), '--data', 'mnist', '--data-dir', a.data_dir] + (['--loader'] if loader else [])
    env = dict(os.environ, OMP_NUM_THREADS=str(a.threads))
    if preload:
        env['LD_PRELOAD'] = preload
    out = subprocess.run(cmd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if out.returncode != 0:
        sys.exit(' '.join(cmd) + ' failed: ' + out.stderr.decode()[-2000:])
    return json.loads(out.stdout.decode().strip().splitlines()[-1])


def main():
    a = arguments()
    variants = []
    for spec in a.python or ['python3=python3']:
        name, _, interpreter = spec.partition('=')
        variants.append((name + ', as installed', interpreter, '', False))
        if a.preload:
            variants.append((name + ', allocator preloaded', interpreter, a.preload, False))
        if a.loader:
            variants.append((name + ', DataLoader', interpreter, '', True))
    ours, theirs = [], {v[0]: [] for v in variants}
    for _ in range(a.rounds):
        ours.append(run_ctrain(a))
        for name, interpreter, preload, loader in variants:
            theirs[name].append(run_peer(a, interpreter, preload, loader))
            ours.append(run_ctrain(a))
    med = lambda rows, key: statistics.median(r[key] for r in rows)
    spread = lambda rows: [round(min(r['images_per_sec'] for r in rows)), round(max(r['images_per_sec'] for r in rows))]
    out = {'bench': 'vs_pytorch', 'model': a.model, 'procs': a.procs, 'threads': a.threads, 'batch_per_rank': 64, 'rounds': a.rounds,
           'ctrain': {k: round(med(ours, k), 4) for k in ours[0]}, 'peers': {}}
    out['ctrain']['range'] = spread(ours)
    for name, rows in theirs.items():
        out['peers'][name] = {'version': rows[0]['version'], 'images_per_sec': round(med(rows, 'images_per_sec'), 1), 'range': spread(rows),
                              'startup_seconds': round(med(rows, 'startup_seconds'), 3), 'peak_rss_mb': med(rows, 'peak_rss_mb'),
                              'ratio': round(med(ours, 'images_per_sec') / med(rows, 'images_per_sec'), 3)}
    print(json.dumps(out, indent=1))


if __name__ == '__main__':
    main()
