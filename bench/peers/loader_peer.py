#!/usr/bin/env python3
"""PyTorch's DataLoader on the images of WebDataset shards: the peer of bench/vs_pytorch_loader.py.

  loader_peer.py SHARD.tar ... [--workers 2] [--batch 64] [--size 224] [--seconds 5] [--floats | --decode-only]

As fast as one would write it: the members' places are looked up once, workers read them with pread, decode with Pillow,
RandomResizedCrop and flip with torchvision, and hand over uint8 (no conversion to float). Workers are kept, and one endless
random order is given out, so that no worker waits for the end of an epoch. Prints one JSON line; images per second are counted
after the first 20 batches, by the clock. --floats: with ToTensor and Normalize, as PyTorch's ImageNet example and torchvision's
references have it. --decode-only: one process without DataLoader that opens and decodes only, per second of its processor time.
"""
import argparse, io, json, os, tarfile, time

import PIL
import torch
import torchvision
from PIL import Image
from torchvision import transforms


def index(paths):
    """[(descriptor, offset, size, label)]"""
    samples = []
    for path in paths:
        parts = {}
        with tarfile.open(path) as tar:
            for m in tar:
                key, _, ext = m.name.partition('.')
                if m.isfile():
                    parts.setdefault(key, {})[ext.lower()] = m
            labels = {k: int(tar.extractfile(v['cls']).read()) for k, v in parts.items() if 'cls' in v}
        fd = os.open(path, os.O_RDONLY)
        for key, v in parts.items():
            image = next((v[e] for e in ('jpg', 'jpeg', 'png') if e in v), None)
            if image is not None and key in labels:
                samples.append((fd, image.offset_data, image.size, labels[key]))
    return samples


class Images(torch.utils.data.Dataset):
    def __init__(self, samples, size, floats):
        self.samples = samples
        last = ([transforms.ToTensor(), transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])] if floats
                else [transforms.PILToTensor()])
        self.transform = transforms.Compose([transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip()] + last)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        fd, offset, size, label = self.samples[i]
        return self.transform(Image.open(io.BytesIO(os.pread(fd, size, offset))).convert('RGB')), label


class Endless(torch.utils.data.Sampler):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        g = torch.Generator().manual_seed(1)
        while True:
            yield from torch.randperm(self.n, generator=g).tolist()


def decode_only(samples, seconds):
    n, start, cpu = 0, time.time(), time.process_time()
    while time.time() - start < seconds:
        fd, offset, size, _ = samples[n % len(samples)]
        Image.open(io.BytesIO(os.pread(fd, size, offset))).convert('RGB')
        n += 1
    return n / (time.process_time() - cpu)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('shards', nargs='+')
    p.add_argument('--workers', type=int, default=2)
    p.add_argument('--batch', type=int, default=64)
    p.add_argument('--size', type=int, default=224)
    p.add_argument('--seconds', type=float, default=5)
    p.add_argument('--floats', action='store_true')
    p.add_argument('--decode-only', action='store_true')
    a = p.parse_args()
    samples = index(a.shards)
    out = {'peer': 'pytorch', 'version': torch.__version__, 'torchvision': torchvision.__version__, 'pillow': PIL.__version__,
           'workers': a.workers, 'batch': a.batch, 'samples': len(samples)}
    if a.decode_only:
        torch.set_num_threads(1)
        out['decode_only_images_per_cpu_sec'] = round(decode_only(samples, a.seconds), 1)
        print(json.dumps(out))
        return
    torch.set_num_threads(1)  # of the process that collects; workers have one anyway
    loader = torch.utils.data.DataLoader(Images(samples, a.size, a.floats), batch_size=a.batch, sampler=Endless(len(samples)),
                                         num_workers=a.workers, persistent_workers=a.workers > 0, prefetch_factor=4 if a.workers > 0 else None)
    n, start, check = 0, None, 0
    for k, (x, y) in enumerate(loader):
        check += int(x[0, 0, 0, 0])
        if start is None:
            if k >= 20:
                start = time.time()
            continue
        n += len(x)
        if time.time() - start >= a.seconds:
            break
    out['images_per_sec'] = round(n / (time.time() - start), 1)
    out['checksum'] = check
    print(json.dumps(out), flush=True)
    os._exit(0)  # workers in the middle of an endless order are not waited for


if __name__ == '__main__':
    main()
