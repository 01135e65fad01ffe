#!/usr/bin/env python3
"""Writes resnet.json and names.json to its directory with PyTorch and torchvision (CPU): make_golden_resnet.py [case ...]

Each case is one of torchvision's networks with weights from Philox streams (golden_data.py).
  calm      the first forward and backward pass: logits, the gradient of every parameter
  training  20 steps of SGD: losses; parameters, running statistics and logits in evaluation at the end
Tensors are stored as digests: norm, a projection on a vector of Philox numbers, and a few elements. names.json has the names and
shapes of two state_dicts from torchvision.

Cases are chosen, the same way as in make_golden.py, such that rounding does not decide the result (shaken_most: deviations from
the fp64 run with errors in the initial weights or in every convolution).
  Training: a residual network doubles a difference of the last bit many times in 20 steps unless batch norms see enough values and
  steps are small. Residual branches start at a fifth (zero-init of the last gamma starts them at nothing), the rate is low.
  Deeper networks need more: resnet50 trains from the calm start. `chaotic` is a training from the other start at an everyday
  rate, PyTorch against PyTorch with rounding errors in its initial weights.
  Calm: of millions of ReLUs some always lie so near 0 that rounding opens or closes them, and one of them can move a gradient by
  per cents. Here shifts of the norms keep them from 0: three channels in four are mostly open, one mostly closed.
"""
import json
import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision

import golden_data
import make_golden as mg

MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
CLASSES, STEPS, SMOOTHING = 10, 20, 0.1
SGD = dict(name='sgd', momentum=0.9, nesterov=False, weight_decay=5e-4)
# case, torchvision's name, CIFAR stem, image, batch, learning rate, seed of the initial weights, is the training calm as well?
CASES = [('resnet18_cifar', 'resnet18', True, 32, 12, 2e-4, 11, False), ('resnet18', 'resnet18', False, 64, 12, 7e-5, 11, False),
         ('resnet50', 'resnet50', False, 64, 12, 7e-5, 13, True)]
CHAOTIC_LR = 0.02
SHAKEN = 4


def images(step, rows, size):
    """golden_photos of golden.h."""
    n = size * size * 3
    x = np.empty((rows, size, size, 3), dtype=np.uint8)
    labels = np.empty(rows, dtype=np.int64)
    at = np.arange(n)
    for r in range(rows):
        u = golden_data.stream(2024, golden_data.TEST, step, r, n + 1)
        labels[r] = u[n] % CLASSES
        stripe = ((at * (labels[r] + 1)) >> 4) % 3 == 0
        x[r] = ((u[:n] >> np.uint32(25)) + np.where(stripe, 120, 0)).astype(np.uint8).reshape(size, size, 3)
    f = (x.astype(np.float32) / np.float32(255) - MEAN) / STD
    return torch.from_numpy(f.transpose(0, 3, 1, 2).copy()), torch.from_numpy(labels)


def network(name, cifar, seed, calm=False):
    model = getattr(torchvision.models, name)(num_classes=CLASSES)
    if cifar:
        model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        model.maxpool = nn.Identity()
    golden_data.init_parameters(model, seed, vary_norms=True)
    last = 'bn3' if name == 'resnet50' else 'bn2'
    with torch.no_grad():
        for n, m in model.named_modules():
            if not isinstance(m, nn.BatchNorm2d):
                continue
            if n.endswith(last):
                m.weight.mul_(0.2)
            elif calm:
                m.weight.mul_(0.5)
            if calm:
                m.bias.add_(2)
                m.bias[3::4] -= 4
    return model


def digest(t, stream, beside=None):
    """beside: digest of the tensor whose size errors are measured by where that is larger."""
    x = t.detach().double().reshape(-1).numpy()
    step = max(1, x.size // 5)
    direction = golden_data.fill_floats(stream, x.size).astype(np.float64)
    short = lambda v: float(f'{v:.9g}')
    norm, most = short(np.sqrt((x * x).sum())), short(np.abs(x).max())
    return dict(n=x.size, norm=norm, scale=max(norm, beside['scale'] if beside else 0), most=max(most, beside['most'] if beside else 0),
                along=short((x * direction).sum()), step=step, values=[short(v) for v in x[::step]])


def digests(named, first):
    """The gradient of a norm's shift is nothing but rounding where each ReLU of a channel is open and a norm follows: its errors
    are measured by the gradient of the scale beside it."""
    out = {}
    for i, (n, t) in enumerate(named):
        out[n] = digest(t, first + i, out.get(n[:-4] + 'weight') if n.endswith('bias') and n != 'fc.bias' else None)
    return out


def distance(a, b):
    """As golden_compare_digest measures it."""
    return max(abs(a['norm'] - b['norm']) / b['scale'], abs(a['along'] - b['along']) / b['scale'],
               max(abs(v - w) for v, w in zip(a['values'], b['values'])) / b['most'])


def buffers(model):
    return [(n, b) for n, b in model.named_buffers() if 'num_batches' not in n]


def make(name, cifar, seed, calm=False, double=False, shake=0, noise=0):
    return mg.disturbed(network(name, cifar, seed, calm), double, shake, noise)


def loss_of(model, step, batch, size):
    x, y = images(step, batch, size)
    logits = model(x.to(model.fc.weight.dtype))
    return logits, F.cross_entropy(logits, y, label_smoothing=SMOOTHING)


def first_pass(name, cifar, size, batch, lr, seed, calm, **how):
    model = make(name, cifar, seed, calm=True, **how)
    logits, loss = loss_of(model, 0, batch, size)
    loss.backward()
    return dict(logits=digest(logits, 4999), grads=digests([(n, p.grad) for n, p in model.named_parameters()], 5000))


def train(name, cifar, size, batch, lr, seed, calm, **how):
    model = make(name, cifar, seed, calm, **how)
    opt = mg.optimizer(model.parameters(), dict(SGD, lr=lr))
    losses = []
    for step in range(STEPS):
        loss = loss_of(model, step, batch, size)[1]
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        logits = loss_of(model, 1000, batch, size)[0]
    return dict(losses=losses, params=digests(model.named_parameters(), 6000), buffers=digests(buffers(model), 7000),
                eval_logits=digest(logits, 4999))


def apart(a, b):
    """Per part the largest distance of results a from b."""
    d = {}
    for part in b:
        if part == 'losses':
            d[part] = max(abs(v - w) / w for v, w in zip(a[part], b[part]))
        elif 'norm' in b[part]:
            d[part] = distance(a[part], b[part])
        else:
            d[part] = max(distance(a[part][n], b[part][n]) for n in b[part])
    return d


def with_errors(run, case):
    """The result, and per part how far rounding takes PyTorch from its fp64 run."""
    r, exact = run(*case), run(*case, double=True)
    shaken = [apart(run(*case, **{kind: i}), exact) for kind in ('shake', 'noise') for i in range(1, SHAKEN + 1)]
    own = apart(r, exact)
    most = {part: max(s[part] for s in shaken) for part in r}
    for part in r:
        print(f'  {part:12} fp32 against fp64 {own[part]:.1e}, shaken {most[part]:.1e}', flush=True)
    return dict(fp32_against_fp64=own, shaken_most=most, **r)


def case(title, name, cifar, size, batch, lr, seed, calm_training):
    print(title, flush=True)
    how = name, cifar, size, batch, lr, seed, calm_training
    calm, training = with_errors(first_pass, how), with_errors(train, how)
    everyday = name, cifar, size, batch, CHAOTIC_LR, seed, False
    wild = apart(train(*everyday, shake=1), train(*everyday))['losses']
    print(f'  loss {training["losses"][0]:.4f} -> {training["losses"][-1]:.4f}; at a rate of {CHAOTIC_LR} apart by {wild:.1e}', flush=True)
    return dict(case=title, model=name, small_stem=cifar, image=size, batch=batch, init_seed=seed, label_smoothing=SMOOTHING,
                optim=dict(SGD, lr=lr), calm_training=calm_training, chaotic=dict(lr=CHAOTIC_LR, apart=wild), calm=calm, training=training)


def names():
    models = {}
    for name in ('resnet18', 'resnet50'):
        state = getattr(torchvision.models, name)().state_dict()
        models[name] = {n: list(t.shape) for n, t in state.items() if 'num_batches' not in n}
    path = os.path.join(golden_data.HERE, 'names.json')
    with open(path, 'w') as f:
        json.dump(dict(v=1, torchvision=torchvision.__version__.split('+')[0], models=models), f, separators=(',', ':'))
        f.write('\n')


if __name__ == '__main__':
    torch.set_num_threads(1)
    wanted = sys.argv[1:]
    if not wanted or 'names' in wanted:
        names()
    path, done = os.path.join(golden_data.HERE, 'resnet.json'), {}
    if wanted and os.path.exists(path):
        with open(path) as f:
            done = {c['case']: c for c in json.load(f)['cases']}
    for c in CASES:
        if not wanted or c[0] in wanted:
            done[c[0]] = case(*c)
    content = dict(v=1, torch=torch.__version__.split('+')[0], torchvision=torchvision.__version__.split('+')[0],
                   cases=[done[c[0]] for c in CASES])
    with open(path, 'w') as f:
        f.write(json.dumps(content, separators=(',', ':')).replace('},{"case"', '},\n{"case"') + '\n')
