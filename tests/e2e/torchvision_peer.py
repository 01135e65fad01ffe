"""torchvision's side of test_torchvision.py, run by a Python that has it: save MODEL CLASSES TYPE FILE | load MODEL CLASSES FILE OURS.

`load` gives OURS to a network of torchvision and compares its parameters with those of FILE. safetensors is
written and read here without its package: 8 bytes of header length, JSON, data.
"""
import json
import sys

import numpy as np
import torch
import torchvision

TYPES = {"F32": torch.float32, "F16": torch.float16, "I64": torch.int64}


def write(path, state):
    header, blobs, at = {}, [], 0
    for name, t in state.items():
        blob = t.contiguous().numpy().tobytes()
        kind = next(k for k, v in TYPES.items() if v == t.dtype)
        header[name] = dict(dtype=kind, shape=list(t.shape), data_offsets=[at, at + len(blob)])
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def read(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    state = {}
    for name, d in header.items():
        if name != "__metadata__":
            a, b = d["data_offsets"]
            kind = {"F32": np.float32, "F16": np.float16, "I64": np.int64}[d["dtype"]]
            state[name] = torch.from_numpy(np.frombuffer(data[a:b], kind).copy().reshape(d["shape"]))
    return state


def network(name, classes):
    return getattr(torchvision.models, name)(num_classes=int(classes))


def save(name, classes, kind, path):
    torch.manual_seed(1)
    write(path, {n: t.to(TYPES[kind]) if t.is_floating_point() else t for n, t in network(name, classes).state_dict().items()})


def load(name, classes, path, ours):
    model, want = network(name, classes), read(path)
    missing, extra = model.load_state_dict(read(ours), strict=False)
    missing = [n for n in missing if not n.endswith("num_batches_tracked")]
    assert not missing and not extra, f"missing {missing}, unexpected {extra}"
    for n, p in model.named_parameters():
        assert (p - want[n].float()).abs().max() < 1e-20, f"{n} is another"  # what a rate of 1e-30 makes of a 0
    model.eval()
    assert torch.isfinite(model(torch.zeros(1, 3, 64, 64))).all()


if __name__ == "__main__":
    {"save": save, "load": load}[sys.argv[1]](*sys.argv[2:])
