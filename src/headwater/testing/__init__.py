"""What ships for tests of your own stores, sinks and sources: their promises as test suites, and rehearsed failures.

The contracts need pytest, which is imported with the first of them.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.testing.ledger_contract import LedgerContract
    from headwater.testing.progress_contract import StoreContract
    from headwater.testing.sink_contract import SinkContract, SinkTarget
    from headwater.testing.source_contract import SourceContract, SourceOrigin

__all__ = ["LedgerContract", "SinkContract", "SinkTarget", "SourceContract", "SourceOrigin", "StoreContract"]

_HOMES = {
    "LedgerContract": ("ledger_contract", "LedgerContract"),
    "SinkContract": ("sink_contract", "SinkContract"),
    "SinkTarget": ("sink_contract", "SinkTarget"),
    "SourceContract": ("source_contract", "SourceContract"),
    "SourceOrigin": ("source_contract", "SourceOrigin"),
    "StoreContract": ("progress_contract", "StoreContract"),
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    module = f"{__name__}.{module}"
    if module not in sys.modules:
        import pytest

        pytest.register_assert_rewrite(module)  # a broken promise then shows both sides
    return getattr(import_module(module), attribute)
