"""Numbers that the C tests make in the same way, and the format of the golden files; for make_golden*.py.

Streams and formulas are in base/rng.h, nn/init.c, tests/nn/nn_check.h and golden.h.
"""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn

HERE = os.path.dirname(os.path.abspath(__file__))
INIT, TEST = 2, 7  # enum ct_rng_purpose
M32 = np.uint64(0xFFFFFFFF)


def stream(seed, purpose, a, b, n):
    """The first n 32-bit numbers of ct_rng_init(seed, purpose, a, b): Philox4x32-10, counter (block, purpose, a, b)."""
    blocks = (n + 3) // 4
    c = [np.arange(blocks, dtype=np.uint64)] + [np.full(blocks, v, dtype=np.uint64) for v in (purpose, a, b)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        m0, m1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(m1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), m1 & M32, (m0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), m0 & M32]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, axis=1).reshape(-1)[:n].astype(np.uint32)


def uniform(numbers):
    return (numbers >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def signed(numbers):
    return np.float32(2) * uniform(numbers) - np.float32(1)


def hash64(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def fill_floats(which, n):
    return signed(stream(42, TEST, which, 0, n))


def fill_labels(which, n, k):
    return (stream(42, TEST, which, 2, n).astype(np.uint64) * np.uint64(k) >> np.uint64(32)).astype(np.int64)


def init_parameters(model, seed, vary_norms=False):
    """ct_net_init(CT_INIT_PYTORCH, seed); with vary_norms batch norms as vary_norms() of tests/nn/nn_check.c."""
    norms = {name for name, m in model.named_modules() if isinstance(m, nn.BatchNorm2d)}
    fan_in = {name: m.weight[0].numel() for name, m in model.named_modules() if isinstance(m, (nn.Conv2d, nn.Linear))}
    with torch.no_grad():
        for i, (name, p) in enumerate(model.named_parameters()):
            module, kind = name.rsplit('.', 1)
            if module in norms:
                x = fill_floats(1000 + i, p.numel())
                p.fill_(1.0 if kind == 'weight' else 0.0)
                if vary_norms:
                    p.copy_(torch.from_numpy(np.float32(1) + np.float32(0.5) * x if kind == 'weight' else np.float32(0.3) * x))
                continue
            h = hash64(name)
            u = stream(seed, INIT, h & 0xFFFFFFFF, h >> 32, p.numel())
            bound = np.float32(1.0 / math.sqrt(fan_in[module]))
            p.copy_(torch.from_numpy(signed(u) * bound).reshape(p.shape))


def images(step, rows):
    """Pseudo images of golden.h: noise, and stripes that depend on the label."""
    x = np.empty((rows, 28, 28), dtype=np.uint8)
    labels = np.empty(rows, dtype=np.int64)
    pixel = np.arange(784)
    for r in range(rows):
        u = stream(2024, TEST, step, r, 785)
        labels[r] = u[784] % 10
        stripe = ((pixel * (labels[r] + 1)) >> 4) % 3 == 0
        x[r] = ((u[:784] >> np.uint32(25)) + np.where(stripe, 120, 0)).astype(np.uint8).reshape(28, 28)
    f = (x.astype(np.float32) / np.float32(255) - np.float32(0.1307)) / np.float32(0.3081)
    return torch.from_numpy(f).unsqueeze(1), torch.from_numpy(labels)


def sample(t, most=48):
    """All values of a small tensor, or evenly spaced ones, with sums over everything."""
    flat = t.detach().double().reshape(-1)
    step = max(1, flat.numel() // most)
    return dict(n=flat.numel(), step=step, sum=flat.sum().item(), abs_sum=flat.abs().sum().item(),
                values=[float(v) for v in flat[::step]])


def write(name, content):
    content = dict(v=1, torch=torch.__version__.split('+')[0], **content)
    with open(os.path.join(HERE, name), 'w') as f:
        text = json.dumps(content, separators=(',', ':'))
        f.write(text.replace('},{"kind"', '},\n{"kind"').replace('},{"model"', '},\n{"model"').replace('},{"input"', '},\n{"input"')
                .replace('},{"optim"', '},\n{"optim"') + '\n')
