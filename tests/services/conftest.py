"""The command line, as in tests/cli."""

from tests.cli.conftest import headwater, process

__all__ = ["headwater", "process"]
