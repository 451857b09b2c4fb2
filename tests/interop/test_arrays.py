"""Arrays and tables of other libraries: the array API, DLPack from another device, xarray, modin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import DataError, ParameterError

VALUES = np.random.default_rng(3).gamma(2.0, 20.0, 600).round(2)
TABLE = {"epsilon": 1.0, "bound": 200.0, "clip": 100.0, "seed": 1}


class Exported:
    """An array with DLPack alone, as on an accelerator: without a copy only for its own device."""

    def __init__(self, array: np.ndarray, *, accelerated: bool = False) -> None:
        self._array, self._accelerated = array, accelerated

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2 if self._accelerated else 1), 0

    def __dlpack__(self, **asked: Any) -> Any:
        if self._accelerated and asked.get("dl_device") != (1, 0):
            raise BufferError("on another device")
        return self._array.__dlpack__()


class Accelerated(Exported):
    """As CuPy's, which refuse NumPy's own conversion."""

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("implicit conversion")


def strict(device: str) -> Callable[[np.ndarray], Any]:
    def make(array: np.ndarray) -> Any:
        library = pytest.importorskip("array_api_strict", reason="array_api_strict is not installed")
        return library.asarray(array, device=library.Device(device))

    return make


def labelled(array: np.ndarray) -> Any:
    library = pytest.importorskip("xarray", reason="xarray is not installed")
    # Two coordinates, which are no values.
    times = np.datetime64("2026-01-01", "ns") + np.arange(array.shape[-1]) * np.timedelta64(1, "m")
    dims = ("meter", "time")[-array.ndim :]
    return library.DataArray(array, dims=dims, coords={"time": times, "day": ("time", np.arange(times.size) // 60)})


ARRAYS = {
    "dlpack": Exported,
    "dlpack of another device": lambda array: Accelerated(array, accelerated=True),
    "array API": strict("CPU_DEVICE"),
    "array API of another device": strict("device1"),
    "xarray": labelled,
}


@pytest.mark.parametrize("make", ARRAYS.values(), ids=list(ARRAYS))
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_arrays_are_read_as_numpy_s(make: Callable[[np.ndarray], Any], kind: type[Any]) -> None:
    values = VALUES.astype(kind)
    options = {"epsilon": 1.0, "bound": 200.0, "threshold": 100.0, "seed": 1}
    np.testing.assert_array_equal(
        fastdp.release(make(values), **options).values, fastdp.release(values, **options).values
    )
    matrix = values.reshape(6, 100)
    np.testing.assert_array_equal(
        fastdp.release_many(make(matrix), **options).values, fastdp.release_many(matrix, **options).values
    )
    noisy = fastdp.add_noise(make(matrix), 1.0, 1.0, seed=1)
    assert isinstance(noisy, np.ndarray)
    np.testing.assert_array_equal(noisy, fastdp.add_noise(matrix, 1.0, 1.0, seed=1), strict=True)


def test_an_array_that_does_not_leave_its_device_is_refused() -> None:
    class Stuck(Accelerated):
        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("no")

    with pytest.raises(DataError, match=r"^values is a Stuck that is no array"):
        fastdp.release(Stuck(VALUES), 1.0, 200.0)


def test_totals_of_xarray() -> None:
    array = labelled(VALUES).rename("kwh")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"time": array["time"].to_numpy(), "kwh": VALUES})
    wanted = fastdp.totals(frame, "kwh", "time", "1h", **TABLE).frame
    for given in (array, array.to_dataset(), labelled(VALUES[None]).to_dataset(name="kwh")):
        pandas.testing.assert_frame_equal(fastdp.totals(given, "kwh", "time", "1h", **TABLE).frame, wanted)
    with pytest.raises(DataError, match=r"^frame: a DataArray whose columns cannot be named"):
        fastdp.totals(labelled(VALUES), "kwh", "time", "1h", **TABLE)
    with pytest.raises(ParameterError, match=r"expected one of the table's columns, 'time', 'day', 'kwh'"):
        fastdp.totals(array, "watt", "time", "1h", **TABLE)


def test_a_measurement_of_xarray_is_one_row() -> None:
    """Else a column of fewer dimensions would be in as many rows as the others have."""
    library = pytest.importorskip("xarray", reason="xarray is not installed")
    data = library.Dataset({"x": ("t", [1.0, 2.0, 3.0]), "z": (("t", "c"), np.ones((3, 50)))})
    options = {"epsilon": 50.0, "seed": 1, "bounds": {"x": fastdp.Value(clip=10.0)}}
    alone, given = (fastdp.aggregate(one, {"x": "sum"}, **options).arrow for one in (data, data[["x"]]))
    assert repr(alone.to_pydict()) == repr(given.to_pydict()), "NaN too"
    with pytest.raises(DataError, match="different dimensions"):
        fastdp.aggregate(data, {"x": "sum", "z": "mean"}, epsilon=50.0, seed=1, bounds={"x": 10.0, "z": 1.0})
    with pytest.raises(DataError, match="different dimensions"):
        fastdp.aggregate(data, {"*": "count"}, epsilon=50.0, seed=1, by="t", keys=[0, 1, 2])


def test_totals_of_modin() -> None:
    modin = pytest.importorskip("modin.pandas", reason="modin is not installed")
    pandas = pytest.importorskip("pandas")
    columns = {"time": pandas.date_range("2026-01-01", periods=600, freq="min"), "kwh": VALUES}
    wanted, found = (fastdp.totals(each.DataFrame(columns), "kwh", "time", "1h", **TABLE) for each in (pandas, modin))
    assert found.arrow.equals(wanted.arrow)
