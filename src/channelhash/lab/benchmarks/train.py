"""An epoch of the CLIPHash head from cached features, whole and in parts."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from channelhash.config import TrainSettings
from channelhash.losses import DSCHLoss
from channelhash.metrics import hamming_histogram
from channelhash.models.hash_head import hash_head
from channelhash.models.hash_model import Branch, HashModel
from channelhash.training.sources import Held
from channelhash.training.step import Steps
from channelhash.utils.device import pick_device
from channelhash.utils.seeds import generator
from channelhash.utils.timing import Row, compare, single_row

N_BITS, N_LABELS, BATCH = 64, 24, 128
WIDTHS = (1024, 4096, 4096, 1024, 256, N_BITS)
MODALITIES = ("image", "text")


def benchmark_train(n: int = 10_000, device: str = "auto") -> list[Row]:
    """Measure an epoch of DSCH beside a plain loop, its parts, and a validation; 64 bits, batches of 128.

    Args:
        n: training rows.
        device: where to train.

    Returns:
        A part's ``seconds`` are those of an epoch.
    """
    place = pick_device(device)
    features = {m: torch.from_numpy(_features(n, m)).to(place) for m in MODALITIES}
    labels = torch.from_numpy(generator(0, "benchmark labels").random((n, N_LABELS)) < 0.15)
    settings = TrainSettings(batch_size=BATCH, device=str(place))
    model, steps = _steps(labels, settings, place)
    sources = {modality: Held(values, settings) for modality, values in features.items()}
    epochs = iter(range(1_000_000))

    def ours() -> None:
        steps.run(steps.batches(sources, next(epochs)))
        _wait(place)

    size = f"{n} samples, {n // BATCH} batches of {BATCH}, {place}"
    plain = _plain_epoch(features, labels, place)
    whole = compare(
        "epoch of the CLIPHash head from the cache", size, ours, "DataLoader, one pass a modality", plain, 3
    )
    parts = _Parts(place)
    parts.epoch(steps, sources)  # warm
    parts.seconds.clear()
    parts.epoch(steps, sources)
    rows = [whole]
    for name, seconds in parts.seconds.items():
        share = 100 * seconds / sum(parts.seconds.values())
        rows.append(single_row(f"  {name} ({share:.0f} %)", size, seconds, whole["peak_mb"]))
    shape = f"{n // 5} queries x {n - n // 5} items, 4 tasks"
    rows.append(compare("validation", shape, _validation(model, features, labels), repeats=3))
    return rows


def _features(n: int, modality: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return generator(0, "benchmark features", modality).standard_normal((n, WIDTHS[0]), dtype=np.float32)


def _steps(labels: Tensor, settings: TrainSettings, device: torch.device) -> tuple[HashModel, Steps]:
    torch.manual_seed(0)
    head = hash_head(WIDTHS)
    branches = {modality: Branch(torch.as_tensor, nn.Identity(), head) for modality in MODALITIES}
    model = HashModel("cliphash", N_BITS, {}, branches).to(device).train()
    return model, Steps(model, DSCHLoss(N_BITS), labels, settings, device)


def _plain_epoch(features: dict[str, Tensor], labels: Tensor, device: torch.device) -> Callable[[], None]:
    """Return a plain epoch: shuffled batches of a `DataLoader`, each modality through the head, default Adam."""
    torch.manual_seed(0)
    head, loss = hash_head(WIDTHS).to(device), DSCHLoss(N_BITS)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-5)
    rows = TensorDataset(*(values.cpu() for values in features.values()), labels)

    def run() -> None:
        for image, text, sets in DataLoader(rows, batch_size=BATCH, shuffle=True, drop_last=True):
            optimizer.zero_grad()
            outputs = {"image": head(image.to(device)), "text": head(text.to(device))}
            loss(outputs, sets.to(device)).backward()
            optimizer.step()
        _wait(device)

    return run


@dataclass
class _Parts:
    """Seconds of each part of a step, added up over an epoch."""

    device: torch.device
    seconds: dict[str, float] = field(default_factory=dict)

    def epoch(self, steps: Steps, sources: dict[str, Held]) -> None:
        batches = steps.batches(sources, 0)
        while True:
            with self.timed("data"):
                batch = next(batches, None)
            if batch is None:
                return
            inputs, labels = batch.inputs, batch.labels
            steps.optimizer.zero_grad(set_to_none=True)
            with self.timed("head, forward"):
                outputs = steps.outputs(inputs, None)
            detached = {name: values.detach().requires_grad_() for name, values in outputs.items()}
            with self.timed("loss, forward and backward"):
                steps.loss(detached, labels).backward()
            gradients = [values.grad for values in detached.values()]
            with self.timed("head, backward"):
                torch.autograd.backward(list(outputs.values()), gradients)
            with self.timed("optimiser"):
                steps.optimizer.step()

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        _wait(self.device)
        began = time.perf_counter()
        yield
        _wait(self.device)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began


def _validation(model: HashModel, features: dict[str, Tensor], labels: Tensor) -> Callable[[], None]:
    """Return a validation: codes of all samples by one pass of the head, then tie-aware mAP of the four tasks."""
    n = len(labels)
    queries, items = slice(0, n // 5), slice(n // 5, n)
    relevance = labels.numpy()

    def run() -> None:
        codes = model.encode_prepared(features)
        for query in MODALITIES:
            for database in MODALITIES:
                hamming_histogram(
                    codes[query][queries], codes[database][items], relevance[queries], relevance[items], n_bits=N_BITS
                ).mean_average_precision()

    return run


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
