"""What of the network rules this edge can hold to."""

from __future__ import annotations

from collections.abc import Iterable

from dsec_runtime.errors import InvalidRequestError, UnsupportedError
from dsec_runtime.spec import NetworkRule


def check(rules: Iterable[NetworkRule]) -> None:
    """Refuse what is malformed, and what would have to be allowed.

    A sandbox has a loopback device and nothing else. Rules that deny are kept by that; one that
    allows something cannot be, and is not taken for more than it is. Raises InvalidRequestError,
    UnsupportedError.
    """
    for rule in rules:
        named = [each for each in (rule.service, rule.domain, rule.cidr) if each is not None]
        if len(named) != 1:
            raise InvalidRequestError("a network rule names one service, domain or cidr")
        if rule.allow:
            raise UnsupportedError(
                f"this edge cannot open the network to {named[0]}: it denies all",
                hint="leave out the rules that allow something",
            )
