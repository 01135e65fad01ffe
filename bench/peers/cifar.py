"""CIFAR-10 in plain PyTorch: what the peers of the CIFAR benchmarks share."""
import torch, torch.nn as nn, torch.nn.functional as F

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class Block(nn.Module):
    """The basic block of a ResNet, with torchvision's names."""

    def __init__(self, c, k, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, k, 3, stride, 1, bias=False), nn.BatchNorm2d(k)
        self.conv2, self.bn2 = nn.Conv2d(k, k, 3, 1, 1, bias=False), nn.BatchNorm2d(k)
        self.downsample = nn.Sequential(nn.Conv2d(c, k, 1, stride, bias=False), nn.BatchNorm2d(k)) if stride > 1 or c != k else None

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if self.downsample else x))


def load(path):
    """The images [N,3,32,32] of a file of the binary version, as bytes, and their labels."""
    with open(path, 'rb') as f:
        raw = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8).reshape(-1, 3073)
    return raw[:, 1:].reshape(-1, 3, 32, 32).contiguous(), raw[:, 0].long()


def normalise(x):
    return (x.float() / 255 - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(STD).view(1, 3, 1, 1)
