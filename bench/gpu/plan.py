"""The steps of the gate, the most valuable first."""
from collections import namedtuple

# name: also the function step_NAME in one of step.py's modules. seconds: time limit. least: skipped if less time is left.
Step = namedtuple("Step", "name seconds least about")

# The limits up to "small" fit in the default budget of gate.py, also if each step needs all of its time. Most steps need less; the time that
# they leave is for the others.
STEPS = (
    Step("start", 15, 5, "the bundle is complete, the program starts, and CUDA's libraries are found"),
    Step("facts", 20, 10, "the device: properties, bandwidths, launch costs"),
    Step("tests", 60, 20, "test programs of the kernels, the engine and the device"),
    Step("equal", 45, 15, "losses of the first steps against those of the engine ref"),
    Step("tune", 80, 20, "the first starts, which choose the plans of convolutions"),
    Step("shipped", 60, 20, "the example configs: accuracy on MNIST, speed"),
    Step("resnet50", 40, 15, "ResNet-50, N = 256"),
    Step("bits", 45, 15, "repeated, recorded and resumed runs give bit-identical weights"),
    Step("nccl", 50, 15, "what NCCL adds to the step of one rank; bench comm"),
    Step("versus", 105, 45, "ResNet-50 and PyTorch in turn"),
    Step("small", 45, 20, "MLP and convnet on MNIST and PyTorch in turn; the time of a step"),
    Step("profile", 45, 15, "times of layers and of the longest kernels"),
    Step("ranks", 40, 15, "two ranks, or two stages, that share the GPU have the losses of one"),
    Step("shards", 40, 15, "JPEG files through the loader"),
    Step("sizes", 90, 15, "ResNet-50 with other batch sizes, ResNet-18"),
    Step("norms", 45, 15, "whether cuDNN has plans for batch norm, which the engine does not use"),
    Step("sanitizer", 70, 15, "compute-sanitizer on tests and on a training step"),
    Step("compiled", 120, 60, "ResNet-50 and torch.compile in turn"),
)
# The steps that check results and fit in the default budgets: without one of them, the verdict is not "pass".
REQUIRED = ("tests", "equal", "bits")
PEERS_REQUIRED = ("comm", "same", "sums", "killed")
# gate.py --peers: the sum of the limits is its default budget.
PEER_STEPS = (
    Step("start", 10, 5, "as above"),
    Step("comm", 20, 10, "the collectives of NCCL compute correct results"),
    Step("same", 30, 10, "recorded, plain and repeated runs, and runs with and without windows, give equal weights on all ranks"),
    Step("sums", 35, 10, "the sum of the ranks' gradients is that of the gradients which one rank computes"),
    Step("killed", 25, 10, "if a rank is killed, the others end with a message, and nothing is left"),
)
