#!/usr/bin/env python3
"""Prints resizes of a synthetic image by Pillow, one per line, for test_resize.c and test_resize_pillow.c.

  make_resize_golden.py > tests/data/resize_golden.txt     the committed cases
  make_resize_golden.py COUNT SEED                         larger random cases

Each line has: source width and height; box x y w h; limits x y w h; result width and height; flip; RGB bytes in hex.
The image is computed by the formula in tests/data/jpeg_make.c. The exit code is 77 if Pillow is not installed."""
import random
import sys

try:
    from PIL import Image
except ImportError:
    sys.exit(77)


def picture(w, h):
    m = 0xFFFFFFFF
    out = bytearray()
    for y in range(h):
        for x in range(w):
            for c in range(3):
                noise = ((x * 2654435761 & m) ^ (y * 2246822519 & m) ^ (c * 3266489917 & m)) >> 27
                v = (3 * x + noise, 220 - noise if (x // 7 + y // 5) % 2 else 30 + noise, 255 - 2 * y - noise)[c]
                out.append(v & 255)
    return Image.frombytes("RGB", (w, h), bytes(out))


def emit(size, box, limits, out, flip, image):
    if flip:
        image = image.transpose(Image.FLIP_LEFT_RIGHT)
    assert image.size == tuple(out)
    print(*size, *(repr(float(v)) for v in box), *limits, *out, int(flip), image.tobytes().hex())


def crop_resize(size, box, out, flip=False):
    """RandomResizedCrop: cut, then resize."""
    x, y, w, h = box
    part = picture(*size).crop((x, y, x + w, y + h)).resize(out, Image.BILINEAR)
    emit(size, box, box, out, flip, part)


def resize_crop(size, short, cut, flip=False):
    """Resize(short) and CenterCrop(cut), as torchvision computes their sizes."""
    w, h = size
    rw, rh = (short, int(short * h / w)) if w <= h else (int(short * w / h), short)
    left, top = int(round((rw - cut) / 2.0)), int(round((rh - cut) / 2.0))
    image = picture(*size).resize((rw, rh), Image.BILINEAR).crop((left, top, left + cut, top + cut))
    box = (left * w / rw, top * h / rh, cut * w / rw, cut * h / rh)
    emit(size, box, (0, 0, w, h), (cut, cut), flip, image)


def golden():
    crop_resize((60, 40), (0, 0, 60, 40), (16, 16))
    crop_resize((60, 40), (13, 7, 41, 29), (16, 12), True)
    crop_resize((60, 40), (50, 30, 10, 10), (16, 16))
    crop_resize((60, 40), (5, 6, 16, 16), (16, 16))
    crop_resize((9, 7), (2, 1, 5, 6), (23, 17), True)
    crop_resize((1, 1), (0, 0, 1, 1), (5, 4))
    crop_resize((1, 50), (0, 0, 1, 50), (7, 6))
    crop_resize((50, 1), (0, 0, 50, 1), (6, 7), True)
    crop_resize((3, 90), (0, 0, 3, 90), (2, 90))
    crop_resize((150, 110), (3, 2, 140, 100), (3, 5))
    resize_crop((60, 40), 20, 16)
    resize_crop((33, 51), 24, 17, True)
    resize_crop((10, 12), 20, 14)


def randomly(count, seed):
    r = random.Random(seed)
    for i in range(count):
        size = (r.randint(1, 500), r.randint(1, 400)) if i % 4 else (r.randint(1, 9), r.randint(1, 9))
        if i % 3 == 2 and min(size) * 10 > max(size):
            short = r.randint(8, 280)
            resize_crop(size, short, r.randint(1, short), r.random() < 0.5)
            continue
        w, h = r.randint(1, size[0]), r.randint(1, size[1])
        box = (r.randint(0, size[0] - w), r.randint(0, size[1] - h), w, h)
        crop_resize(size, box, (r.randint(1, 240), r.randint(1, 240)), r.random() < 0.5)


if len(sys.argv) == 3:
    randomly(int(sys.argv[1]), int(sys.argv[2]))
else:
    golden()
