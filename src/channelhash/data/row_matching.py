"""Which row of a student's data is which row of its teacher's."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from channelhash.data.records import Records
from channelhash.data.splits import Splits
from channelhash.errors import InputError

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Partners:
    """Rows of two collections that are the same item.

    Attributes:
        of_student: ``(n_student,)`` the teacher's row, or −1.
        of_teacher: ``(n_teacher,)`` the student's row, or −1.
        alone: a line for each item that only one of the two has.
    """

    of_student: Rows
    of_teacher: Rows
    alone: tuple[str, ...]

    def splits(self, teacher: Splits) -> Splits:
        """The teacher's partitions as rows of the student; items that the student has alone are in none.

        Raises:
            InputError: no query or no item to search is left.
        """
        parts = {}
        for name, rows in vars(teacher).items():
            own = self.of_teacher[rows]
            parts[name] = np.sort(own[own >= 0])
        for name in ("query", "retrieval"):
            if not len(parts[name]):
                raise InputError(
                    f"none of the teacher's {len(vars(teacher)[name])} {name} items is in the student's data"
                )
        return Splits(**parts)


def find_partners(student: Records, teacher: Records) -> Partners:
    """Join two collections by id. Time and memory O(n).

    Raises:
        InputError: they have no id in common, or an id twice where they are not the same list.
    """
    if student.ids == teacher.ids:
        same = np.arange(len(student), dtype=np.int64)
        return Partners(same, same, ())
    places = {"student": _places(student, "student"), "teacher": _places(teacher, "teacher")}
    of_student, of_teacher = (np.full(len(records), -1, dtype=np.int64) for records in (student, teacher))
    for name in places["student"].keys() & places["teacher"].keys():
        own, other = places["student"][name], places["teacher"][name]
        of_student[own], of_teacher[other] = other, own
    if (of_student < 0).all():
        raise InputError(
            f"no item of the student's data ({len(student)}, such as {student.ids[0]!r}) has the id of one of the "
            f"teacher's ({len(teacher)}, such as {teacher.ids[0]!r}); rows are joined by id"
        )
    alone = [f"item {student.ids[row]}: only in the student's data" for row in np.flatnonzero(of_student < 0)]
    alone += [f"item {teacher.ids[row]}: only in the teacher's data" for row in np.flatnonzero(of_teacher < 0)]
    return Partners(of_student, of_teacher, tuple(alone))


def _places(records: Records, whose: str) -> dict[str, int]:
    places = {name: row for row, name in enumerate(records.ids)}
    if len(places) < len(records):
        twice = next(name for row, name in enumerate(records.ids) if places[name] != row)
        raise InputError(f"the {whose}'s data has the id {twice!r} twice; rows that are joined need ids of their own")
    return places
