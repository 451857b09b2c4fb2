"""Wire format, collectors and clients of the local model: exact, mergeable, and not to be stopped by bad reports."""

from __future__ import annotations

import copy
import json
import pickle
import random
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.errors import DataError, ParameterError, StateError
from fastdp.local import (
    Announcement,
    Client,
    HistogramCollector,
    Hybrid,
    Piecewise,
    SquareWave,
    StochasticRounding,
    SumCollector,
    decode,
    encode,
    encoding,
)
from fastdp.local.encoding import MAX_AT_ONCE, read_messages
from fastdp.thresholds import Fixed
from tests.oracles import local as oracle

MECHANISMS = [SquareWave(1.0, 0.0, 50.0), StochasticRounding(0.3), Piecewise(2.0, -5.0, 5.0), Hybrid(1.0, 0.0, 9.0)]
WIDTHS = {"SquareWave": 3, "StochasticRounding": 1, "Piecewise": 3, "Hybrid": 3}


def reports_of(mechanism, count: int = 1000, seed: int = 3) -> np.ndarray:
    values = np.random.default_rng(seed).uniform(mechanism.low, mechanism.high, count)
    return mechanism.perturb(values, seed=seed)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_messages_are_compact_and_come_back(mechanism, count: int) -> None:
    reports = reports_of(mechanism, count)
    data = encode(mechanism, reports)
    assert len(data) == 39 + WIDTHS[type(mechanism).__name__] * count
    message = decode(data + b"what follows is the next message's")
    assert message.mechanism == mechanism
    assert message.size == len(data)
    assert np.array_equal(message.reports, reports)
    ends = [0, mechanism.n_outputs - 1]
    assert decode(encode(mechanism, ends)).reports.tolist() == ends
    assert decode(encode(mechanism, 1)).reports.tolist() == [1]
    with pytest.raises(DataError, match=r"reports\[0\]"):
        encode(mechanism, mechanism.n_outputs)


def test_the_format_is_pinned() -> None:
    data = encode(Hybrid(1.0, 0.0, 9.0), [7, 1_000_000])
    assert data.hex() == (
        "6664704c010403000000000000f03f0000000000000000000000000000224002000000" + "07000040420f" + data[-4:].hex()
    )
    assert zlib.crc32(data[:-4]).to_bytes(4, "little") == data[-4:]


def test_every_damage_is_a_clear_error() -> None:
    data = encode(MECHANISMS[0], [1, 2, 3])
    for cut in range(len(data)):
        with pytest.raises(DataError, match="message"):
            decode(data[:cut])
    generator = random.Random(5)
    for _ in range(300):
        altered = bytearray(data)
        altered[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        with pytest.raises(DataError, match="message"):
            decode(altered)
    for parameters in (b"\x01\x09", b"\x02\x01"):
        with pytest.raises(DataError, match=r"message (names mechanism 9|has format 2)"):
            decode(data[:4] + parameters + data[6:])
    for altered in (data[:6] + b"\x02" + data[7:41], data[:7] + b"\xff" * 8 + data[15:-4]):
        with pytest.raises(DataError, match=r"message (has reports of 2 bytes|with parameters)"):
            decode(altered + zlib.crc32(altered).to_bytes(4, "little"))
    many = data[:31] + (2**32 - 1).to_bytes(4, "little") + data[35:]
    with pytest.raises(DataError, match="4294967295 reports"):
        decode(many)


@given(st.binary(max_size=200))
def test_noise_is_never_a_crash(data: bytes) -> None:
    with pytest.raises(DataError):
        decode(data)
    collector = HistogramCollector(MECHANISMS[0], 16)
    collector.receive(data)
    assert collector.refused.messages == (1 if data else 0)
    with pytest.raises(StateError):
        HistogramCollector.from_bytes(data)


def test_collecting_goes_on_past_bad_reports() -> None:
    mechanism, other = MECHANISMS[3], Hybrid(1.0, 0.0, 10.0)
    collector = SumCollector(mechanism)
    good = reports_of(mechanism, 10)
    spoiled = [*good.tolist(), -1, mechanism.n_outputs, 2**70]
    assert collector.add(spoiled) == 10
    assert collector.receive(encode(other, [1, 2]) + encode(mechanism, good) + b"fdpL and then nonsense") == 10
    assert (collector.n_reports, collector.refused.reports, collector.refused.messages) == (20, 3, 2)
    assert collector.sum() == pytest.approx(2 * mechanism.estimate(good).sum(), rel=1e-9)
    assert collector.add([0.5, float("nan"), float("inf")]) == 0
    assert collector.refused.reports == 6
    for wrong in ([True, False], ["1"]):
        with pytest.raises(DataError, match="reports holds"):
            collector.add(wrong)
    assert collector.receive(encode(mechanism, good), most_reports=9) == 0
    assert collector.receive(encode(mechanism, good[:9]), most_reports=9) == 9
    assert collector.refused.messages == 3


def odd_one(kind: str, mechanism, other) -> bytes:
    one = bytearray(encode(mechanism, 1))
    if kind in ("another mechanism", "three reports", "none"):
        return encode(other, 1) if kind == "another mechanism" else encode(mechanism, [1] * (3 * (kind != "none")))
    place = {"magic": 0, "version": 4, "epsilon": 9, "count": 31, "report": 35, "checksum": -1}[kind]
    one[place] ^= 1
    return bytes(one)


@pytest.mark.parametrize("mechanism", MECHANISMS[:2], ids=repr)
@pytest.mark.parametrize(
    "kind",
    ["another mechanism", "three reports", "none", "magic", "version", "epsilon", "count", "report", "checksum"],
)
def test_messages_that_come_together_count_as_if_one_by_one(mechanism, kind: str) -> None:
    other = type(mechanism)(mechanism.epsilon, mechanism.low, mechanism.high + 1.0)
    sent = [encode(mechanism, report) for report in reports_of(mechanism, 160).tolist()]
    odd, beginning = odd_one(kind, mechanism, other), sent[0][:31]
    for places in ((), (0,), (1,), (2,), (9,), (11, 12), (60,), (80, 82, 150), (159,), tuple(range(0, 160, 2))):
        data = b"".join(odd + part if i in places else part for i, part in enumerate(sent))
        for most in (None, 1, 0):
            expected = oracle.read_messages(data, beginning, 160 if most is None else most)
            reports, refused = read_messages(data, mechanism, most)
            assert (reports.tolist(), refused) == expected
        assert oracle.read_messages(data[:-1], beginning, 160)[1] == read_messages(data[:-1], mechanism)[1] > 0


def test_more_messages_than_are_checked_at_once() -> None:
    mechanism = MECHANISMS[3]
    reports = reports_of(mechanism, 2 * MAX_AT_ONCE)
    sent = [encode(mechanism, report) for report in reports.tolist()]
    data = b"".join([*sent, sent[0][:-1]])
    assert np.array_equal(read_messages(memoryview(bytearray(data)), mechanism)[0], reports)
    assert read_messages(data, mechanism)[1] == 1
    server, apart = (fastdp.ToPLServer(1.0, 9.0, threshold=Fixed(9.0)) for _ in range(2))
    together = server.receive(data)
    assert np.array_equal(together, np.concatenate([apart.receive(part) for part in sent[:99]] + [together[99:]]))
    assert (server.n_published, server.refused.messages) == (reports.size, 1)
    collector = SumCollector(mechanism)
    assert collector.receive(data) == collector.n_reports == reports.size
    collector.receive(b"".join(sent[:20]), most_reports=0)
    assert (collector.n_reports, collector.refused.messages) == (reports.size, 21)


def test_a_buffer_is_checked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    short = encode(MECHANISMS[1], 1)
    run = b"".join([short * (4 + 1 + 8 + 64 + 512), encode(MECHANISMS[1], [1] * 300)])
    data, checked, real = run * 60, [], zlib.crc32
    monkeypatch.setattr(encoding.zlib, "crc32", lambda part: checked.append(len(part)) or real(part))
    reports, refused = read_messages(data, MECHANISMS[1])
    assert (reports.size, refused) == (60 * (589 + 300), 0)
    assert sum(checked) < 10 * len(data)


@given(st.lists(st.integers(0, 3), min_size=30, max_size=30), st.randoms(use_true_random=False))
def test_shards_merge_to_the_same_in_any_order(assignment: list[int], shuffler: random.Random) -> None:
    for mechanism, make in ((MECHANISMS[0], lambda m: HistogramCollector(m, 32)), (MECHANISMS[3], SumCollector)):
        reports = reports_of(mechanism, 30)
        whole, shards = make(mechanism), [make(mechanism) for _ in range(4)]
        whole.add(reports)
        for report, shard in zip(reports.tolist(), assignment, strict=True):
            shards[shard].receive(encode(mechanism, report))
        for k in (1, 2):
            shards[k].add([-1] * k)
        whole.add([-1] * 3)
        shards = [type(whole).from_bytes(shard.to_bytes()) for shard in shards]
        shuffler.shuffle(shards)
        left = shards[0].merge(shards[1]).merge(shards[2].merge(shards[3]))
        flat = shards[0].merge(*shards[1:])
        for merged in (left, flat):
            assert np.array_equal(merged.totals, whole.totals)
            assert merged.refused == whole.refused
        assert sum(shard.n_reports for shard in shards) == 30
    with pytest.raises(ParameterError, match="expected collectors like"):
        SumCollector(MECHANISMS[3]).merge(SumCollector(MECHANISMS[1]))
    with pytest.raises(ParameterError, match="expected collectors like"):
        SumCollector(MECHANISMS[3]).merge(SumCollector(MECHANISMS[3], slots=2))


@pytest.mark.parametrize("mechanism", MECHANISMS[1:], ids=repr)
def test_sums_by_slot_are_those_of_the_estimates(mechanism) -> None:
    reports = reports_of(mechanism, 500)
    slots = np.arange(500) // 100
    collector = SumCollector(mechanism, slots=5)
    collector.add(reports[:250], slots[:250])
    for report, slot in zip(reports[250:].tolist(), slots[250:].tolist(), strict=True):
        collector.add(report, slot)
    estimates = mechanism.estimate(reports)
    assert collector.sum() == pytest.approx(estimates.sum(), rel=1e-9, abs=1e-9)
    assert collector.sum(1, 3) == pytest.approx(estimates[100:300].sum(), rel=1e-9, abs=1e-9)
    assert collector.mean(4) == pytest.approx(estimates[400:].mean(), rel=1e-9, abs=1e-9)
    assert collector.std_error(1, 3) == pytest.approx(np.sqrt(200 * mechanism.worst_variance))
    assert np.isnan(collector.mean(2, 2))
    for wrong in (5, -1, 0.5, [0] * 3):
        with pytest.raises(ParameterError, match=r"^slot"):
            collector.add(reports[:2], wrong)
    with pytest.raises(ParameterError, match="stop = 6"):
        collector.sum(0, 6)
    # A refused report leaves its neighbours in their own slots.
    before = collector.totals.copy()
    collector.add([0, -5, 1], [0, 1, 2])
    assert (collector.totals - before)[:, :, 0].sum(axis=1).tolist() == [1, 0, 1, 0, 0]


def test_histogram_equals_the_estimate_of_all_reports() -> None:
    mechanism = MECHANISMS[0]
    reports = reports_of(mechanism, 20_000)
    collector = HistogramCollector(mechanism, 64)
    collector.add(reports)
    direct = mechanism.estimate(reports, bins=64)
    assert np.array_equal(collector.estimate().frequencies, direct.frequencies)
    assert direct.n_reports == 20_000
    assert collector.estimate(method="ems").method == "ems"
    for bins in (16, 64, 200):
        other = collector.estimate(bins=bins)
        assert other.frequencies.size == bins
        assert other.mean() == pytest.approx(direct.mean(), rel=0.02)
    with pytest.raises(ParameterError, match=r"^bins = 0: expected"):
        collector.estimate(bins=0)
    with pytest.raises(ParameterError, match=r"mechanism = .*SquareWave"):
        HistogramCollector(MECHANISMS[3])
    with pytest.raises(ParameterError, match=r"mechanism = .*Hybrid"):
        SumCollector(MECHANISMS[0])


def test_damaged_collectors_are_clear_errors() -> None:
    data = SumCollector(MECHANISMS[3], slots=3).to_bytes()
    for cut in range(0, len(data), 97):
        with pytest.raises(StateError, match="state"):
            SumCollector.from_bytes(data[:cut])
    with pytest.raises(StateError, match="expected a HistogramCollector"):
        HistogramCollector.from_bytes(data)
    for totals in ([-1, 0], [1, -1], [1, 2**40], [2**41, 0]):
        collector = SumCollector(MECHANISMS[3])
        collector.totals[0, 0] = totals
        with pytest.raises(StateError, match="damaged"):
            SumCollector.from_bytes(collector.to_bytes())
        with pytest.raises(ParameterError, match="totals of a collector"):
            SumCollector(MECHANISMS[3]).merge(collector)


def test_sums_are_exact_beyond_64_bits() -> None:
    mechanism = MECHANISMS[3]
    collector = SumCollector(mechanism, slots=3)
    most = mechanism.distribution.terms()[0].last - 1
    collector.totals[:, 0] = 2**40, 2**40 * most
    merged = SumCollector.from_bytes(collector.to_bytes())
    assert merged.n_reports == 3 * 2**40
    assert merged.sum() == pytest.approx(3 * 2**40 * mechanism.estimate(most), rel=1e-12)


def test_a_client_answers_once_and_within_its_budget() -> None:
    announcement = Announcement(Hybrid(1.0, 0.0, 40.0))
    assert Announcement.from_text(announcement.to_text()) == announcement
    client = Client(1.0)
    with pytest.raises(ParameterError, match=r"epsilon = 1\.5: expected at most 1\.0"):
        client.answer(Announcement(Hybrid(1.5, 0.0, 40.0)), 3.0)
    with pytest.raises(DataError, match="values: not a finite number"):
        client.answer(announcement, float("nan"))
    for wrong in ([3.0], np.full(1000, 3.0), "3", None):
        with pytest.raises(DataError, match=r"value is a .*expected one number"):
            client.answer(announcement, wrong)
    for wrong in (None, b"text", {}, 5):
        with pytest.raises(DataError, match="announcement"):
            client.answer(wrong, 3.0)
    with pytest.raises(ParameterError, match=r"mechanism = None"):
        Announcement(None)
    for copier in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(StateError, match="cannot be copied"):
            copier(client)
    message = client.answer(announcement.to_text(), 3.0, seed=1)
    assert decode(message).reports.tolist() == [Hybrid(1.0, 0.0, 40.0).perturb(3.0, seed=1)]
    with pytest.raises(StateError, match="has answered"):
        client.answer(announcement, 3.0)
    with pytest.raises(ValueError, match="n_seen out of range"):
        client._machine.unpack({"n_seen": 2, "state": {"n_seen": 2, "message": None}}, client._key)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", '{"fastdp": 1}', "[" * 3000, "x" * 5000, '{"fastdp": 2, "more": 1}', "5",
     *(json.dumps({"fastdp": 1, "mechanism": "Hybrid", "epsilon": 1, "low": 0, "high": 1} | change) for change in (
         {"mechanism": "Evil"}, {"epsilon": -1}, {"fastdp": True}, {"mechanism": []}, {"fastdp": 2}, {"more": 1}))],
)  # fmt: skip
def test_announcements_that_are_none(text: str) -> None:
    with pytest.raises(DataError, match="announcement"):
        Announcement.from_text(text)
