"""The command line, and a pipeline to run with it."""

from tests.support.command_line import headwater, process, shop

__all__ = ["headwater", "process", "shop"]
