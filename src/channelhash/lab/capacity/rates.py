"""Rates of a machine: the file that ``channelhash benchmark scale --out`` writes and ``channelhash scale`` reads."""

import json
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from channelhash.errors import InputError
from channelhash.utils.files import write_text
from channelhash.utils.reading import read_json, reading

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class Measurement:
    """One measured job.

    Attributes:
        job: ``encode`` (images from files to codes), ``add`` (to a store), ``index`` (from ``add`` to the first
            answer), ``open`` (a closed store, to the first answer), ``query`` (one search alone), ``search`` (a query
            of a batch) or ``evaluate``.
        items: size of the collection.
        units: images, items, codes, or pairs of a query and an item.
        seconds: wall time of all units.
        core_seconds: processor time of all units, over all cores.
        bits: code length.
        codes: codes of an item.
        encoder: name of the encoder; empty for other jobs.
        n_bytes: bytes on the disk after ``add``, and of the arrays of an ``index``; otherwise None.

    >>> Measurement("add", items=1000, units=1000, seconds=0.5, core_seconds=0.4, bits=64).codes
    1
    """

    job: str
    items: _Count
    units: _Count
    seconds: _Positive
    core_seconds: _Positive
    bits: _Count
    codes: _Count = 1
    encoder: str = ""
    n_bytes: _Count | None = None

    @property
    def name(self) -> str:
        """Return the job, and the encoder if it has one."""
        return f"{self.job} {self.encoder}".strip()


@dataclass(frozen=True)
class Rates:
    """Measurements of one machine.

    Attributes:
        machine: the processor and its number of cores, in words.
        cores: cores that the measuring process could use.
        date: the day, as YYYY-MM-DD.
        command: the command that measured.
        environment: versions, as `utils.environment.environment` returns them.
        measurements: at least one.
        source: the file; not part of it.

    >>> rates = Rates("a laptop", 2, "2026-01-01", "by hand", {}, [Measurement("add", 9, 9, 1.0, 1.0, 64)])
    >>> rates.nearest("add", items=1e9, bits=64).items
    9
    """

    machine: str
    cores: _Count
    date: str
    command: str
    environment: dict[str, Any]
    measurements: Annotated[list[Measurement], Field(min_length=1)]
    source: str = ""

    def nearest(self, job: str, items: float, bits: int, codes: int = 1) -> Measurement:
        """Return the measurement at the largest size up to ``items``, or at the smallest if all are larger.

        Codes of the same number of bytes cost the same.

        Raises:
            InputError: the job was not measured at this code length.
        """
        width = -(-bits // 8)
        found = [each for each in self.measurements if (each.job, each.codes) == (job, codes)]
        fitting = [each for each in found if -(-each.bits // 8) == width]
        if not fitting:
            known = ", ".join(map(str, sorted({each.bits for each in found}))) or "none"
            raise InputError(
                f"{self.source}: has no rate of {job} at {bits} bits (code lengths measured: {known}); "
                f"measure it: channelhash benchmark scale --bits {8 * width} --out rates.json"
            )
        below = [each for each in fitting if each.items <= items]
        return max(below, key=_size) if below else min(fitting, key=_size)

    def encoding(self, encoder: str | None = None) -> Measurement:
        """Return the measurement of an encoder; that of the slowest one without a name.

        Raises:
            InputError: no such encoder was measured.
        """
        found = {each.encoder: each for each in self.measurements if each.job == "encode"}
        if not found or (encoder and encoder not in found):
            raise InputError(
                f"{self.source}: has no rate of the encoder {encoder or 'of images'} (measured: "
                f"{', '.join(found) or 'none'}); measure it: channelhash benchmark scale --model RUN --out rates.json"
            )
        return found[encoder] if encoder else max(found.values(), key=lambda each: each.seconds / each.units)


def _size(measurement: Measurement) -> int:
    return measurement.items


def read_rates(path: Path) -> Rates:
    """Read a file of rates.

    Raises:
        InputError: the file is missing, or holds something else.
    """
    problem, remedy = "not a file of rates", "write one with channelhash benchmark scale --out rates.json"
    if not path.is_file():
        raise InputError(f"{path}: no such file; {remedy}")
    content = read_json(path, problem, remedy)
    with reading(path, problem, remedy):
        rates = TypeAdapter(Rates).validate_python({**content, "source": str(path)})
    for number, each in enumerate(rates.measurements, 1):
        if each.job in ("add", "index") and each.n_bytes is None:
            raise InputError(f"{path}: measurement {number} ({each.job}) has no n_bytes; {remedy}")
    return rates


def shipped_rates() -> Rates:
    """Read the rates that come with the package, those of one named machine.

    >>> {each.job for each in shipped_rates().measurements} >= {"encode", "add", "search", "evaluate"}
    True
    """
    with as_file(files(__package__).joinpath("rates.json")) as path:
        rates = read_rates(path)
    return Rates(**{**vars(rates), "source": "the rates of this package"})


def write_rates(path: Path, rates: Rates) -> None:
    """Write a file of rates, a measurement a line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_rates(Path(folder, "rates.json"), shipped_rates())
    ...     read_rates(Path(folder, "rates.json")).measurements == shipped_rates().measurements
    True
    """
    head = {name: value for name, value in asdict(rates).items() if name not in ("measurements", "source")}
    lines = ",\n  ".join(json.dumps(asdict(each)) for each in rates.measurements)
    write_text(path, f'{json.dumps(head, indent=1)[:-2]},\n "measurements": [\n  {lines}\n ]\n}}\n')
