#!/usr/bin/env python3
"""PyTorch's training speed on a GPU, as a process that measures when it is asked, so that its runs can alternate with ctrain's.

Reads requests from standard input, one JSON object per line: {"model", "batch", "precision": fp32|fp16|bf16, "mode", "seconds"}. Answers each
with one line: {"images_per_sec", "step_us", "build_seconds"} or {"error"}. A first line has the versions. The GPU is idle between requests.

mode: eager; graph (the whole step in a CUDA graph, captured by hand); compile and reduce-overhead (torch.compile in that mode).

A step is: normalize a uint8 batch that is in device memory, forward, loss, backward, SGD with momentum (fused). Convolutional models use
channels_last, 16-bit precisions autocast, fp16 also dynamic loss scaling (not in a graph: GradScaler cannot be captured). cuDNN's
benchmark mode is on. The models are those of bench/peers/torch_train.py.
"""
import json
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "peers")]
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch_train import MODELS  # noqa: E402

TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
N_BATCHES, WARM_UP, WARM_UP_AGAIN, WINDOWS = 4, 12, 3, 3


class Variant:
    """A model with its optimizer and data; self.step() posts one step."""

    def __init__(self, model, batch, precision, mode):
        build, shape, classes = MODELS[model]
        self.batch, self.at = batch, 0
        self.layout = torch.channels_last if model != "mlp" else torch.contiguous_format
        self.net = build().cuda().to(memory_format=self.layout)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.001, momentum=0.9, weight_decay=5e-4, fused=True)
        self.run = self.net if mode in ("eager", "graph") else torch.compile(self.net, mode="default" if mode == "compile" else mode)
        self.type, self.cache = TYPES[precision], mode != "graph"
        self.scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16" and mode != "graph")
        images = torch.randint(0, 256, (N_BATCHES, batch) + shape, dtype=torch.uint8, device="cuda")
        self.images = [x.contiguous(memory_format=self.layout) for x in images]
        self.labels = torch.randint(0, classes, (N_BATCHES, batch), device="cuda")
        self.step = self.captured() if mode == "graph" else self.plain

    def compute(self, images, labels):
        x = ((images.float() / 255 - 0.45) / 0.225).contiguous(memory_format=self.layout)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=self.type, enabled=self.type != torch.float32, cache_enabled=self.cache):
            loss = F.cross_entropy(self.run(x), labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def plain(self):
        self.at = (self.at + 1) % N_BATCHES
        self.compute(self.images[self.at], self.labels[self.at])

    def captured(self):
        images, labels = self.images[0].clone(), self.labels[0].clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.compute(images, labels)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self.compute(images, labels)

        def replay():
            self.at = (self.at + 1) % N_BATCHES
            images.copy_(self.images[self.at])
            labels.copy_(self.labels[self.at])
            graph.replay()

        return replay

    def rate(self, seconds):
        """The median rate of a few windows. The queue of posted work is bounded, as in a loop that reads its losses now and then."""
        rates = []
        for _ in range(WINDOWS):
            torch.cuda.synchronize()
            begin, n = time.perf_counter(), 0
            while n % 20 or time.perf_counter() - begin < seconds / WINDOWS:
                self.step()
                n += 1
                if n % 20 == 0:
                    torch.cuda.synchronize()
            rates.append(self.batch * n / (time.perf_counter() - begin))
        return statistics.median(rates)


def answer(variants, request):
    seconds = request.pop("seconds")
    key = tuple(sorted(request.items()))
    begin = time.perf_counter()
    if key not in variants:
        if len(variants) >= 4:  # frees the memory of those that are no longer needed
            variants.clear()
            torch.cuda.empty_cache()
        variant = Variant(**request)
        for _ in range(WARM_UP):
            variant.step()
        torch.cuda.synchronize()
        variants[key] = variant
    else:
        for _ in range(WARM_UP_AGAIN):
            variants[key].step()
    built = time.perf_counter() - begin
    rate = variants[key].rate(seconds)
    torch.cuda.empty_cache()  # for the other process and the other variants
    return {"images_per_sec": rate, "step_us": 1e6 * request["batch"] / rate, "build_seconds": built}


def main():
    if not torch.cuda.is_available():
        sys.exit(f"PyTorch {torch.__version__} finds no GPU")
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(1)
    replies, sys.stdout = sys.stdout, sys.stderr  # nothing else may print to the replies
    print(json.dumps({"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "card": torch.cuda.get_device_name()}), file=replies,
          flush=True)
    variants = {}
    for line in sys.stdin:
        try:
            reply = answer(variants, json.loads(line))
        except Exception as e:  # a variant that cannot run must not end the others
            reply = {"error": f"{type(e).__name__}: {e}"[:300]}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
