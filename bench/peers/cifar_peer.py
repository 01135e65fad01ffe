#!/usr/bin/env python3
"""ResNet-18 (3x3 stem) on CIFAR-10 in plain PyTorch: the peer of bench/configs/cifar_accuracy.yaml.

  cifar_peer.py --data-dir DIR [--seed 1] [--epochs 8] [--precision fp32|bf16] [--threads 2]

The same recipe as the config: pad 4 + crop + flip, SGD with Nesterov momentum 0.9, weight decay 5e-4 on everything,
batch 128 with the last partial one dropped, learning rate 0.1 after one epoch of linear warm-up from a tenth, then
cosine to 0, He initialisation. Prints one JSON line with the test accuracy. Needs torch only.
"""
import argparse, json, math, time
import torch, torch.nn as nn, torch.nn.functional as F

from cifar import Block, load, normalise


def resnet18():
    layers, c = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for i in range(4):
        for j in range(2):
            layers.append(Block(c, 64 << i, 2 if i and not j else 1))
            c = 64 << i
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 10))
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
    return net


def channels_last(x):
    return normalise(x).contiguous(memory_format=torch.channels_last)


def augment(x, g):
    n = len(x)
    pad = F.pad(x, (4, 4, 4, 4))
    dy, dx = torch.randint(0, 9, (n,), generator=g), torch.randint(0, 9, (n,), generator=g)
    flip = torch.rand(n, generator=g) < 0.5
    out = torch.empty_like(x)
    for i in range(n):
        crop = pad[i, :, dy[i]:dy[i] + 32, dx[i]:dx[i] + 32]
        out[i] = crop.flip(2) if flip[i] else crop
    return out


def lr_at(step, warmup, total, base):
    if step < warmup:
        return base * (0.1 + 0.9 * step / warmup)
    return base / 2 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data-dir", required=True)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--lr", type=float, default=0.1)
    p.add_argument("--precision", default="fp32")
    p.add_argument("--threads", type=int, default=2)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    net = resnet18().to(memory_format=torch.channels_last)
    x, y = load(f"{a.data_dir}/data_batch_1.bin")
    xt, yt = load(f"{a.data_dir}/test_batch.bin")
    opt = torch.optim.SGD(net.parameters(), a.lr, 0.9, weight_decay=5e-4, nesterov=True)
    steps, step, start = len(x) // a.batch, 0, time.time()
    cast = lambda: torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.precision == "bf16")
    for epoch in range(a.epochs):
        g = torch.Generator().manual_seed(a.seed * 1000 + epoch)
        order = torch.randperm(len(x), generator=g)
        for k in range(steps):
            rows = order[k * a.batch:(k + 1) * a.batch]
            for group in opt.param_groups:
                group["lr"] = lr_at(step, steps, steps * a.epochs, a.lr)
            with cast():
                loss = F.cross_entropy(net(channels_last(augment(x[rows], g))), y[rows])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            step += 1
    train_s = time.time() - start
    net.eval()
    right = 0
    with torch.no_grad(), cast():
        for i in range(0, len(xt), 500):
            right += (net(channels_last(xt[i:i + 500])).argmax(1) == yt[i:i + 500]).sum().item()
    print(json.dumps(dict(who="pytorch", version=torch.__version__, precision=a.precision, seed=a.seed, epochs=a.epochs,
                          test_top1=right / len(xt), last_loss=round(float(loss), 4), train_seconds=round(train_s, 1))), flush=True)


if __name__ == "__main__":
    main()
