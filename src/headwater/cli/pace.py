"""How fast a window's rows land, and how long that will still take."""

from __future__ import annotations


class Pace:
    """One window on its way, landing by landing: its streams, then those of the next sink."""

    def __init__(self, window: str, expected: int | None, doing: str = "landing") -> None:
        self.window, self.doing = window, doing
        self.rows = 0  # of the landing under way
        self._expected = self.left_to_land = expected  # of the whole window, and of what this sink has not landed yet
        self._first: tuple[float, int] | None = None
        self._last = 0.0

    def add(self, rows: int, now: float) -> None:
        if rows == 0:
            return
        self.rows += rows
        self._first, self._last = self._first or (now, self.rows), now

    def landed(self, rows: int) -> None:
        """The next landing begins: of another stream, or of all streams in another sink."""
        self.rows, self._first = 0, None
        if self.left_to_land is not None:
            left = self.left_to_land - rows
            self.left_to_land = left if left > 0 else self._expected

    @property
    def rows_per_second(self) -> float | None:
        """Since the first rows came: the start of a session says nothing about the rest."""
        if self._first is None or self._last <= self._first[0]:
            return None
        return (self.rows - self._first[1]) / (self._last - self._first[0])

    @property
    def seconds_left(self) -> float | None:
        rate = self.rows_per_second
        if not rate or self.left_to_land is None or self.rows >= self.left_to_land:
            return None
        return (self.left_to_land - self.rows) / rate

    @property
    def text(self) -> str:
        """`120,000 of 600,000 rows · 40,000 rows/s · 12 s left`, as far as it is known."""
        if self.rows == 0:
            return f"of {self.left_to_land:,} rows" if self.left_to_land else ""
        known = self.left_to_land is not None and self.rows <= self.left_to_land
        parts = [f"{self.rows:,} of {self.left_to_land:,} rows" if known else f"{self.rows:,} rows"]
        if self.rows_per_second is not None:
            parts.append(f"{self.rows_per_second:,.0f} rows/s")
        if self.seconds_left is not None:
            parts.append(f"{self.seconds_left:,.0f} s left")
        return " · ".join(parts)
