#!/usr/bin/env python3
"""Writes the golden files in its directory with PyTorch (2.x, CPU) and numpy: make_golden.py [train|ops|class_weights|optim|schedules|plateau ...]

The C tests make the same initial weights, images, labels and gradients from the same Philox streams, so the files contain
only results (golden_data.py).
"""
import math
import sys
from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from golden_data import fill_floats, fill_labels, images, init_parameters, sample, write


# --- train: 20 steps of whole models ----------------------------------------------------------------------------------

def mlp():
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), fc1=nn.Linear(784, 512), relu1=nn.ReLU(), fc2=nn.Linear(512, 256),
                                     relu2=nn.ReLU(), fc3=nn.Linear(256, 10)))


def lenet():
    return nn.Sequential(OrderedDict(conv1=nn.Conv2d(1, 6, 5, padding=2), relu1=nn.ReLU(), pool1=nn.MaxPool2d(2),
                                     conv2=nn.Conv2d(6, 16, 5), relu2=nn.ReLU(), pool2=nn.MaxPool2d(2), flatten=nn.Flatten(),
                                     fc1=nn.Linear(400, 120), relu3=nn.ReLU(), fc2=nn.Linear(120, 84), relu4=nn.ReLU(),
                                     fc3=nn.Linear(84, 10)))


def convnet():
    def block(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 5, padding=2), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(OrderedDict(layer1=block(1, 16), layer2=block(16, 32), flatten=nn.Flatten(),
                                     fc=nn.Linear(7 * 7 * 32, 10)))


class LargeBatch(torch.optim.Optimizer):
    """LARS and LAMB by the formulas of nn/optim/optim.h, in fp64. Vectors (biases, norms) are neither adapted nor decayed."""

    def __init__(self, params, o):
        super().__init__(params, dict(lr=o['lr']))
        self.o, self.t = o, 0

    def step(self):
        self.t += 1
        for group in self.param_groups:
            for p in group['params']:
                s = self.state[p]
                if not s:
                    s.update(w=p.detach().double().clone(), m=torch.zeros_like(p, dtype=torch.float64),
                             v=torch.zeros_like(p, dtype=torch.float64))
                (self.lars if self.o['name'] == 'lars' else self.lamb)(s, p.grad.double(), group['lr'], p.dim() > 1)
                with torch.no_grad():
                    p.copy_(s['w'])

    def lars(self, s, g, lr, adapt):
        o, w = self.o, s['w']
        if adapt and w.norm() > 0 and g.norm() > 0:
            decay = o['weight_decay']
            g = o['trust'] * w.norm() / (g.norm() + decay * w.norm() + 1e-8) * (g + decay * w)
        s['m'] = o['momentum'] * s['m'] + g
        s['w'] = w - lr * s['m']

    def lamb(self, s, g, lr, adapt):
        o, w = self.o, s['w']
        s['m'] = o['beta1'] * s['m'] + (1 - o['beta1']) * g
        s['v'] = o['beta2'] * s['v'] + (1 - o['beta2']) * g * g
        u = s['m'] / (1 - o['beta1'] ** self.t) / ((s['v'] / (1 - o['beta2'] ** self.t)).sqrt() + o['eps'])
        if adapt:
            u = u + o['weight_decay'] * w
            if w.norm() > 0 and u.norm() > 0:
                u = u * w.norm() / u.norm()
        s['w'] = w - lr * u


def optimizer(params, o):
    if o['name'] in ('lars', 'lamb'):
        return LargeBatch(params, o)
    if o['name'] == 'sgd':
        return torch.optim.SGD(params, o['lr'], momentum=o['momentum'], nesterov=o['nesterov'], weight_decay=o['weight_decay'])
    kind = torch.optim.Adam if o['name'] == 'adam' else torch.optim.AdamW
    return kind(params, o['lr'], betas=(o['beta1'], o['beta2']), eps=o['eps'], weight_decay=o['weight_decay'])


class Noise(torch.autograd.Function):
    """Errors of so much of the root mean square, on a value and on its gradient."""

    @staticmethod
    def forward(ctx, x, error, gradient_error, generator):
        ctx.how = gradient_error, generator
        return noisy(x, error, generator)

    @staticmethod
    def backward(ctx, dy):
        return noisy(dy, *ctx.how), None, None, None


def noisy(x, error, generator):
    return x + error * x.pow(2).mean().sqrt() * torch.randn(x.shape, generator=generator)


def add_noise(model, seed):
    """Convolutions err as fast algorithms for them do (nn/onednn/winograd/winograd.h): in the result and in both gradients."""
    g = torch.Generator().manual_seed(seed)
    for m in model.modules():
        if isinstance(m, nn.Conv2d) and m.in_channels % 16 == 0:
            m.register_forward_pre_hook(lambda m, x: (Noise.apply(x[0], 0, 3e-6, g),))
            m.register_forward_hook(lambda m, x, y: Noise.apply(y, 1.5e-6, 0, g))
            m.weight.register_hook(lambda dw: noisy(dw, 4e-6, g))


def disturbed(model, double, shake, noise):
    """In double precision; with parameters off by a rounding error (seed `shake`); with noise in every convolution (seed `noise`)."""
    if double:
        model = model.double()
    if shake:
        g = torch.Generator().manual_seed(shake)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + 2e-7 * torch.randn(p.shape, generator=g))
    if noise:
        add_noise(model, noise)
    return model


def train_case(make, o, batch, steps, smoothing, seed, double=False, shake=0, noise=0):
    model = make()
    init_parameters(model, seed)
    initial = {n: sample(p) for n, p in model.named_parameters()}
    model = disturbed(model, double, shake, noise)
    opt = optimizer(model.parameters(), o)
    losses = []
    for step in range(steps):
        x, y = images(step, batch)
        loss = F.cross_entropy(model(x.double() if double else x), y, label_smoothing=smoothing)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    model.eval()
    x, y = images(1000, batch)
    with torch.no_grad():
        logits = model(x.double() if double else x)
        evaluation = dict(loss=F.cross_entropy(logits, y, label_smoothing=smoothing).item(),
                          top1=int((logits.argmax(1) == y).sum()), logits=sample(logits, 160))
    return model, initial, losses, evaluation


SGD = dict(name='sgd', lr=0.05, momentum=0.9, nesterov=False, weight_decay=5e-4)
ADAMW = dict(name='adamw', lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=1e-2)
LARS = dict(name='lars', lr=2.0, momentum=0.9, trust=0.001, weight_decay=1e-4)
ADAM = dict(ADAMW, name='adam')
LAMB = dict(name='lamb', lr=0.01, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=1e-2)
# model, optimizer, label smoothing, seed of the initial weights, batch
TRAIN = [('mlp', mlp, dict(SGD, lr=0.02), 0.0, 11, 16), ('mlp', mlp, ADAMW, 0.1, 11, 16),
         ('lenet', lenet, dict(SGD, lr=0.1), 0.0, 11, 16), ('lenet', lenet, ADAMW, 0.0, 13, 16),
         ('convnet', convnet, dict(SGD, lr=0.005), 0.1, 51, 6), ('convnet', convnet, dict(ADAMW, lr=3e-4), 0.0, 40, 6)]


def train():
    cases = []
    for name, make, o, smoothing, seed, batch in TRAIN:
        steps = 20
        model, initial, losses, evaluation = train_case(make, o, batch, steps, smoothing, seed)
        exact = train_case(make, o, batch, steps, smoothing, seed, double=True)[2]
        deviation = max(abs(a - b) / b for a, b in zip(losses, exact))
        # A max pool or ReLU that flips on the last bit moves later losses by more than rounding does. Cases are chosen so
        # that none of these runs, with rounding errors in the initial weights or in every step of the convolutions, comes
        # near the tolerance of the tests.
        shaken = [train_case(make, o, batch, steps, smoothing, seed, shake=i)[2] for i in range(1, 41)]
        shaken += [train_case(make, o, batch, steps, smoothing, seed, noise=i)[2] for i in range(1, 41)]
        sensitivity = sorted(max(abs(a - b) / b for a, b in zip(s, exact)) for s in shaken)
        print(f'{name:8} {o["name"]:6} loss {losses[0]:.4f} -> {losses[-1]:.4f}, eval {evaluation["loss"]:.4f}, '
              f'fp32 against fp64 {deviation:.1e}, shaken {sensitivity[40]:.1e} (median) {sensitivity[-1]:.1e} (most)')
        cases.append(dict(model=name, init_seed=seed, batch=batch, steps=steps, label_smoothing=smoothing, optim=o, losses=losses,
                          fp32_against_fp64=deviation, shaken_most=sensitivity[-1], eval=evaluation, initial=initial,
                          params={n: sample(p) for n, p in model.named_parameters()},
                          buffers={n: sample(b) for n, b in model.named_buffers() if 'num_batches' not in n}))
    write('train.json', dict(cases=cases))


# --- ops: values and gradients of small models, described by layer texts ------------------------------------------------

class AvgPool(nn.AvgPool2d):
    def __init__(self, k, s, p):
        super().__init__(k, s, p, count_include_pad=False)


class Layers(nn.Module):
    """The texts of model.layers (nn/models/model.h), read here independently of the C parser."""

    def __init__(self, shape, texts):
        super().__init__()
        self.steps, counts, last = [], {}, 'input'
        probe = {'input': torch.zeros((2,) + shape)}
        for text in texts.split(';'):
            op, *words = text.split()
            bare = [w for w in words if '=' not in w]
            key = dict(w.split('=') for w in words if '=' in w)

            def pair(name, default=None):
                v = key.get(name, default)
                return tuple(int(i) for i in (str(v).split('x') * 2)[:2]) if v is not None else None
            prefix = dict(conv2d='conv', linear='fc', batch_norm='bn', max_pool='pool', avg_pool='pool', global_avg_pool='pool',
                          dropout='drop').get(op, op)
            name = key.get('name')
            while not name or name in probe:
                counts[prefix] = counts.get(prefix, 0) + 1
                name = f'{prefix}{counts[prefix]}'
            source = key.get('from', last) if op != 'add' else last
            x = probe[source]
            kernel = pair('kernel', bare[0] if bare and 'pool' in op else None)
            if op == 'conv2d':
                m = nn.Conv2d(x.shape[1], int(bare[0]), kernel, pair('stride', 1), pair('padding', 0), pair('dilation', 1),
                              int(key.get('groups', 1)), key.get('bias', 'true') == 'true')
            elif op == 'linear':
                m = nn.Linear(x[0].numel(), int(bare[0]), key.get('bias', 'true') == 'true')
            elif op == 'batch_norm':
                m = nn.BatchNorm2d(x.shape[1], float(key.get('eps', 1e-5)), float(key.get('momentum', 0.1)))
            elif op == 'max_pool':
                m = nn.MaxPool2d(kernel, pair('stride') or kernel, pair('padding', 0), pair('dilation', 1))
            elif op == 'avg_pool':
                m = AvgPool(kernel, pair('stride') or kernel, pair('padding', 0))
            else:
                m = {'relu': nn.ReLU, 'global_avg_pool': lambda: nn.AdaptiveAvgPool2d(1), 'flatten': nn.Identity,
                     'add': nn.Identity}[op]()
            if any(True for _ in m.parameters()):
                self.add_module(name, m)
            step = (op, name, m, source, key.get('from') if op == 'add' else None)
            self.steps.append(step)
            m.eval()  # the probe leaves running statistics alone
            with torch.no_grad():
                probe[name] = self.run(step, probe)
            last = name
        self.train()

    def run(self, step, values):
        op, _, m, source, other = step
        x = values[source]
        if op == 'linear' or op == 'flatten':
            return m(x.flatten(1))[:, :, None, None]
        return x + values[other] if op == 'add' else m(x)

    def forward(self, x):
        values = {'input': x}
        for step in self.steps:
            values[step[1]] = self.run(step, values)
        return values[self.steps[-1][1]].flatten(1)


TAIL = ';flatten;linear 3'
OPS = [
    ((7, 1, 1), 5, 'linear 3', 0, 'xent'), ((2, 3, 5), 4, 'linear 6 bias=false;relu;linear 3', 0, 'xent'),
    ((9, 1, 1), 6, 'linear 3', 0.1, 'xent'), ((10, 1, 1), 4, 'linear 10;relu;linear 3', 0, 'mse'),
    ((3, 7, 6), 2, 'conv2d 5 kernel=3 padding=1' + TAIL, 0, 'xent'),
    ((3, 9, 8), 2, 'conv2d 4 kernel=3 stride=2 padding=1' + TAIL, 0, 'xent'),
    ((2, 8, 9), 2, 'conv2d 3 kernel=3x2 stride=2x3 padding=1x0 bias=false' + TAIL, 0, 'xent'),
    ((2, 9, 8), 2, 'conv2d 3 kernel=3 dilation=2 padding=2' + TAIL, 0, 'xent'),
    ((2, 7, 10), 2, 'conv2d 4 kernel=3 dilation=1x3 stride=2x1' + TAIL, 0, 'xent'),
    ((4, 6, 5), 2, 'conv2d 6 kernel=3 groups=2 padding=1' + TAIL, 0, 'xent'),
    ((5, 6, 6), 2, 'conv2d 10 kernel=3 groups=5 padding=1' + TAIL, 0, 'xent'),
    ((3, 4, 5), 3, 'conv2d 5 kernel=3 padding=1;batch_norm' + TAIL, 0, 'xent'),
    ((3, 4, 5), 3, 'batch_norm eps=1e-3 momentum=0.3;relu' + TAIL, 0, 'xent'),
    ((6, 1, 1), 8, 'linear 7;batch_norm;relu;linear 3', 0, 'xent'),
    ((3, 8, 6), 2, 'max_pool 2' + TAIL, 0, 'xent'), ((2, 7, 9), 2, 'max_pool 3 stride=2 padding=1' + TAIL, 0, 'xent'),
    ((2, 9, 9), 2, 'max_pool 2x3 stride=1x2 padding=1x0 dilation=2x1' + TAIL, 0, 'xent'),
    ((3, 6, 8), 2, 'avg_pool 2' + TAIL, 0, 'xent'), ((2, 7, 7), 2, 'avg_pool 3 stride=2 padding=1' + TAIL, 0, 'xent'),
    ((3, 5, 7), 3, 'conv2d 6 kernel=3;global_avg_pool;linear 3', 0, 'xent'),
    ((4, 6, 6), 2, 'conv2d 8 kernel=3 padding=1 bias=false;batch_norm;relu name=r;conv2d 8 kernel=3 padding=1 bias=false;'
     'batch_norm;relu;conv2d 8 kernel=3 padding=1 bias=false;batch_norm;add from=r;relu;global_avg_pool;linear 3', 0, 'xent'),
    ((2, 4, 4), 2, 'conv2d 3 kernel=1 name=a;conv2d 3 kernel=3 padding=1 name=b;conv2d 3 kernel=1 from=a;add from=b;add from=a'
     + TAIL, 0, 'xent'),
]


def ops():
    cases, losses = [], []
    for shape, batch, layers, smoothing, kind in OPS:
        model = Layers(shape, layers)
        init_parameters(model, 1, vary_norms=True)
        x = torch.from_numpy(fill_floats(1, batch * math.prod(shape))).reshape((batch,) + shape).requires_grad_()
        targets = torch.from_numpy(fill_floats(2, batch * 3)).reshape(batch, 3)
        labels = torch.from_numpy(fill_labels(3, batch, 3))
        logits = model(x)
        loss = F.mse_loss(logits, targets) if kind == 'mse' else F.cross_entropy(logits, labels, label_smoothing=smoothing)
        loss.backward()
        grads = {n: sample(p.grad) for n, p in model.named_parameters()}
        running = {n: sample(b) for n, b in model.named_buffers() if 'num_batches' not in n}
        model.eval()
        cases.append(dict(input=list(shape), batch=batch, layers=layers, label_smoothing=smoothing, loss_kind=kind,
                          loss=loss.item(), logits=sample(logits, 1000), input_grad=sample(x.grad, 100), grads=grads,
                          buffers=running, eval_logits=sample(model(x), 1000)))
    for n, k, smoothing, spread in [(5, 10, 0, 3), (5, 10, 0.1, 3), (3, 2, 0, 20), (4, 37, 0.3, 5), (2, 100, 0, 8)]:
        z = torch.from_numpy(fill_floats(50 + k, n * k) * np.float32(spread)).reshape(n, k).requires_grad_()
        y = torch.from_numpy(fill_labels(51 + k, n, k))
        loss = F.cross_entropy(z, y, label_smoothing=smoothing, reduction='sum')
        loss.backward()
        losses.append(dict(kind='xent', n=n, k=k, label_smoothing=smoothing, spread=spread, loss=loss.item(), grad=sample(z.grad, 1000)))
    for n, k in [(3, 1), (4, 5), (2, 33)]:
        z = torch.from_numpy(fill_floats(50 + k, n * k)).reshape(n, k).requires_grad_()
        t = torch.from_numpy(fill_floats(80 + k, n * k)).reshape(n, k)
        loss = F.mse_loss(z, t) * n
        loss.backward()
        losses.append(dict(kind='mse', n=n, k=k, label_smoothing=0, spread=1, loss=loss.item(), grad=sample(z.grad, 1000)))
    write('ops.json', dict(cases=cases, losses=losses))
    print(f'ops      {len(cases)} models, {len(losses)} losses')


# --- class_weights: cross-entropy with class weights, label smoothing and two labels per row ---------------------------------

def class_weights():
    losses = []
    for n, k, smoothing, mixed in [(5, 10, 0, False), (5, 10, 0.1, False), (4, 37, 0.3, False), (6, 3, 0.2, True), (6, 20, 0, True)]:
        z = torch.from_numpy(fill_floats(50 + k, n * k) * np.float32(3)).reshape(n, k).requires_grad_()
        weights = torch.from_numpy(np.float32(0.125) + np.abs(fill_floats(90 + k, k)) * np.float32(2))
        each = [F.cross_entropy(z, torch.from_numpy(fill_labels(which + k, n, k)), weight=weights, label_smoothing=smoothing,
                                reduction='none') for which in (51, 52)]
        mix = torch.from_numpy(np.abs(fill_floats(91 + k, n))) if mixed else torch.ones(n)
        loss = (mix * each[0] + (1 - mix) * each[1]).sum()
        loss.backward()
        losses.append(dict(kind='xent', n=n, k=k, label_smoothing=smoothing, spread=3, mixed=mixed, loss=loss.item(),
                           grad=sample(z.grad, 1000)))
    write('class_weights.json', dict(losses=losses))
    print(f'weights  {len(losses)} losses')


# --- optim: optimizers on given gradients ---------------------------------------------------------------------------------

OPTIM_LAYERS = 'linear 7;batch_norm;relu;linear 3'
OPTIM = [
    dict(SGD, momentum=0.0, weight_decay=0.0), dict(SGD, momentum=0.0), dict(SGD, weight_decay=0.0), SGD,
    dict(SGD, nesterov=True), dict(SGD, weight_decay=0.1), dict(SGD, clip_norm=1.0), dict(SGD, weight_decay=0.1, decay_norm_bias=False),
    ADAMW, dict(ADAMW, weight_decay=0.0), dict(ADAMW, lr=0.05, weight_decay=0.3), dict(ADAMW, beta1=0.8, beta2=0.95, eps=1e-3),
    dict(ADAMW, weight_decay=0.3, decay_norm_bias=False), dict(ADAMW, clip_norm=0.5),
    LARS, dict(LARS, weight_decay=0.0), dict(LARS, momentum=0.0, trust=0.02, weight_decay=0.3), dict(LARS, clip_norm=1.0),
    LAMB, dict(LAMB, weight_decay=0.0), dict(LAMB, lr=0.1, beta1=0.8, beta2=0.95, weight_decay=0.3), dict(LAMB, clip_norm=0.5),
    ADAM, dict(ADAM, weight_decay=0.0), dict(ADAM, lr=0.05, weight_decay=0.3), dict(ADAM, beta1=0.8, beta2=0.95, eps=1e-3),
    dict(ADAM, weight_decay=0.3, decay_norm_bias=False), dict(ADAM, clip_norm=0.5),
]


def optim():
    cases = []
    for settings in OPTIM:
        o = dict(dict(clip_norm=0.0, decay_norm_bias=True, momentum=0.0, nesterov=False, beta1=0.9, beta2=0.999, eps=1e-8), **settings)
        model = Layers((9, 1, 1), OPTIM_LAYERS)
        init_parameters(model, 1)
        named = list(model.named_parameters())
        if not o['decay_norm_bias'] and o['name'] in ('sgd', 'adam', 'adamw'):
            decays = lambda n: n.endswith('.weight') and 'bn' not in n
            groups = [dict(params=[p for n, p in named if decays(n)]), dict(params=[p for n, p in named if not decays(n)], weight_decay=0.0)]
        else:
            groups = [p for _, p in named]
        opt = optimizer(groups, o)
        after, norms = [], []
        for step in range(12):
            for i, (_, p) in enumerate(named):
                p.grad = torch.from_numpy(fill_floats(100 * step + i, p.numel())).reshape(p.shape)
            norms.append(float(torch.nn.utils.clip_grad_norm_([p for _, p in named], o['clip_norm'] or math.inf)))
            for group in opt.param_groups:
                group['lr'] = o['lr'] * (1 - step / 20)
            opt.step()
            if step in (0, 1, 11):
                after.append(dict(step=step, params={n: sample(p, 100) for n, p in named}))
        cases.append(dict(optim=o, norms=norms, after=after))
    write('optim.json', dict(layers=OPTIM_LAYERS, cases=cases))
    print(f'optim    {len(cases)} settings')


# --- schedules --------------------------------------------------------------------------------------------------------------

def schedule_table(make, steps, warmup=0, warmup_start=0.1, lr=0.1):
    opt = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr)
    s = torch.optim.lr_scheduler
    main = make(s, opt)
    if warmup:
        main = s.SequentialLR(opt, [s.LinearLR(opt, warmup_start, 1.0, warmup), main], [warmup])
    table = []
    for _ in range(steps):
        table.append(opt.param_groups[0]['lr'])
        opt.step()
        main.step()
    return table


def schedules():
    import warnings
    warnings.simplefilter('ignore')
    cases = []

    def add(kind, make, steps, lr=0.1, warmup=0, warmup_start=0.1, **keys):
        cases.append(dict(kind=kind, base_lr=lr, warmup_steps=warmup, warmup_start=warmup_start, **keys,
                          lrs=schedule_table(make, steps, warmup, warmup_start, lr)))
    for warmup in (0, 1, 7, 50):
        t = 200 - warmup
        add('constant', lambda s, o: s.LambdaLR(o, lambda _: 1.0), 200, warmup=warmup)
        add('step', lambda s, o: s.StepLR(o, 30, 0.3), 200, warmup=warmup, step_size=30, gamma=0.3)
        add('multistep', lambda s, o: s.MultiStepLR(o, [20, 45, 46, 120], 0.5), 200, warmup=warmup, warmup_start=0.01,
            milestones=[20, 45, 46, 120], gamma=0.5)
        add('cosine', lambda s, o: s.CosineAnnealingLR(o, t), 200, warmup=warmup, total_steps=200)
        add('cosine', lambda s, o: s.CosineAnnealingLR(o, t, 0.004), 200, warmup=warmup, total_steps=200, min_lr=0.004)
        for power in (1.0, 0.9, 2.0):
            add('poly', lambda s, o: s.PolynomialLR(o, t, power), 230, warmup=warmup, total_steps=200, power=power)
    add('step', lambda s, o: s.StepLR(o, 1, 0.97), 100, step_size=1, gamma=0.97)
    for total, pct, div, final in ((100, 0.3, 25.0, 1e4), (77, 0.1, 10.0, 100.0), (30, 0.5, 4.0, 1e3), (10, 0.25, 25.0, 1e4)):
        add('one_cycle', lambda s, o: s.OneCycleLR(o, 0.1, total, pct_start=pct, div_factor=div, final_div_factor=final,
            cycle_momentum=False), total, total_steps=total, pct_start=pct, div_factor=div, final_div_factor=final)
    write('schedules.json', dict(cases=cases))
    print(f'schedule {len(cases)} tables')


# --- plateau: learning rates for given results of evaluations --------------------------------------------------------------

def plateau():
    cases = []
    for i, (mode, keys) in enumerate((m, k) for m in ('min', 'max') for k in (
            dict(patience=2), dict(patience=0, factor=0.5, cooldown=2), dict(patience=1, factor=0.3, min_lr=0.004),
            dict(patience=3, threshold=0.05, cooldown=1))):
        o = dict(dict(factor=0.1, patience=10, threshold=1e-4, cooldown=0, min_lr=0.0), **keys)
        opt = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.1)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode, **o)
        noise = [float(x) for x in fill_floats(900 + i, 60)]
        values = [(1 if mode == 'min' else -1) * math.exp(-k / 12) + 0.2 * noise[k] + (2 if mode == 'max' else 0.3) for k in range(60)]
        lrs = []
        for value in values:
            schedule.step(value)
            lrs.append(opt.param_groups[0]['lr'])
        cases.append(dict(kind=mode, **o, values=values, lrs=lrs))
    write('plateau.json', dict(cases=cases))
    print(f'plateau  {len(cases)} settings, {sum(len(set(c["lrs"])) - 1 for c in cases)} drops')


if __name__ == '__main__':
    torch.set_num_threads(1)
    for part in sys.argv[1:] or ['train', 'ops', 'class_weights', 'optim', 'schedules', 'plateau']:
        {'train': train, 'ops': ops, 'class_weights': class_weights, 'optim': optim, 'schedules': schedules, 'plateau': plateau}[part]()
