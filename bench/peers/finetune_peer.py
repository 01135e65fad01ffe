#!/usr/bin/env python3
"""Fine-tuning of a CIFAR ResNet-20 in plain PyTorch: the peer of bench/finetune.py.

  finetune_peer.py --weights FILE.safetensors --data-dir DIR [--freeze] ...

Loads the backbone from the weights file, trains on classes 5-9 of data_batch_1.bin (crop with padding 4, flip, SGD with Nesterov
momentum 0.9, cosine to 0 by step), and prints a JSON line with the test accuracy after each epoch. --freeze: only the last layer
is trained, requires_grad=False for the others, whose batch norms are in eval mode. Needs torch only.
"""
import argparse, json, math, os, struct, time
import torch, torch.nn as nn, torch.nn.functional as F

from cifar import MEAN, STD, Block, load, normalise


class ResNet20(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        for i, k in enumerate((16, 32, 64)):
            c = 16 if i == 0 else k // 2
            setattr(self, 'layer%d' % (i + 1), nn.Sequential(*(Block(c if j == 0 else k, k, 2 if i and j == 0 else 1) for j in range(3))))
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        return self.fc(x.mean((2, 3)))


def safetensors(path):
    with open(path, 'rb') as f:
        raw = f.read()
    n = struct.unpack('<Q', raw[:8])[0]
    out = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name != '__metadata__':
            a, b = t['data_offsets']
            out[name] = torch.frombuffer(bytearray(raw[8 + n + a:8 + n + b]), dtype=torch.float32).reshape(t['shape'])
    return out


def new_classes(path, most):
    x, y = load(path)
    keep = (y >= 5).nonzero()[:most, 0]
    return normalise(x[keep]), y[keep] - 5


def augment(x, g):
    black = -torch.tensor(MEAN) / torch.tensor(STD)  # pixels outside the image are 0 before the normalization
    padded = black.view(1, 3, 1, 1).expand(len(x), 3, 40, 40).clone()
    padded[:, :, 4:36, 4:36] = x
    dy, dx = torch.randint(0, 9, (2, len(x)), generator=g)
    flip = torch.rand(len(x), generator=g) < 0.5
    out = torch.stack([padded[i, :, dy[i]:dy[i] + 32, dx[i]:dx[i] + 32] for i in range(len(x))])
    out[flip] = out[flip].flip(3)
    return out


def test(net, x, y):
    net.eval()
    with torch.no_grad():
        hits = sum(int((net(x[i:i + 256]).argmax(1) == y[i:i + 256]).sum()) for i in range(0, len(x), 256))
    return hits / len(x)


def main():
    p = argparse.ArgumentParser()
    for name, kind in (('weights', str), ('data-dir', str), ('images', int), ('epochs', int), ('lr', float), ('seed', int), ('threads', int),
                       ('batch', int), ('weight-decay', float)):
        p.add_argument('--' + name, type=kind, required=True)
    p.add_argument('--freeze', action='store_true')
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    net = ResNet20(5)
    tensors = {k: v for k, v in safetensors(a.weights).items() if not k.startswith('fc.')}
    left = net.load_state_dict(tensors, strict=False)
    assert not left.unexpected_keys and all(k.startswith('fc.') or k.endswith('num_batches_tracked') for k in left.missing_keys), left
    x, y = new_classes(os.path.join(a.data_dir, 'data_batch_1.bin'), a.images)
    test_x, test_y = new_classes(os.path.join(a.data_dir, 'test_batch.bin'), 10000)
    for name, parameter in net.named_parameters():
        parameter.requires_grad = not a.freeze or name.startswith('fc.')
    opt = torch.optim.SGD([q for q in net.parameters() if q.requires_grad], a.lr, 0.9, weight_decay=a.weight_decay, nesterov=True)
    per_epoch, step, top1, start = math.ceil(len(x) / a.batch), 0, [], time.time()
    for epoch in range(a.epochs):
        net.train(not a.freeze)
        g = torch.Generator().manual_seed(a.seed * 1000 + epoch)
        order = torch.randperm(len(x), generator=g)
        for i in range(0, len(x), a.batch):
            for group in opt.param_groups:
                group['lr'] = a.lr / 2 * (1 + math.cos(math.pi * step / (per_epoch * a.epochs)))
            batch = order[i:i + a.batch]
            opt.zero_grad()
            F.cross_entropy(net(augment(x[batch], g)), y[batch]).backward()
            opt.step()
            step += 1
        top1.append(test(net, test_x, test_y))
    print(json.dumps({'version': torch.__version__.split('+')[0], 'top1': top1, 'seconds': time.time() - start}))


if __name__ == '__main__':
    main()
