"""An epoch of the CLIPHash head from cached features, beside a plain loop; its parts; and a
validation.

64 bits, DSCH, batches of 128. A part's seconds are those of an epoch.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from channelhash.config import TrainSettings
from channelhash.losses import DSCHLoss
from channelhash.metrics import hamming_histogram
from channelhash.models.hash_model import Branch, HashModel
from channelhash.models.heads import hash_head
from channelhash.training.inputs import TrainingSet, memory_batches
from channelhash.training.steps import Steps
from channelhash.utils.machine import pick_device
from channelhash.utils.seeds import generator
from measure import options, print_rows
from timing import compare, single_row

BITS, LABELS, BATCH = 64, 24, 128
WIDTHS = (1024, 4096, 4096, 1024, 256, BITS)
MODALITIES = ("image", "text")


def main() -> None:
    """Print rows of an epoch, its parts and a validation."""
    given = options(__doc__, rows=10_000, device="auto")
    n, device = given.rows, pick_device(given.device)
    draws = {
        m: generator(0, "benchmark features", m).standard_normal((n, WIDTHS[0]), "float32")
        for m in MODALITIES
    }
    features = {m: torch.from_numpy(values).to(device) for m, values in draws.items()}
    labels = torch.from_numpy(generator(0, "benchmark labels").random((n, LABELS)) < 0.15)
    settings = TrainSettings(batch_size=BATCH, device=str(device))
    torch.manual_seed(0)
    head = hash_head(WIDTHS)
    branches = {modality: Branch(torch.as_tensor, nn.Identity(), head) for modality in MODALITIES}
    model = HashModel("cliphash", BITS, {}, branches).to(device).train()
    sources = {
        modality: partial(memory_batches, values, settings) for modality, values in features.items()
    }
    steps = Steps(model, DSCHLoss(BITS), TrainingSet(sources, labels), settings)
    epochs = iter(range(1_000_000))

    def epoch() -> None:
        steps.run(steps.batches(next(epochs)))
        wait(device)

    size = f"{n} samples, {n // BATCH} batches of {BATCH}, {device}"
    plain = plain_epoch(features, labels, device)
    whole = compare(
        "epoch of the CLIPHash head from the cache",
        size,
        epoch,
        "DataLoader, a pass a modality",
        plain,
        3,
    )
    timed_parts(steps, device)  # warm
    parts = timed_parts(steps, device)
    total, peak = sum(parts.values()), whole["peak_mb"]
    rows = [
        single_row(f"{name} ({100 * part / total:.0f} %)", size, part, peak)
        for name, part in parts.items()
    ]
    shape = f"{n // 5} queries × {n - n // 5} items, 4 tasks"
    print_rows(
        [whole, *rows, compare("validation", shape, validation(model, features, labels), repeats=3)]
    )


def plain_epoch(
    features: dict[str, Tensor], labels: Tensor, device: torch.device
) -> Callable[[], None]:
    """Return a plain epoch: shuffled batches of a `DataLoader`, each modality through the head,
    default Adam.
    """
    torch.manual_seed(0)
    head, loss = hash_head(WIDTHS).to(device), DSCHLoss(BITS)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-5)
    rows = TensorDataset(*(values.cpu() for values in features.values()), labels)

    def run() -> None:
        for image, text, sets in DataLoader(rows, batch_size=BATCH, shuffle=True, drop_last=True):
            optimizer.zero_grad()
            outputs = {"image": head(image.to(device)), "text": head(text.to(device))}
            loss(outputs, sets.to(device)).backward()
            optimizer.step()
        wait(device)

    return run


def timed_parts(steps: Steps, device: torch.device) -> dict[str, float]:
    """Return the seconds of each part of a step, added up over an epoch."""
    found: dict[str, float] = {}

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        wait(device)
        began = time.perf_counter()
        yield
        wait(device)
        found[name] = found.get(name, 0.0) + time.perf_counter() - began

    batches = steps.batches(0)
    while True:
        with timed("data"):
            batch = next(batches, None)
        if batch is None:
            return found
        steps.optimizer.zero_grad(set_to_none=True)
        with timed("head, forward"):
            outputs = steps.forward_pass(batch.inputs, None)
        detached = {name: values.detach().requires_grad_() for name, values in outputs.items()}
        with timed("loss, forward and backward"):
            steps.loss(detached, batch.labels).backward()
        with timed("head, backward"):
            torch.autograd.backward(
                list(outputs.values()), [values.grad for values in detached.values()]
            )
        with timed("optimiser"):
            steps.optimizer.step()


def validation(model: HashModel, features: dict[str, Tensor], labels: Tensor) -> Callable[[], None]:
    """Return a validation: codes of all samples by one pass of the head, then tie-aware mAP of the
    four tasks.
    """
    n, sets = len(labels) // 5, labels.numpy()

    def run() -> None:
        codes = model.encode_prepared(features)
        for a in MODALITIES:
            for b in MODALITIES:
                hamming_histogram(
                    codes[a][:n], codes[b][n:], sets[:n], sets[n:], BITS
                ).mean_average_precision()

    return run


def wait(device: torch.device) -> None:
    """Wait for a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
