"""Pre-trained encoders of which only the last blocks are trained."""

from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from channelhash.errors import InputError


class PartlyFrozen(nn.Module):
    """An encoder whose last blocks are trained, with the layers behind them; the rest is frozen.

    What is frozen has no gradient, and stays in evaluation mode. Batch normalisation does so everywhere: it keeps its
    statistics, as a few epochs are too short to learn those that evaluation uses, and its scale and offset are trained.

    Args:
        encoder: inputs to features.
        n_blocks: number of `blocks` that are trained, at least 1.

    Raises:
        InputError: the encoder has fewer blocks.

    >>> layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), num_layers=3)
    >>> encoder = PartlyFrozen(layers, 1)
    >>> [any(values.requires_grad for values in block.parameters()) for block in blocks(layers)]
    [False, False, True]
    """

    def __init__(self, encoder: nn.Module, n_blocks: int) -> None:
        super().__init__()
        self.encoder = encoder.requires_grad_(False)
        found = blocks(encoder)
        if n_blocks > len(found):
            raise InputError(f"model.unfreeze_blocks is {n_blocks}, but the backbone has {len(found)} blocks")
        parts = list(encoder.modules())
        for part in parts[parts.index(found[-n_blocks]) :]:
            if not isinstance(part, nn.Embedding):  # of tokens, which a CLIP model names behind its blocks
                for values in part.parameters(recurse=False):
                    values.requires_grad_(True)
        for name, values in encoder.named_parameters():  # projections that are no layers: OpenCLIP's
            if name.rpartition(".")[2] in ("proj", "text_projection"):
                values.requires_grad_(True)

    def train(self, mode: bool = True) -> "PartlyFrozen":
        """Set the training mode of what is trained."""
        super().train(mode)
        for part in self.encoder.modules():
            values = list(part.parameters())
            if isinstance(part, _BatchNorm) or (values and not any(value.requires_grad for value in values)):
                part.eval()
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the encoder's features."""
        features: Tensor = self.encoder(inputs)
        return features


def blocks(encoder: nn.Module) -> list[nn.Module]:
    """Return the blocks of an encoder in their order: what has parts of its own and stands in a row with others.

    Those of a ResNet are its bottlenecks, those of a Transformer its layers.

    >>> layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> len(blocks(nn.TransformerEncoder(layer, num_layers=3)))
    3
    """
    layers = [child for child in encoder.children() if next(child.parameters(), None) is not None]
    if len(layers) == 1:  # behind a normalisation of pixels, say
        return blocks(layers[0])
    return list(_blocks(encoder))


def _blocks(part: nn.Module) -> Iterator[nn.Module]:
    in_a_row = type(part) in (nn.Sequential, nn.ModuleList)
    for child in part.children():
        if in_a_row and type(child) is not nn.Sequential and next(child.children(), None) is not None:
            yield child
        else:
            yield from _blocks(child)


def unfrozen(n_blocks: int, freeze_backbone: bool) -> dict[str, int]:
    """Return the entry of ``unfreeze_blocks`` in an architecture: none for 0.

    >>> unfrozen(2, True), unfrozen(0, False)
    ({'unfreeze_blocks': 2}, {})

    Raises:
        InputError: the number is negative, or the backbone is trained as a whole.
    """
    if n_blocks < 0:
        raise InputError(f"model.unfreeze_blocks is {n_blocks}: a number of blocks is 0 or more")
    if n_blocks and not freeze_backbone:
        raise InputError("model.unfreeze_blocks: the whole backbone is trained; set model.freeze_backbone=true")
    return {"unfreeze_blocks": n_blocks} if n_blocks else {}
