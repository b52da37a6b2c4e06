"""The command line, as in tests/cli."""

from tests.support.command_line import headwater, process

__all__ = ["headwater", "process"]
