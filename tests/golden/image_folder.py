"""Writes the folder `image_folder` and image_folder.safetensors: what torchvision's ImageFolder makes of it.

The folder has RGB, gray, palette and RGBA images as PNG, and a JPEG file, in folders inside of folders of classes. The
file has, for all of them in torchvision's order,

    files                   their paths, as UTF-8 with a line each
    y                       their classes
    center, stretch, gray   the tensors of the transforms below

    pip install torch==2.15.0 torchvision==0.29.2 pillow==13.0.0 safetensors
    python image_folder.py
"""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torchvision import datasets, transforms as t

HERE = Path(__file__).parent
ROOT = HERE / "image_folder"


def picture(seed, height, width):
    """Waves with some noise: neither constant nor all high frequencies."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 100 * np.sin(x / (3 + c) + seed) * np.cos(y / (5 - c)) for c in range(3)]
    noise = rng.integers(-12, 12, (height, width, 3))
    return Image.fromarray((np.stack(waves, -1) + noise).clip(0, 255).astype(np.uint8))


def write(name, image, **options):
    path = ROOT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)


write("bird/10.png", picture(0, 30, 41))
write("bird/9.png", picture(1, 30, 20).convert("L"))
write("cat/a-b/0.png", picture(2, 9, 12))
write("cat/a/1.png", picture(3, 33, 17).quantize(16))
rgba = picture(4, 25, 25).convert("RGBA")
rgba.putalpha(picture(5, 25, 25).convert("L"))
write("cat/b.PNG", rgba)
write("Dog/x.jpg", picture(6, 40, 48), quality=90)

NORMALIZE = t.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
TRANSFORMS = {
    "center": t.Compose([t.Resize(20), t.CenterCrop((16, 19)), t.ToTensor(), NORMALIZE]),
    "stretch": t.Compose([t.Resize((13, 24)), t.ToTensor(), NORMALIZE]),
    "gray": t.Compose([t.Grayscale(), t.Resize(16), t.CenterCrop(16), t.ToTensor(), t.Normalize([0.5], [0.25])]),
}

tensors = {}
for name, transform in TRANSFORMS.items():
    data = datasets.ImageFolder(ROOT, transform)
    tensors[name] = torch.stack([data[i][0] for i in range(len(data))])
files = "\n".join(str(Path(path).relative_to(ROOT)) for path, _ in data.samples)
tensors["files"] = torch.tensor(list(files.encode()), dtype=torch.int32)
tensors["y"] = torch.tensor(data.targets, dtype=torch.int32)
save_file(tensors, HERE / "image_folder.safetensors")
print(data.classes, files, {name: tuple(x.shape) for name, x in tensors.items()})
