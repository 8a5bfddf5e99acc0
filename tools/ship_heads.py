"""Make the heads that ship with the package of a run of the preset ``photo``, in half precision.

python tools/ship_heads.py runs/photo
"""

import shutil
import sys
from pathlib import Path

from safetensors.torch import save

from channelhash.models.backbones import read_weights, weights_hash
from channelhash.models.description import CHECKSUM
from channelhash.models.heads import PHOTO_HEADS


def main(run: Path) -> None:
    """Write ``config.json`` and ``model.safetensors`` of a run beside the model card."""
    halves = {name: values.half() for name, values in read_weights(run / "model" / "model.safetensors").items()}
    PHOTO_HEADS.mkdir(exist_ok=True)
    shutil.copy(run / "model" / "config.json", PHOTO_HEADS)
    (PHOTO_HEADS / "model.safetensors").write_bytes(save(halves, {CHECKSUM: weights_hash(halves)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
