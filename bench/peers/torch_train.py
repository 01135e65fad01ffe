#!/usr/bin/env python3
"""Training in plain PyTorch, DistributedDataParallel from two processes on: the peer of bench/vs_pytorch.py.

  torch_train.py --model mlp|convnet|resnet18_cifar|resnet18|resnet50 [--procs 1] [--threads 1] [--batch 64] [--steps 50] [--warmup 5]
      [--data synthetic|mnist|cifar] [--data-dir DIR] [--precision fp32|bf16] [--channels-last] [--compile] [--device cpu|cuda]
      [--loader [--workers 0]] [--evaluate] [--lr 0.05] [--momentum 0.9] [--wd 5e-4] [--seed 1]

The same models, loss, optimizer and batches as bench/configs/. The data set is one uint8 tensor in memory that is indexed once a step,
which is the fastest way to write it; --loader uses a DataLoader instead. --channels-last: the model and the images in that memory format.
--compile: torch.compile with its default back end, inductor. --precision bf16: autocast. --evaluate: the forward pass of a model in
evaluation mode, the loss and the accuracy; a compiled model has constant weights ("freezing"), so batch norms are folded into convolutions.

Prints one JSON line (rank 0): images_per_sec counts the images of all ranks in the steps after the first --warmup ones;
startup_seconds is the time from the start of the process to the end of its first step, with the compilation; peak_rss_mb is the
peak memory of rank 0; last_loss is the loss of the last step. Needs torch 1.13 or later and nothing else.
Ends with 77 and a message when this PyTorch or this machine cannot run what was asked for: torch.compile needs torch 2 and a C++ compiler.
"""
import argparse, gzip, json, os, resource, shutil, socket, struct, sys, time

START = time.time()
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

UNAVAILABLE = 77


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))


def convnet():
    layers = []
    for c, k in ((1, 16), (16, 32)):
        layers += [nn.Conv2d(c, k, 5, padding=2), nn.BatchNorm2d(k), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 7 * 7, 10))


def conv_norm(c, k, size, stride=1):
    return [nn.Conv2d(c, k, size, stride, size // 2, bias=False), nn.BatchNorm2d(k)]


class Residual(nn.Module):
    """A basic block of two 3x3 convolutions, or a bottleneck whose 3x3 convolution has the stride (ResNet v1.5)."""

    def __init__(self, c, width, stride, bottleneck):
        super().__init__()
        relu = nn.ReLU(inplace=True)
        self.channels = 4 * width if bottleneck else width
        if bottleneck:
            layers = conv_norm(c, width, 1) + [relu] + conv_norm(width, width, 3, stride) + [relu] + conv_norm(width, self.channels, 1)
        else:
            layers = conv_norm(c, width, 3, stride) + [relu] + conv_norm(width, width, 3)
        self.body = nn.Sequential(*layers)
        same = stride == 1 and c == self.channels
        self.shortcut = nn.Identity() if same else nn.Sequential(*conv_norm(c, self.channels, 1, stride))

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet(blocks, bottleneck, stem, classes):
    layers = conv_norm(3, 64, 3) if stem == 'cifar' else conv_norm(3, 64, 7, 2)
    layers.append(nn.ReLU(inplace=True))
    if stem == 'imagenet':
        layers.append(nn.MaxPool2d(3, 2, 1))
    c = 64
    for stage, n in enumerate(blocks):
        for i in range(n):
            layers.append(Residual(c, 64 << stage, 2 if stage > 0 and i == 0 else 1, bottleneck))
            c = layers[-1].channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, classes))


# How to build it, the shape of an image, the number of classes.
MODELS = {
    'mlp': (mlp, (1, 28, 28), 10),
    'convnet': (convnet, (1, 28, 28), 10),
    'resnet18_cifar': (lambda: resnet((2, 2, 2, 2), False, 'cifar', 10), (3, 32, 32), 10),
    'resnet18': (lambda: resnet((2, 2, 2, 2), False, 'imagenet', 1000), (3, 224, 224), 1000),
    'resnet50': (lambda: resnet((3, 4, 6, 3), True, 'imagenet', 1000), (3, 224, 224), 1000),
}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--model', default='convnet', choices=list(MODELS))
    p.add_argument('--procs', type=int, default=1)
    p.add_argument('--threads', type=int, default=1)
    p.add_argument('--batch', type=int, default=64)
    p.add_argument('--steps', type=int, default=50)
    p.add_argument('--warmup', type=int, default=5)
    p.add_argument('--data', default='synthetic', choices=['synthetic', 'mnist', 'cifar'])
    p.add_argument('--data-dir', default='')
    p.add_argument('--precision', default='fp32', choices=['fp32', 'bf16'])
    p.add_argument('--channels-last', action='store_true')
    p.add_argument('--compile', action='store_true')
    p.add_argument('--device', default='cpu', choices=['cpu', 'cuda'])
    p.add_argument('--loader', action='store_true')
    p.add_argument('--evaluate', action='store_true')
    p.add_argument('--workers', type=int, default=0)
    p.add_argument('--lr', type=float, default=0.05)
    p.add_argument('--momentum', type=float, default=0.9)
    p.add_argument('--wd', type=float, default=5e-4)
    p.add_argument('--seed', type=int, default=1)
    a = p.parse_args()
    if a.warmup < 1 or a.steps < 1:
        p.error('--warmup and --steps are at least 1')
    if a.evaluate and a.procs > 1:
        p.error('--evaluate needs --procs 1')
    return a


def why_unavailable(a):
    if a.device == 'cuda' and not torch.cuda.is_available():
        return 'PyTorch %s finds no GPU' % torch.__version__
    if not a.compile:
        return None
    if not hasattr(torch, 'compile'):
        return 'PyTorch %s has no torch.compile' % torch.__version__
    compilers = [os.environ['CXX']] if os.environ.get('CXX') else ['g++', 'clang++']
    if not any(shutil.which(c) for c in compilers):
        return 'torch.compile needs a C++ compiler (%s): install g++ or set CXX' % ' or '.join(compilers)
    return None


def read_idx(path):
    """The tensor in an IDX file of bytes, gzip-compressed or not."""
    with open(path if os.path.exists(path) else path + '.gz', 'rb') as f:
        data = f.read()
    if data[:2] == b'\x1f\x8b':
        data = gzip.decompress(data)
    header = 4 + 4 * data[3]
    return torch.frombuffer(bytearray(data[header:]), dtype=torch.uint8).reshape(struct.unpack('>%dI' % data[3], data[4:header]))


def load(a, shape, classes):
    """Images uint8 [N,C,H,W] and labels int64 [N]."""
    if a.data == 'mnist':
        return (read_idx(os.path.join(a.data_dir, 'train-images-idx3-ubyte')).unsqueeze(1),
                read_idx(os.path.join(a.data_dir, 'train-labels-idx1-ubyte')).long())
    if a.data == 'cifar':
        with open(os.path.join(a.data_dir, 'data_batch_1.bin'), 'rb') as f:
            records = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8).reshape(-1, 1 + 3 * 32 * 32)
        return records[:, 1:].reshape(-1, 3, 32, 32).contiguous(), records[:, 0].long()
    n = max(4 * a.batch * a.procs, 512)
    g = torch.Generator().manual_seed(7)
    return torch.randint(0, 256, (n,) + shape, dtype=torch.uint8, generator=g), torch.randint(0, classes, (n,), generator=g)


def batches(a, rank, images, labels):
    """This rank's batches without end: each epoch is a permutation that all ranks share."""
    per_step = a.batch * a.procs
    for epoch in range(1 << 62):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(a.seed + epoch))
        rows = [order[i + rank * a.batch:i + (rank + 1) * a.batch] for i in range(0, len(images) - per_step + 1, per_step)]
        if not rows:
            sys.exit('torch_train: %d images are fewer than one batch of %d' % (len(images), per_step))
        if a.loader:
            data = torch.utils.data.TensorDataset(images, labels)
            yield from torch.utils.data.DataLoader(data, batch_sampler=[r.tolist() for r in rows], num_workers=a.workers)
        else:
            for r in rows:
                yield images[r], labels[r]


class Times:
    """Of the first step, and of the steps after the warm-up."""

    def __init__(self, a):
        self.a, self.at = a, {}
        self.wait = torch.cuda.synchronize if a.device == 'cuda' else lambda: None

    def last(self, step):
        """Called at the end of each step: whether it is the last one."""
        end = self.a.warmup + self.a.steps
        if step in (1, self.a.warmup, end):
            self.wait()
            self.at[step] = time.time()
        return step == end

    def result(self):
        seconds = self.at[self.a.warmup + self.a.steps] - self.at[self.a.warmup]
        return {'images_per_sec': round(self.a.steps * self.a.batch * self.a.procs / seconds, 2), 'startup_seconds': round(self.at[1] - START, 3)}


def inputs(a, rank, device, shape, classes, memory_format):
    """(step, images, labels) of this rank, without end."""
    mean, std = (0.1307, 0.3081) if shape[0] == 1 else (0.45, 0.225)
    for step, (x, y) in enumerate(batches(a, rank, *load(a, shape, classes)), 1):
        yield step, ((x.to(device).float() / 255 - mean) / std).contiguous(memory_format=memory_format), y.to(device)


def train(a, rank, device, model, data):
    net = model
    if a.procs > 1:
        net = nn.parallel.DistributedDataParallel(net, device_ids=[rank] if a.device == 'cuda' else None, gradient_as_bucket_view=True)
    if a.compile:
        net = torch.compile(net)
    optimizer = torch.optim.SGD(model.parameters(), a.lr, a.momentum, weight_decay=a.wd)
    times = Times(a)
    for step, x, y in data:
        with torch.autocast(a.device, dtype=torch.bfloat16, enabled=a.precision == 'bf16'):
            loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if times.last(step):
            break
    return {**times.result(), 'last_loss': round(loss.item(), 5)}


def evaluate(a, model, data):
    net = model.eval()
    if a.compile:
        from torch._inductor import config
        config.freezing = True
        net = torch.compile(net)
    times, loss, correct = Times(a), 0, 0
    # One context for all steps, so that it converts the weights only once.
    with torch.no_grad(), torch.autocast(a.device, dtype=torch.bfloat16, enabled=a.precision == 'bf16'):
        for step, x, y in data:
            logits = net(x).float()
            loss += F.cross_entropy(logits, y, reduction='sum')
            correct += (logits.argmax(1) == y).sum()
            if times.last(step):
                break
    return {**times.result(), 'last_loss': round(loss.item() / (step * a.batch), 5), 'top1': round(correct.item() / (step * a.batch), 5)}


def run(a, rank, device):
    build, shape, classes = MODELS[a.model]
    memory_format = torch.channels_last if a.channels_last else torch.contiguous_format
    model = build().to(device).to(memory_format=memory_format)
    data = inputs(a, rank, device, shape, classes, memory_format)
    result = evaluate(a, model, data) if a.evaluate else train(a, rank, device, model, data)
    return {**result, 'peak_rss_mb': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def worker(rank, a):
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    device = torch.device(a.device, rank) if a.device == 'cuda' else torch.device('cpu')
    if a.device == 'cuda':
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    if a.procs > 1:
        dist.init_process_group('nccl' if a.device == 'cuda' else 'gloo', rank=rank, world_size=a.procs)
    result = run(a, rank, device)
    if rank == 0:
        print(json.dumps({'peer': 'pytorch', 'version': torch.__version__, **vars(a), **result}), flush=True)
    if a.procs > 1:
        dist.destroy_process_group()


def main():
    a = arguments()
    reason = why_unavailable(a)
    if reason:
        print(reason, file=sys.stderr)
        sys.exit(UNAVAILABLE)
    if a.procs == 1:
        worker(0, a)
        return
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(s.getsockname()[1]))
    torch.multiprocessing.spawn(worker, (a,), a.procs)


if __name__ == '__main__':
    import torch.multiprocessing
    main()
