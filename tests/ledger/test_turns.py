"""Objects in turns on one file agree with a model of the releases that count, and with each other."""

from __future__ import annotations

import copy
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdp import Guarantee
from fastdp.errors import BudgetError
from fastdp.ledger import Ledger
from tests.oracles import ledger as oracle

EPSILONS = st.sampled_from([1 / 64, 1 / 16, 0.1, 0.3])
PLACES = 4
SPANS = st.just((None, None)) | st.tuples(st.integers(0, PLACES - 1), st.none() | st.integers(1, PLACES)).map(
    lambda span: (span[0], None if span[1] is None else max(span[0] + 1, span[1]))
)
WHERE = st.tuples(st.sampled_from([None, None, "a", "b"]), SPANS)
STEPS = st.one_of(
    st.tuples(st.just("spend"), EPSILONS, WHERE),
    st.tuples(st.just("reserve"), EPSILONS, WHERE),
    st.tuples(st.sampled_from(["commit", "cancel"]), st.integers(0, 9), st.booleans()),
    st.tuples(st.just("limit"), st.sampled_from([0.25, 1.0, None]), st.none()),
    st.tuples(st.just("close"), st.none(), st.none()),
)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(0, 2), STEPS), max_size=14), asked=WHERE)
def test_objects_in_turns_agree_with_the_oracle(tmp_path_factory: pytest.TempPathFactory, steps, asked) -> None:
    """Two objects and a copy of one, and a fresh object at the end."""
    path = tmp_path_factory.mktemp("ledger") / "budget"
    first = Ledger(path)
    accounts = [first, Ledger(path), copy.copy(first)]
    releases: dict[int, oracle.Release] = {}
    reserved, most = [], None

    def worst(more: list[oracle.Release], among: oracle.Where = (None, None, None)) -> Fraction:
        return oracle.worst([*releases.values(), *more], PLACES + 1, among)

    for which, (what, amount, where) in steps:
        account = accounts[which]
        if what in ("spend", "reserve"):
            part, (start, stop) = where
            release = (oracle.written(amount), part, start, stop)
            call, said = getattr(account, what), {"stream": "meter", "part": part, "start": start, "stop": stop}
            if most is not None and worst([release]) > oracle.written(most):
                with pytest.raises(BudgetError, match=r"Refused: .* Nothing was recorded"):
                    call(Guarantee(amount), **said)
                continue
            made = call(Guarantee(amount), **said)
            if what == "reserve":
                reserved.append(made)
                made = made.entry
            releases[made.id] = release
        elif what in ("commit", "cancel") and reserved:
            one = reserved.pop(amount % len(reserved))
            one._ledger = account
            loss, part, start, stop = releases[one.entry.id]
            if what == "cancel":
                one.cancel()
                del releases[one.entry.id]
            elif where and start is not None:
                one.commit(stop=start + 1)
                releases[one.entry.id] = loss, part, start, start + 1
            else:
                one.commit()
        elif what == "limit":
            account.set_limit(amount)
            most = amount
        elif what == "close":
            account.close()
        if most is not None:
            met = worst([], (asked[0], *asked[1]))
            rest = accounts[which].remaining("meter", part=asked[0], start=asked[1][0], stop=asked[1][1]).epsilon
            left = oracle.written(most) - met if worst([]) <= oracle.written(most) else Fraction(0)
            assert max(left, Fraction(0)) * (1 - Fraction(1, 2**50)) <= oracle.written(rest) <= max(left, Fraction(0))
    for account in [*accounts, Ledger(path)]:
        assert worst([]) <= oracle.written(account.spent("meter").epsilon) <= worst([]) * (1 + Fraction(1, 2**52))
        assert account.limit("meter") == Ledger(path).limit("meter")
        assert account.verify().reserved == [one.entry.id for one in sorted(reserved, key=lambda one: one.entry.id)]
