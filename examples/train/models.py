"""The models of the Nezha paper's section V-C, and one that is small enough for a test."""

from torch import nn


def alexnet() -> nn.Module:
    """AlexNet in its form for one device: 61,100,840 parameters, images of 3 × 224 × 224."""
    features = nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.AdaptiveAvgPool2d(6), nn.Flatten(),
    )  # fmt: skip
    classifier = nn.Sequential(
        nn.Dropout(), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(inplace=True),
        nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(inplace=True),
        nn.Linear(4096, 1000),
    )  # fmt: skip
    return nn.Sequential(features, classifier)


def vgg11() -> nn.Module:
    """VGG-11, configuration A without normalization: 132,863,336 parameters, images as AlexNet's."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"):
        if width == "M":
            layers.append(nn.MaxPool2d(2, 2))
            continue
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
        channels = width
    classifier = nn.Sequential(
        nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout(),
        nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(),
        nn.Linear(4096, 1000),
    )  # fmt: skip
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(), classifier)


def tiny() -> nn.Module:
    """Half a million parameters, images of 3 × 32 × 32: a step takes milliseconds."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(inplace=True), nn.Flatten(),
        nn.Dropout(), nn.Linear(16 * 16 * 16, 128), nn.ReLU(inplace=True),
        nn.Linear(128, 10),
    )  # fmt: skip


# By name: what makes the model, the width of an image, the number of classes.
MODELS = {"alexnet": (alexnet, 224, 1000), "vgg11": (vgg11, 224, 1000), "tiny": (tiny, 32, 10)}
