"""Dask distributed as an executor; needs the extra ``sweep``."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from fastdp.errors import StateError

#: Seconds to find the scheduler.
PATIENCE = 30


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """An executor on a running cluster; tasks of a worker that dies are run by another.

    Parameters
    ----------
    address : str
        Of the scheduler: ``tcp://host:8786``.  Its workers need fastdp, and see data files at the same paths.

    Raises
    ------
    StateError
        If distributed is not installed, or nobody answers.
    """
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise StateError("--scheduler needs Dask, which is not installed: pip install 'fastdp[sweep]'") from None
    try:
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise StateError(
            f"scheduler {address}: no answer ({reason}); expected the address of a Dask scheduler"
        ) from None
    with client:
        # Impure, or Dask would hash every argument to name its tasks; ours are named by their parts anyway.
        yield client.get_executor(pure=False, retries=3)
