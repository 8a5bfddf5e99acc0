"""Match the rows of a student's data with those of its teacher's."""

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
        unmatched: a line for each item that only one of the two has.

    >>> partners = Partners(np.array([1, 0]), np.array([1, 0]), unmatched=())  # the same items in another order
    >>> partners.splits(Splits(*(np.array([row]) for row in (0, 1, 1, 0, 1)))).query.tolist()
    [1]
    """

    of_student: Rows
    of_teacher: Rows
    unmatched: tuple[str, ...]

    def splits(self, teacher: Splits) -> Splits:
        """Return the teacher's partitions as rows of the student; items that only the student has are in none.

        Raises:
            InputError: no query or no database item is left.
        """
        parts = {}
        for name, rows in vars(teacher).items():
            student_rows = self.of_teacher[rows]
            parts[name] = np.sort(student_rows[student_rows >= 0])
        for name in ("query", "retrieval"):
            if not len(parts[name]):
                raise InputError(
                    f"none of the teacher's {len(vars(teacher)[name])} {name} items is in the student's data"
                )
        return Splits(**parts)


def find_partners(student: Records, teacher: Records) -> Partners:
    """Match two collections by id. Time and memory O(n).

    Raises:
        InputError: they have no id in common, or an id occurs twice although the lists of ids differ.

    >>> student, teacher = (Records(ids, {}, np.zeros((2, 0), dtype=bool), ()) for ids in (("a", "b"), ("b", "c")))
    >>> partners = find_partners(student, teacher)
    >>> partners.of_student.tolist(), partners.of_teacher.tolist(), len(partners.unmatched)
    ([-1, 0], [1, -1], 2)
    """
    if student.ids == teacher.ids:
        same = np.arange(len(student), dtype=np.int64)
        return Partners(same, same, ())
    places = {"student": _places(student, "student"), "teacher": _places(teacher, "teacher")}
    of_student, of_teacher = (np.full(len(records), -1, dtype=np.int64) for records in (student, teacher))
    for name in places["student"].keys() & places["teacher"].keys():
        student_row, teacher_row = places["student"][name], places["teacher"][name]
        of_student[student_row], of_teacher[teacher_row] = teacher_row, student_row
    if (of_student < 0).all():
        raise InputError(
            f"no item of the student's data ({len(student)}, such as {student.ids[0]!r}) has the id of one of the "
            f"teacher's ({len(teacher)}, such as {teacher.ids[0]!r}); rows are joined by id"
        )
    unmatched = [f"item {student.ids[row]}: only in the student's data" for row in np.flatnonzero(of_student < 0)]
    unmatched += [f"item {teacher.ids[row]}: only in the teacher's data" for row in np.flatnonzero(of_teacher < 0)]
    return Partners(of_student, of_teacher, tuple(unmatched))


def _places(records: Records, whose: str) -> dict[str, int]:
    places = {name: row for row, name in enumerate(records.ids)}
    if len(places) < len(records):
        twice = next(name for row, name in enumerate(records.ids) if places[name] != row)
        raise InputError(f"the {whose}'s data has the id {twice!r} twice; rows that are joined need ids of their own")
    return places
