"""Sums of money, split without losing a cent."""


def split(cents: int, people: int) -> list[int]:
    """Shares that differ by one cent at most, the larger ones first."""
    return [cents // people for _ in range(people)]
