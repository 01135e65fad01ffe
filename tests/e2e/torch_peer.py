"""PyTorch's side of test_export.py, run by a Python that has it: torch_peer.py DIR NAME...

For each NAME, imports DIR/NAME.py and compares the outputs of its model for DIR/NAME.input with DIR/NAME.output. Prints one JSON object: for each
name the largest difference relative to the largest output, the classes, and whether gradients reach all parameters in training mode.
"""
import importlib.util
import json
import os
import sys

import torch

torch.set_num_threads(2)


def compare(directory, name):
    spec = importlib.util.spec_from_file_location("exported", os.path.join(directory, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.load()
    with open(os.path.join(directory, name + ".safetensors"), "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
    image = json.loads(header["__metadata__"]["ctrain"])["input"]
    c, h, w = (image[k] for k in ("channels", "height", "width"))
    with open(os.path.join(directory, name + ".input"), "rb") as f:
        data = bytearray(f.read())
    if image["resize"]:
        x = torch.frombuffer(data, dtype=torch.uint8).reshape(-1, h, w, c).permute(0, 3, 1, 2) / 255
    else:
        x = torch.frombuffer(data, dtype=torch.float32).reshape(-1, c, h, w)
    with open(os.path.join(directory, name + ".output"), "rb") as f:
        want = torch.frombuffer(bytearray(f.read()), dtype=torch.float32).reshape(len(x), -1)
    with torch.no_grad():
        got = model(x)
    assert got.shape == want.shape, got.shape
    error = float((got - want).abs().max()) / max(1.0, float(want.abs().max()))
    model.train()
    model(x).square().sum().backward()
    return {"error": error, "classes": module.CLASSES, "trains": all(p.grad is not None for p in model.parameters())}


print(json.dumps({name: compare(sys.argv[1], name) for name in sys.argv[2:]}))
