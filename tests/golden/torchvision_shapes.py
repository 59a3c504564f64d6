"""Writes torchvision.txt: what torchvision's networks are made of, for 2 images of 224 x 224.

One line for each convolution, pooling and linear layer in the order in which they run, with the shape of its result, and
one for each parameter in the order of `parameters()`. No weights are computed: everything lies on PyTorch's meta device.

    pip install torch==2.15.0 torchvision==0.29.2
    python torchvision_shapes.py > torchvision.txt
"""

import torch
import torchvision
from torch import nn

NETWORKS = {
    "resnet18": torchvision.models.resnet18,
    "resnet50": torchvision.models.resnet50,
    "vgg16": torchvision.models.vgg16,
    "mobilenet-v2": torchvision.models.mobilenet_v2,
    "densenet121": torchvision.models.densenet121,
}
KINDS = {nn.Conv2d: "conv2d", nn.MaxPool2d: "max_pool2d", nn.AvgPool2d: "avg_pool2d", nn.Linear: "linear"}


def text(shape):
    return "x".join(str(n) for n in shape)


def describe(name, make):
    print(f"network {name}")
    with torch.device("meta"):
        network = make().eval()
        for module in network.modules():
            if type(module) in KINDS:
                kind = KINDS[type(module)]
                module.register_forward_hook(lambda _m, _x, y, kind=kind: print(f"{kind} {text(y.shape)}"))
        network(torch.empty(2, 3, 224, 224))
        for parameter in network.parameters():
            print(f"parameter {text(parameter.shape)}")


for name, make in NETWORKS.items():
    describe(name, make)
