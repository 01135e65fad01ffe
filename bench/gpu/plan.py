"""The steps of the gate, the most valuable first."""
from collections import namedtuple

# name: also the function step_NAME in one of step.py's modules. seconds: time limit. least: skipped if less time is left.
Step = namedtuple("Step", "name seconds least about")

STEPS = (
    Step("start", 20, 5, "the bundle is complete, the program starts, and CUDA's libraries are found"),
    Step("facts", 25, 10, "the device: properties, bandwidths, launch costs"),
    Step("tests", 75, 20, "test programs of the kernels, the engine and the device"),
    Step("equal", 60, 15, "losses of the first steps against those of the engine ref"),
    Step("mnist", 60, 15, "accuracy on MNIST"),
    Step("tune", 95, 20, "the first starts of ResNet-50, which choose the plans of its convolutions"),
    Step("resnet50", 60, 15, "ResNet-50, N = 256"),
    Step("bits", 70, 15, "repeated, recorded and resumed runs give bit-identical weights"),
    Step("versus", 110, 45, "ResNet-50 and PyTorch in turn"),
    Step("small", 60, 20, "MLP and convnet on MNIST and PyTorch in turn; the time of a step"),
    Step("sizes", 70, 15, "ResNet-50 with other batch sizes, ResNet-18"),
    Step("shards", 50, 15, "JPEG files through the loader"),
    Step("sanitizer", 70, 15, "compute-sanitizer on tests and on a training step"),
    Step("compiled", 110, 60, "ResNet-50 and torch.compile in turn"),
    Step("profile", 60, 15, "times of layers and of the longest kernels"),
)
