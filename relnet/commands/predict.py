"""relnet predict."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import tyro

from relnet import report, run
from relnet.commands.console import out, status
from relnet.tasks import ImageError, image_files, readable_name
from relnet.train import choose_device

AT_ONCE = 64


@dataclass(frozen=True)
class Predict:
    """Classify the images of a folder into a CSV file: file, class, its probability, and the probability of each class."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run on images."""
    images: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="IMAGES")]
    """An image, or a folder of images at any depth; each is brought to the size of the run's."""
    out: Path = Path("predictions.csv")
    """CSV file to write; an existing file is kept and a new name chosen."""
    skip: bool = False
    """Leave out files that are no images, and count them, in place of refusing the first."""
    device: str = "auto"
    """auto, cpu, cuda, mps, or one GPU such as cuda:1."""

    def __call__(self) -> None:
        """Run the command."""
        report.check_new(self.out)
        _, task, model = run.load_images(self.run, self.device)
        if not self.images.exists():
            raise ValueError(f"{self.images} does not exist; give an image or a folder of images")
        files = image_files(self.images) if self.images.is_dir() else [self.images]
        if not files:
            raise ValueError(f"{self.images} holds no images")
        device = choose_device(self.device)
        lines, faults = io.StringIO(newline=""), []
        writer = csv.writer(lines)
        writer.writerow(["file", "class", "probability", *task.classes])
        num = 0
        for first in range(0, len(files), AT_ONCE):
            names, pixels = [], []
            for path in files[first : first + AT_ONCE]:
                try:
                    pixels.append(task.read(path))
                    names.append(readable_name(path.relative_to(self.images) if self.images.is_dir() else path))
                except ImageError as fault:
                    if not self.skip:
                        raise
                    faults.append(fault)
            if not pixels:
                continue
            with torch.no_grad():
                shares = model(task.encode(np.stack(pixels)).to(device)).double().softmax(-1).cpu()
            for name, row in zip(names, shares.tolist(), strict=True):
                best = max(range(len(row)), key=row.__getitem__)
                writer.writerow([name, task.classes[best], f"{row[best]:.6f}", *(f"{share:.6f}" for share in row)])
            num += len(names)
        if not num:
            raise ValueError(f"{self.images}: not one image that can be read; such as: {faults[0]}")
        path = report.write_new(self.out, lines.getvalue().encode())
        if faults:
            status.print(f"{len(faults)} files left out; such as: {faults[0]}")
        out.print(f"{path}: {num} images")
