"""Calls that are refused: every error that a user can cause is one line."""

import pytest

from channelhash.errors import InputError


def refusal(call, /, *arguments, error=InputError, **options) -> str:
    """Return the one line with which a call is refused."""
    with pytest.raises(error, match=r".") as refused:
        call(*arguments, **options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def check_refusal(message, call, /, *arguments, error=InputError, **options) -> None:
    """Compare the one line with which a call is refused with a pattern."""
    with pytest.raises(error, match=message) as refused:
        call(*arguments, **options)
    assert "\n" not in str(refused.value)
