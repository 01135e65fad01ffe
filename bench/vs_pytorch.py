#!/usr/bin/env python3
"""ctrain against PyTorch (DistributedDataParallel): alternating runs on this machine, medians, ratios.

  bench/vs_pytorch.py --model mlp|convnet|resnet18_cifar|resnet50 [--procs 1] [--threads 1] [--rounds 5] [--steps N]
      [--precision fp32|bf16]         of both sides
      [--isa avx2]                    both sides use no instructions beyond AVX2
      [--evaluate]                    the forward pass and the metrics of evaluation instead of training, with the same batch; one process
      --python NAME=INTERPRETER ...   PyTorch installations; none: ctrain alone

Variants of the peer. Each PyTorch is run as installed, and:
      [--no-compile]                  not with torch.compile (inductor) and channels_last, which needs torch 2 and a C++ compiler
      [--channels-last]               with that memory format, but not compiled
      [--preload LIB.so|none]         the library that is preloaded in all variants that are not as installed (default: tcmalloc or jemalloc if
                                      the machine has it; Debian: libtcmalloc-minimal4). Without --channels-last, there is a variant with
                                      nothing but this library
      [--loader]                      with torch's DataLoader instead of a tensor in memory
      [--only-tuned]                  not as installed
      [--env NAME=VALUE ...]          environment of the tuned variants, such as KMP_AFFINITY or OMP_PROC_BIND

      [--data-dir DIR] [--batch N] [--ctrain build/release/ctrain] [--set KEY=VALUE ...]
      [--peer PEER.py]                the peer's script (bench/peers/torch_train.py)

The peer prints one JSON line with images_per_sec (of the steps after its warm-up), startup_seconds and peak_rss_mb; ctrain's figures
come from its metrics.jsonl (the steps after the first 20 %). With --evaluate, they come from `ctrain eval`, and the time includes the
compilation of the program. The result is one JSON object on standard output: "ratio" is ctrain's median over the peer's, "rss_ratio"
ctrain's peak memory over the peer's (the largest process of each), "best" the fastest variant of all, "runs" all runs in their order.
"others" of a run is the share of the CPUs that other processes used meanwhile. Runs in which it is more than 5 % are counted in "disturbed"
and named on standard error.
A variant that an installation cannot run (the peer ends with 77) is listed with its reason in "unavailable" and on standard error.
"""
import argparse, ctypes.util, json, os, statistics, subprocess, sys, tempfile

import host

HERE = os.path.dirname(os.path.abspath(__file__))
SHARED = os.environ.get('CTRAIN_SHARED') or os.path.join(HERE, '..', '..', 'shared')
UNAVAILABLE = 77
# What limits oneDNN, PyTorch's own kernels, MKL, and inductor with its compiler.
PEER_ISA = {'': {}, 'avx2': {'ONEDNN_MAX_CPU_ISA': 'AVX2', 'ATEN_CPU_CAPABILITY': 'avx2', 'MKL_ENABLE_INSTRUCTIONS': 'AVX2',
                             'TORCHINDUCTOR_CPP_MARCH': 'haswell'}}
# batch of a rank, the peer's data, their directory in SHARED/data, steps of ctrain and of the peer, the peer's warm-up steps
MODELS = {'mlp': (64, 'mnist', 'mnist', 1500, 400, 40), 'convnet': (64, 'mnist', 'mnist', 1500, 400, 40),
          'resnet18_cifar': (128, 'cifar', 'cifar-10-batches-bin', 25, 20, 4), 'resnet50': (16, 'synthetic', '', 15, 12, 3)}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--peer', default=os.path.join(HERE, 'peers', 'torch_train.py'))
    p.add_argument('--model', default='mlp', choices=list(MODELS))
    p.add_argument('--precision', default='fp32', choices=['fp32', 'bf16'])
    p.add_argument('--isa', default='', choices=list(PEER_ISA))
    p.add_argument('--evaluate', action='store_true')
    p.add_argument('--batch', type=int, default=0)
    p.add_argument('--procs', type=int, default=1)
    p.add_argument('--threads', type=int, default=1)
    p.add_argument('--rounds', type=int, default=5)
    p.add_argument('--steps', type=int, default=0)
    p.add_argument('--python', action='append', default=[])
    p.add_argument('--preload', default='auto')
    p.add_argument('--channels-last', action='store_true')
    p.add_argument('--compile', action=argparse.BooleanOptionalAction, default=True)
    p.add_argument('--only-tuned', action='store_true')
    p.add_argument('--env', action='append', default=[])
    p.add_argument('--loader', action='store_true')
    p.add_argument('--data-dir', default='')
    p.add_argument('--set', action='append', default=[])
    p.add_argument('--ctrain', default=os.path.join(HERE, '..', 'build', 'release', 'ctrain'))
    a = p.parse_args()
    batch, a.data, folder, steps, a.peer_steps, a.peer_warmup = MODELS[a.model]
    a.batch = a.batch or batch
    a.data_dir = a.data_dir or (os.path.join(SHARED, 'data', folder) if folder else '')
    if a.steps:
        a.peer_steps = min(a.steps, max(a.peer_steps, 20))
        a.peer_warmup = max(a.peer_steps // 10, min(a.peer_warmup, a.peer_steps // 2), 1)
    a.steps = a.steps or steps
    if a.evaluate and a.procs > 1:
        p.error('--evaluate compares single processes')
    allocators = filter(None, map(ctypes.util.find_library, ('tcmalloc', 'tcmalloc_minimal', 'jemalloc')))
    a.preload = {'auto': next(allocators, ''), 'none': ''}.get(a.preload, a.preload)
    return a


def start_ctrain(a, d, command, *more):
    """Runs a command of ctrain: its standard output, and peak resident MiB of the largest process of the job."""
    cmd = [a.ctrain, *command, os.path.join(HERE, 'configs', a.model + '.yaml'), 'run.dir=' + d + '/run', 'precision=' + a.precision,
           'launch.threads=%d' % a.threads, 'batch.per_rank=%d' % a.batch, 'batch.eval=%d' % a.batch, '--procs', str(a.procs), *more]
    cmd += (['data.dir=' + a.data_dir] if a.data_dir else []) + (['train.isa=' + a.isa] if a.isa else []) + a.set
    with open(d + '/out', 'w+') as out, open(d + '/err', 'w+') as err:
        child = subprocess.Popen(cmd, stdout=out, stderr=err)
        _, status, usage = os.wait4(child.pid, 0)
        err.seek(0)
        out.seek(0)
        if status != 0:
            sys.exit('ctrain failed: ' + err.read())
        return out.read(), usage.ru_maxrss // 1024


def train_ctrain(a, d):
    """One run: images/s of the steady steps, startup seconds, peak resident MiB of the largest process."""
    _, peak = start_ctrain(a, d, [], 'train.max_steps=%d' % a.steps, 'log.every=%d' % max(a.steps // 50, 1))
    rows = [json.loads(line) for line in open(d + '/run/metrics.jsonl')]
    steps = [r for r in rows if r['kind'] == 'step']
    steady = steps[len(steps) // 5:]
    seconds = sum(1 / r['images_per_sec'] for r in steady)
    end = [r for r in rows if r['kind'] == 'end'][-1]
    return {'images_per_sec': len(steady) / seconds, 'startup_seconds': end['startup_seconds'], 'peak_rss_mb': peak,
            'exposed_comm_ms': statistics.median(r['exposed_comm_ms'] for r in steady)}


def evaluate_ctrain(a, d):
    """One run on the evaluation data of the data set, or on as many synthetic images as --steps batches have."""
    start_ctrain(a, d, [], 'train.max_steps=1')
    images = ['data.n_val=%d' % (a.batch * a.steps)] if a.data == 'synthetic' else []
    out, peak = start_ctrain(a, d, ['eval'], 'data.val=', *images, '--checkpoint', d + '/run/checkpoints/last', '--json')
    result = json.loads(out)
    return {'images_per_sec': result['count'] / result['seconds'], 'peak_rss_mb': peak}


def run_ctrain(a):
    with tempfile.TemporaryDirectory(prefix='ctrain-bench-') as d, host.Watch('ctrain') as watch:
        row = evaluate_ctrain(a, d) if a.evaluate else train_ctrain(a, d)
    return {**row, 'others': watch.others}


def run_peer(a, name, python, flags, preload):
    """One run: the figures of the peer's JSON object, or the reason (a string) why it cannot be run."""
    cmd = [python, a.peer, '--model', a.model, '--procs', str(a.procs), '--threads', str(a.threads), '--batch', str(a.batch),
           '--steps', str(a.peer_steps), '--warmup', str(a.peer_warmup), '--data', a.data, '--precision', a.precision]
    cmd += (['--data-dir', a.data_dir] if a.data_dir else []) + (['--evaluate'] if a.evaluate else []) + flags
    env = dict(os.environ, OMP_NUM_THREADS=str(a.threads), **PEER_ISA[a.isa])
    if preload or '--channels-last' in flags:
        env.update(e.split('=', 1) for e in a.env)
    if preload:
        env['LD_PRELOAD'] = preload
    with host.Watch(name) as watch:
        out = subprocess.run(cmd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if out.returncode == UNAVAILABLE:
        return out.stderr.decode().strip()
    if out.returncode != 0:
        sys.exit(' '.join(cmd) + ' failed: ' + out.stderr.decode()[-2000:])
    result = json.loads(out.stdout.decode().strip().splitlines()[-1])
    return {**{k: result[k] for k in ('version', 'images_per_sec', 'startup_seconds', 'peak_rss_mb')}, 'others': watch.others}


def variants_of(a):
    """(name, interpreter, flags, preload) of every variant of every peer."""
    variants = []
    for spec in a.python:
        name, _, interpreter = spec.partition('=')
        allocator = ' and allocator' if a.preload else ''
        if not a.only_tuned:
            variants.append((name + ', as installed', interpreter, [], ''))
        if a.preload and not a.channels_last:
            variants.append((name + ', allocator preloaded', interpreter, [], a.preload))
        if a.channels_last:
            variants.append((name + ', channels_last' + allocator, interpreter, ['--channels-last'], a.preload))
        if a.compile:
            variants.append((name + ', compile, channels_last' + allocator, interpreter, ['--channels-last', '--compile'], a.preload))
        if a.loader:
            variants.append((name + ', DataLoader', interpreter, ['--loader'], ''))
    return variants


def main():
    a = arguments()
    variants = variants_of(a)
    ours, theirs, unavailable = [], {v[0]: [] for v in variants}, {}
    if a.python and not a.preload:
        unavailable['allocator'] = 'no tcmalloc or jemalloc was found or requested; Debian has libtcmalloc-minimal4'
        print('vs_pytorch: %s' % unavailable['allocator'], file=sys.stderr)
    for _ in range(a.rounds):
        ours.append(run_ctrain(a))
        for name, interpreter, flags, preload in variants:
            if name in unavailable:
                continue
            row = run_peer(a, name, interpreter, flags, preload)
            if isinstance(row, str):
                unavailable[name] = row
                del theirs[name]
                print('vs_pytorch: %s cannot be run: %s' % (name, row), file=sys.stderr)
                continue
            theirs[name].append(row)
            ours.append(run_ctrain(a))
    print(json.dumps(result_of(a, ours, theirs, unavailable), indent=1))


def result_of(a, ours, theirs, unavailable):
    med = lambda rows, key: statistics.median(r[key] for r in rows)
    disturbed = sum(r['others'] > host.DISTURBED for rows in (ours, *theirs.values()) for r in rows)
    spread = lambda rows: [round(min(r['images_per_sec'] for r in rows), 1), round(max(r['images_per_sec'] for r in rows), 1)]
    out = {'bench': 'vs_pytorch', 'machine': host.describe(a.ctrain), 'model': a.model, 'mode': 'evaluation' if a.evaluate else 'training',
           'precision': a.precision, 'isa': a.isa or 'auto', 'procs': a.procs, 'threads': a.threads, 'batch_per_rank': a.batch,
           'rounds': a.rounds, 'allocator': a.preload, 'disturbed': disturbed,
           'ctrain': {**{k: round(med(ours, k), 4) for k in ours[0]}, 'range': spread(ours), 'runs': ours}, 'peers': {}}
    for name, rows in theirs.items():
        out['peers'][name] = {'version': rows[0]['version'], 'images_per_sec': round(med(rows, 'images_per_sec'), 1), 'range': spread(rows),
                              'startup_seconds': round(med(rows, 'startup_seconds'), 3), 'peak_rss_mb': med(rows, 'peak_rss_mb'),
                              'ratio': round(med(ours, 'images_per_sec') / med(rows, 'images_per_sec'), 3),
                              'rss_ratio': round(med(ours, 'peak_rss_mb') / med(rows, 'peak_rss_mb'), 3), 'runs': rows}
    if unavailable:
        out['unavailable'] = unavailable
    best = max(out['peers'], key=lambda name: out['peers'][name]['images_per_sec'], default=None)
    if best:
        out['best'] = {'peer': best, 'ratio': out['peers'][best]['ratio'], 'rss_ratio': out['peers'][best]['rss_ratio']}
    return out


if __name__ == '__main__':
    main()
