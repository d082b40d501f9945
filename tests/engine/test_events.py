"""The vocabulary: which events there are, and what all of them have in common."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from engine import events as ev

DURABLE = [
    "execution.failed",
    "execution.handed_over",
    "execution.interrupted",
    "execution.started",
    "execution.succeeded",
    "input.admitted",
    "input.cancelled",
    "input.delivery_changed",
    "input.parked",
    "input.promoted",
    "input.resumed",
    "reasoning.ended",
    "reasoning.started",
    "retry.scheduled",
    "session.created",
    "session.deleted",
    "session.renamed",
    "step.ended",
    "step.failed",
    "step.interrupted",
    "step.started",
    "step.streamed",
    "synthetic",
    "text.ended",
    "text.started",
    "tool.called",
    "tool.failed",
    "tool.input.ended",
    "tool.input.started",
    "tool.succeeded",
]
LIVE = ["reasoning.delta", "text.delta", "tool.input.delta", "tool.progress"]
OWN_IDS = ("step.", "text.", "reasoning.", "tool.")


def test_the_vocabulary_is_complete_and_holds_nothing_else() -> None:
    """Every event of the table, durable or live, in one registry."""
    assert sorted(type for (type, _), cls in ev.REGISTRY.items() if cls.durable) == DURABLE
    assert sorted(type for (type, _), cls in ev.REGISTRY.items() if not cls.durable) == LIVE


@pytest.mark.parametrize("key", ev.REGISTRY, ids=lambda key: key[0])
def test_each_class_knows_its_name_and_is_frozen(key: tuple[str, int]) -> None:
    """Type and version belong to the class, never to the data; instances can't be changed."""
    cls: Any = ev.REGISTRY[key]
    assert (cls.type, cls.version) == key
    names = [field.name for field in attrs.fields(cls)]
    assert names[0] == "session_id"
    assert ("assistant_message_id" in names) == key[0].startswith(OWN_IDS) == issubclass(cls, ev.StepEvent)
    assert not {"type", "version", "durable"} & set(names)
    assert all(field.kw_only for field in attrs.fields(cls))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        ev.SessionRenamed(session_id="s", title="t").title = "u"  # type: ignore[misc]


def test_terminals_are_told_by_class() -> None:
    """Three ends of a step, four of an execution."""
    assert {cls.type for cls in ev.STEP_TERMINALS} == {"step.ended", "step.failed", "step.interrupted"}
    assert {cls.type for cls in ev.EXECUTION_TERMINALS} == {
        "execution.succeeded", "execution.failed", "execution.interrupted", "execution.handed_over",
    }  # fmt: skip


def test_a_type_is_registered_once() -> None:
    """A second class for the same type and version is a bug, found when the module is imported."""
    with pytest.raises(AssertionError, match="registered twice"):

        @ev.event("session.renamed")
        class Again(ev.Event):
            name: str


def test_only_what_belongs_to_nobody_else_is_optional() -> None:
    """Fields with a default are those that an older log may lack, or that have nothing to say."""
    classes: list[Any] = list(ev.REGISTRY.values())
    optional = {
        f"{cls.type}.{field.name}"
        for cls in classes
        for field in attrs.fields(cls)
        if field.default is not attrs.NOTHING
    }
    assert optional == {
        "execution.started.previous_execution_id", "execution.failed.parked_through", "step.failed.usage",
        "text.ended.truncated", "reasoning.ended.truncated", "tool.input.ended.truncated",
        "tool.called.hosted", "tool.succeeded.truncated",
    }  # fmt: skip
