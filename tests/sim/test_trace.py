"""The trace and its digest."""

from __future__ import annotations

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from engine.records import ErrorInfo
from sim.trace import Trace, Untraceable, explain, first_difference

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), max_size=6)


def traced(items, **options):
    trace = Trace(**options)
    for fields in items:
        trace.record("call", "a.1", "task", "label", **fields)
    return trace


@given(FIELDS)
def test_equal_runs_have_equal_digests(items):
    """The digest is a function of the entries, kept or not."""
    one, two, unkept = traced(items), traced(items), traced(items, keep=False)
    assert one.digest() == two.digest() == unkept.digest()
    assert first_difference(one.entries, two.entries) is None
    assert unkept.entries == []
    assert unkept.count == len(items)


@given(FIELDS, FIELDS)
def test_different_runs_have_different_digests(left, right):
    """The digest tells two runs apart exactly when an entry does."""
    one, two = traced(left), traced(right)
    difference = first_difference(one.entries, two.entries)
    assert (one.digest() == two.digest()) == (difference is None)


def test_the_digest_may_be_asked_for_at_any_time():
    """Asking for the digest half-way changes nothing."""
    one, two = Trace(), Trace()
    for nth in range(5):
        one.record("k", "n", "t", "l", nth=nth)
        one.digest()
        two.record("k", "n", "t", "l", nth=nth)
    assert one.digest() == two.digest()


def test_long_traces_keep_no_bytes():
    """What was digested isn't kept, however long the run."""
    trace = Trace(keep=False)
    for _ in range(3000):
        trace.record("k", "n", "t", "l", data=b"x" * 100)
    assert len(trace._pending) < 1 << 17


@pytest.mark.parametrize("place", ["kind", "node", "task", "label", "fields", "time"])
def test_every_part_of_an_entry_counts(place):
    """Kind, node, task, label, fields and virtual time all change the digest."""
    parts = {"kind": "k", "node": "n", "task": "t", "label": "l"}
    one, two = Trace(), Trace()
    one.record(*parts.values(), x=1)
    if place == "time":
        two.now_ns = 1
    elif place != "fields":
        parts[place] = "other"
    two.record(*parts.values(), x=2 if place == "fields" else 1)
    assert one.digest() != two.digest()
    assert first_difference(one.entries, two.entries)[0] == 0


def test_the_first_difference_is_named():
    """The report shows the first divergent entries of both runs."""
    one = traced([{"a": 1}, {"a": 2}, {"a": 3}])
    two = traced([{"a": 1}, {"a": 5}, {"a": 6}])
    index, left, right = first_difference(one.entries, two.entries)
    assert (index, left.fields, right.fields) == (1, {"a": 2}, {"a": 5})
    text = explain((index, left, right))
    assert "entry 1" in text
    assert "a=2" in text
    assert "a=5" in text


def test_a_shorter_run_differs_where_it_ends():
    """A run that is a prefix of another differs at its end."""
    one, two = traced([{"a": 1}]), traced([{"a": 1}, {"a": 2}])
    assert first_difference(one.entries, two.entries)[:2] == (1, None)
    assert "had ended" in explain(first_difference(one.entries, two.entries))


@pytest.mark.parametrize("value", [object(), lambda: None, [object()], {"x": print}])
def test_what_has_an_address_is_refused(value):
    """A value without canonical bytes is an error that names the entry, never an address in the digest."""
    with pytest.raises(Untraceable, match="call label"):
        Trace().record("call", "a.1", "t", "label", value=value)


def test_sets_are_written_in_one_order():
    """A set's hash order doesn't reach the digest, on either way of encoding."""
    first, second = set([0, 8]), set([8, 0])  # noqa: C405 (a literal would be built in one order)
    assert list(first) != list(second)
    for extra in (None, ValueError("x")):
        one = traced([{"value": first, "extra": extra}])
        two = traced([{"value": second, "extra": extra}])
        assert one.digest() == two.digest()


def test_cancellations_have_no_text():
    """A cancellation is traced by its name alone, since its text holds an address."""

    async def cancelled():
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as exc:
                return exc
        return None

    errors = [trio.run(cancelled) for _ in range(2)]
    group = [BaseExceptionGroup("", [error, ValueError("v")]) for error in errors]
    for one, two in (errors, group):
        assert traced([{"e": one}]).digest() == traced([{"e": two}]).digest()
    assert traced([{"e": ValueError("v")}]).digest() != traced([{"e": ValueError("w")}]).digest()


def test_records_and_odd_values_are_traced():
    """attrs records, lone surrogates and great integers have canonical bytes."""
    fields = {"record": ErrorInfo(type="t", message="m"), "text": "\ud800", "number": 2**80}
    assert traced([fields]).digest() == traced([dict(fields)]).digest()
    changed = {**fields, "record": attrs.evolve(fields["record"], message="n")}
    assert traced([fields]).digest() != traced([changed]).digest()


def test_a_closed_trace_records_nothing():
    """What happens while the world is torn down isn't part of the run."""
    trace = traced([{"a": 1}])
    digest = trace.digest()
    trace.close()
    trace.record("k", "n", "t", "l")
    assert (trace.digest(), trace.count, len(trace.entries)) == (digest, 1, 1)
