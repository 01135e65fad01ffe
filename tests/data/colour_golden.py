#!/usr/bin/env python3
"""Writes colour_golden.gz: the results of torchvision.transforms.v2 (uint8 tensors) for the image of test_colour.c.

usage: colour_golden.py OUT.gz     (needs torch and torchvision)
There is one record per case, in the order of the tables in test_colour.c: H * W * 3 bytes, rows of interleaved pixels.
"""
import gzip
import sys

import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

H, W = 17, 19


def picture():
    # The same integers as test_colour.c: smooth parts, edges, gray and saturated pixels.
    x = torch.zeros(3, H, W, dtype=torch.int64)
    for i in range(H):
        for j in range(W):
            for k in range(3):
                v = (9 * i + 5 * j + 71 * k * ((i // 5) % 3) + (i * j * (k + 3)) % 37) % 256
                x[k, i, j] = 255 if (i + j) % 11 == 0 else v // 2 + 40 if i < 8 else v
    x[:, 12:15, 3:9] = 128
    return x.to(torch.uint8)


def main():
    p = picture()
    out = []
    for f in (0.4, 1.0, 1.9):
        out += [F.adjust_brightness(p, f), F.adjust_saturation(p, f), F.adjust_contrast(p, f), F.adjust_sharpness(p, f)]
    for h in (-0.5, -0.1, 0.07, 0.25):
        out.append(F.adjust_hue(p, h))
    for bits in (8, 5):
        out.append(F.posterize(p, bits))
    for t in (200.3, 0.0):
        out.append(F.solarize(p, t))
    out += [F.autocontrast(p), F.equalize(p)]
    ra = v2.RandAugment(fill=0)
    names = list(ra._AUGMENTATION_SPACE)
    for name in names:
        fn, signed = ra._AUGMENTATION_SPACE[name]
        for m in (9, 30):
            for sign in (1, -1) if signed else (1,):
                bins = fn(31, H, W)
                value = 0.0 if bins is None else float(bins[m]) * sign
                out.append(ra._apply_image_or_video_transform(
                    p, name, value, interpolation=v2.InterpolationMode.NEAREST, fill=ra._fill))
    data = b"".join(t.permute(1, 2, 0).contiguous().numpy().tobytes() for t in out)
    with open(sys.argv[1], "wb") as f:
        f.write(gzip.compress(data, 9, mtime=0))
    print(len(out), "cases")


main()
