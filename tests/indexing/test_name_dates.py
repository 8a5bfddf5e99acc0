"""Dates in names and folders, however they are written, and numbers that are no dates."""

import time
from datetime import date, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest
from hypothesis import assume, given, strategies as st

from channelhash.indexing.name_dates import date_of_name

NAMES = [
    "IMG_{0:%Y%m%d_%H%M%S}.jpg", "PXL_{0:%Y%m%d_%H%M%S}123.jpg", "{0:%Y%m%d_%H%M%S}(0).jpg",
    "Screenshot_{0:%Y-%m-%d-%H-%M-%S}.png", "WhatsApp Image {0:%Y-%m-%d} at {0:%H.%M.%S} (1).jpeg",
    "Screen Shot {0:%Y-%m-%d} at {0:%I.%M.%S}\u202f{0:%p}.png", "signal-{0:%Y-%m-%d-%H%M%S}.jpg",
    "2001/photo_{0:%Y-%m-%d_%H-%M-%S}.jpg", "Bildschirmfoto {0:%Y-%m-%d} um {0:%H.%M.%S}.png",
    "Capture {0:%Y-%m-%d} \u00e0 {0:%H.%M.%S}.png", "Captura {0:%Y-%m-%d} a las {0:%H.%M.%S}.png",
    "{0:%Y%m%dT%H%M%S}.jpg", "Urlaub {0:%d.%m.%Y} {0:%H.%M.%S}.jpg",
]  # fmt: skip
DAYS = [
    "IMG-{0:%Y%m%d}-WA0001.jpg", "{0:%Y_%m_%d}.jpg", "{0:%Y.%m.%d} Porto.jpg", "{0:%Y}/{0:%m}/{0:%d}/a.jpg",
    "{0.year}/{0.month}/{0.day}/a.jpg",
    "{0:%d.%m.%Y}.jpg", "Urlaub {0:%d.%m.%Y}/scan.jpg", "{0.day}.{0.month}.{0.year}.jpg",
    "{0.day}. {0.month}. {0.year}.jpg", "{0.year}-{0.month}-{0.day} x.jpg",
    "{0.year}\u5e74{0.month}\u6708{0.day}\u65e5.jpg", "{0.year}\ub144 {0.month}\uc6d4 {0.day}\uc77c.jpg",
    "{0:%Y}-{0:%m}/{0:%d}/a.jpg", "{0:%Y}/{0:%m} {1}/{0:%d}/a.jpg", "{0:%Y}/{1}/{0:%d}/IMG_1.jpg",
    "{0.day} {1} {0.year}.jpg", "{0.day}. {1} {0.year}.jpg", "{0:%d}-{1}-{0.year}.jpg",
    "{0.day} de {1} de {0.year}/a.jpg", "{1} {0.day}, {0.year}.jpg", "{0.year}-{1}-{0:%d}.jpg",
]  # fmt: skip
MONTHS = [
    "{0:%Y-%m}/a.jpg", "{0:%Y_%m}/a.jpg", "{0:%Y-%m} Porto/a.jpg", "{0:%Y}/{0:%m}/a.jpg", "{0:%Y}/{0:%m}/Porto/a.jpg",
    "{0:%Y}/{0:%m} {1}/a.jpg", "{0:%Y}/{0:%m}-{1}/a.jpg", "{0:%Y}/{0:%m}_{1}/a.jpg", "{0:%Y}/{1}/a.jpg",
    "{1} {0:%Y}/a.jpg", "{1}_{0:%Y}/a.jpg", "{0:%Y} {1}/a.jpg", "{0:%Y-%m} {1}/a.jpg", "{0:%m.%Y}/a.jpg",
    "{1} de {0:%Y}/a.jpg", "Porto {1} {0:%Y}.jpg", "{0:%Y-%m} Porto.jpg",
    "{0:%Y%m}__/IMG_1.jpg", "{0.year}\u5e74{0.month}\u6708/a.jpg",
]  # fmt: skip
#: The months in five languages, and as short as people write them.
LANGUAGES = [
    "January February March April May June July August September October November December",
    "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec",
    "Januar Februar M\u00e4rz April Mai Juni Juli August September Oktober November Dezember",
    "janvier f\u00e9vrier mars avril mai juin juillet ao\u00fbt septembre octobre novembre d\u00e9cembre",
    "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
]
WHEN = st.datetimes(datetime(1826, 1, 1), datetime(date.today().year + 1, 12, 31))


@given(WHEN, st.sampled_from(NAMES))
def test_a_date_in_a_name_is_read_as_programs_write_it(when, name):
    assert date_of_name(Path(name.format(when))) == str(when.replace(microsecond=0))


@given(WHEN, st.sampled_from([*DAYS, *MONTHS]), st.sampled_from(LANGUAGES))
def test_a_day_or_a_month_is_read_whichever_way_people_write_it(when, name, months):
    written = Path(name.format(when, months.split()[when.month - 1]))
    assert date_of_name(written) == f"{when:%Y-%m-%d}"[: 10 if name in DAYS else 7]


@given(st.dates(date(1990, 1, 1), date(2020, 12, 31)), st.sampled_from("-_ "), st.booleans())
def test_two_numbers_before_a_year_are_a_date_where_only_one_can_be_the_month(day, by, day_first):
    order = ("%d", "%m") if day_first else ("%m", "%d")
    said = date_of_name(Path(f"{day.strftime(by.join((*order, '%Y')))}.jpg"))
    assert said == (str(day) if day.day > 12 or day.day == day.month else None)


@given(
    st.datetimes(datetime(2002, 1, 1), datetime.today() + timedelta(days=30)),
    st.sampled_from(
        ["FB_IMG_{}123.jpg", "mmexport{}123.jpg", "Screenshot_{}.png", "IMG_{}123.jpg"]
    ),
)
def test_seconds_since_1970_are_read_from_programs_that_name_files_by_them(when, name):
    seconds = int(when.timestamp())
    assert date_of_name(Path(name.format(seconds))) == str(datetime.fromtimestamp(seconds))


@given(
    st.sampled_from(["IMG_{}", "DSC{}", "{}", "scan {}", "IMG-{}-WA0001", "+{}", "photo_{}"]),
    st.integers(10**9, 10**13 - 1) | st.integers(0, 10**6) | st.integers(21_000_000, 99_999_999),
)
def test_counters_telephones_and_serial_numbers_are_no_dates(name, number):
    assume(not (name.startswith("IMG") and len(str(number)) == 13))  # milliseconds since 1970
    assert date_of_name(Path(f"{name.format(number)}.jpg")) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("IMG_20190714_992030.jpg", "2019-07-14"),
        ("IMG_20190714_12345.jpg", "2019-07-14"),
        ("2019/2019-07-14 Porto/IMG_1.jpg", "2019-07-14"),
        ("2018-01/20191345.jpg", "2018-01"),
        ("2019/06/2019-07-14.jpg", "2019-07-14"),
        ("2019-06-30/July 2019.jpg", "2019-06-30"),
        ("2019/14 July/a.jpg", "2019-07-14"),
        ("2019/07-14/a.jpg", "2019-07-14"),
        ("14.07.2019 - 20.07.2019/a.jpg", "2019-07"),
        ("14-20 July 2019/a.jpg", "2019-07"),
        ("30 February 2019.jpg", "2019-02"),
        *(
            (name, None)
            for name in (
                "20191345.jpg",
                "20191399.jpg",
                "DSC_20190001.jpg",
                "48238472934_0a1b2c_o.jpg",
                "+351912345678.jpg",
                "1563099630000.jpg",
                "IMG_1563099630.jpg",
                "18251231.jpg",
                "20990101.jpg",
                "2050-07-14.jpg",
                "FB_IMG_9999999999999.jpg",
                "14072019.jpg",
                "2019/a.jpg",
                "2019 Sommerurlaub/a.jpg",
                "2019/13/a.jpg",
                "2019/10 best/a.jpg",
                "2019/07-05/a.jpg",
                "2019/06 July/a.jpg",
                "2019-06 July/a.jpg",
                "June and July 2019/a.jpg",
                "28.06.2019 - 20.07.2019/a.jpg",
                "14.-20.07.2019.jpg",
                "05-06-2019.jpg",
                "2019-07.jpg",
                "IMG_2019.jpg",
                "IMG_2019_1_2.jpg",
                "v1.7.2019.jpg",
                "+49 14 07 2019.jpg",
                "31.06.2019.jpg",
                "Marsala 2019/a.jpg",
                "1920x1080.jpg",
            )
        ),
    ],
)
def test_what_is_no_date_in_a_name_is_none(name, expected):
    assert date_of_name(Path(name)) == expected


@pytest.mark.parametrize(
    "form", ["{}-{:02}-{:02}.jpg", "{}{:02}{:02}_102030.jpg", "{2}.{1}.{0}.jpg", "{}-{}-{}/a.jpg"]
)
def test_a_day_that_is_impossible_is_no_date(form):
    for month, day in product(range(13), range(33)):
        found = date_of_name(Path(form.format(2019, month, day)))
        assert (found is not None) == exists(2019, month, day), (month, day, found)


def exists(year, month, day):
    try:
        return bool(date(year, month, day))
    except ValueError:
        return False


def test_a_long_name_takes_no_longer_than_its_length():
    began = time.perf_counter()
    for text in ("1.", "2019-", "july ", "14 july ", "20190714"):
        date_of_name(Path((text * 200)[:250] + "x"))
    assert time.perf_counter() - began < 1
