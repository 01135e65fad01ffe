"""The steps of the gate, the most valuable first."""
from collections import namedtuple

# name: also the function in one of step.py's modules. seconds: time limit. least: skipped if less time is left.
Step = namedtuple("Step", "name seconds least about")

STEPS = (
    Step("start", 20, 5, "the bundle is complete, the program starts, and CUDA's libraries are found"),
    Step("facts", 25, 10, "the device: properties, bandwidths, launch costs"),
    Step("tests", 75, 20, "test programs of the kernels, the engine and the device"),
    Step("equal", 40, 15, "losses of the first steps against those of the engine ref"),
    Step("mnist", 60, 15, "accuracy on MNIST"),
    Step("bits", 40, 15, "repeated, recorded and resumed runs give bit-identical weights"),
)
