"""The simulated disk: what a sync makes durable, what fails, and what a power loss leaves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.disk.files import SECTOR_BYTES, Change, DiskError, DiskFile, DiskFull, Operation, Side, SimDisk


def disk_with(name: str = "f", content: bytes = b"") -> tuple[SimDisk, DiskFile]:
    """A disk with one durable file."""
    disk = SimDisk()
    disk.files[name] = DiskFile(content)
    return disk, disk.files[name]


def after_loss(disk: SimDisk, name: str = "f", *, keep: bool = False) -> bytes:
    """What a file holds after a loss of power that keeps everything unsynced, or nothing."""
    disk.lose_power(lambda changes: changes if keep else [])
    disk.power_on()
    return bytes(disk.files[name].content)


def test_a_write_is_read_at_once_and_lost_with_the_power() -> None:
    """Without a sync nothing is durable."""
    disk, file = disk_with(content=b"old")
    disk.write(file, b"new", 0)
    assert disk.read(file, 10, 0) == b"new"
    assert after_loss(disk) == b"old"


def test_what_was_synced_survives() -> None:
    """A sync makes durable what was done to that file before it, and nothing after it or elsewhere."""
    disk, file = disk_with()
    other = disk.files["g"] = DiskFile()
    disk.write(file, b"one", 0)
    disk.write(other, b"other", 0)
    disk.sync(file)
    disk.write(file, b"two", 3)
    assert after_loss(disk) == b"one"
    assert disk.files["g"].content == b""


def test_what_is_done_to_a_file_after_the_loss_comes_to_nothing() -> None:
    """A file that was open when power went is another one than the file that is found."""
    disk, file = disk_with(content=b"old")
    disk.lose_power(lambda changes: changes)
    disk.write(file, b"new", 0)
    disk.sync(file)
    disk.power_on()
    assert disk.files["f"].content == b"old"


@pytest.mark.parametrize("operation", ["read", "write", "sync", "truncate"])
def test_an_operation_fails_as_often_as_asked_and_does_nothing(operation: Operation) -> None:
    """The fault is used up by operations of its kind, and by those of nodes only."""
    disk, file = disk_with(content=b"old")
    acts = {
        "read": lambda: disk.read(file, 3, 0),
        "write": lambda: disk.write(file, b"new", 0),
        "sync": lambda: disk.sync(file),
        "truncate": lambda: disk.truncate(file, 0),
    }
    disk.failing[operation] = 1
    acts[operation]()
    with disk.exposing():
        for other in acts:
            if other != operation:
                acts[other]()
        left = bytes(file.content)
        with pytest.raises(DiskError):
            acts[operation]()
        assert file.content == left
        acts[operation]()


def test_a_sync_that_failed_is_made_up_for_by_the_next() -> None:
    """Nothing is durable after the one, everything after the other."""
    for again in (False, True):
        disk, file = disk_with()
        disk.write(file, b"new", 0)
        disk.failing["sync"] = 1
        with disk.exposing():
            with pytest.raises(DiskError):
                disk.sync(file)
            if again:
                disk.sync(file)
        assert after_loss(disk) == (b"new" if again else b"")


def test_a_lying_sync_makes_nothing_durable_and_is_remembered() -> None:
    """It returns as if it had worked; the disk knows that it isn't to be believed any more."""
    disk, file = disk_with()
    disk.write(file, b"new", 0)
    disk.lying += 1
    with disk.exposing():
        disk.sync(file)
    disk.stop_lying()
    assert disk.lied
    assert after_loss(disk) == b""


def test_an_honest_sync_makes_up_for_a_lie() -> None:
    """What was believed durable is, from then on; a lie about nothing is none."""
    disk, file = disk_with()
    disk.lying += 1
    with disk.exposing():
        disk.sync(file)
        assert not disk.lied
        disk.write(file, b"new", 0)
        disk.sync(file)
        assert disk.lied
    disk.stop_lying()
    disk.sync(file)
    assert not disk.lied
    assert after_loss(disk) == b"new"


def test_a_full_disk_lets_files_be_written_but_not_grow() -> None:
    """It is full until each fault that fills it is over."""
    disk, file = disk_with(content=b"1234")
    disk.full += 2
    with disk.exposing():
        disk.write(file, b"ab", 2)
        with pytest.raises(DiskFull):
            disk.write(file, b"abc", 2)
        disk.free()
        with pytest.raises(DiskFull):
            disk.write(file, b"abc", 2)
        disk.free()
        disk.write(file, b"abc", 2)
    assert file.content == b"12abc"


def test_without_power_nothing_works_and_the_operation_that_lost_it_fails() -> None:
    """Power that goes before an operation leaves it undone, after it done; either way it raises."""
    sides: tuple[Side, Side] = ("before", "after")
    for side, found in zip(sides, (b"", b"new"), strict=True):
        disk, file = disk_with()
        disk.write(file, b"new", 0)

        def lose(operation: Operation, now: Side, disk: SimDisk = disk, side: Side = side) -> None:
            if (operation, now) == ("sync", side):
                disk.lose_power(lambda changes: [])

        disk.hook = lose
        with disk.exposing():
            for _ in range(2):
                with pytest.raises(DiskError):
                    disk.sync(file)
            with pytest.raises(DiskError):
                disk.read(file, 1, 0)
        disk.power_on()
        assert disk.files["f"].content == found


# --- against a model ---------------------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 1500), st.binary(min_size=1, max_size=1200)),
    st.tuples(st.just("truncate"), st.integers(0, 2000), st.just(b"")),
    st.tuples(st.just("sync"), st.just(0), st.just(b"")),
)


def done(content: bytes, step: tuple[str, int, bytes]) -> bytes:
    """What a file holds after a step: the model."""
    kind, offset, data = step
    if kind == "write":
        return content[:offset].ljust(offset, b"\0") + data + content[offset + len(data) :]
    return content[:offset].ljust(offset, b"\0") if kind == "truncate" else content


@given(st.lists(STEPS, max_size=12), st.booleans())
def test_a_file_agrees_with_the_model(steps: list[tuple[str, int, bytes]], keep: bool) -> None:
    """Whatever is written and cut, it reads as it should, and after a loss as it did at the last sync, or
    as it did at the end if everything was kept."""
    disk, file = disk_with()
    content = durable = b""
    for step in steps:
        kind, offset, data = step
        match kind:
            case "write":
                disk.write(file, data, offset)
            case "truncate":
                disk.truncate(file, offset)
            case _:
                disk.sync(file)
                durable = content
        content = done(content, step)
        assert disk.read(file, 5000, 0) == content
    assert after_loss(disk, keep=keep) == (content if keep else durable)


@given(st.integers(0, 2000), st.binary(min_size=1, max_size=3000), st.data())
def test_a_write_is_cut_at_a_sector_boundary(offset: int, data: bytes, draw: st.DataObject) -> None:
    """A cut write is a beginning of it that ends where a sector ends, and so it never cuts one."""
    change = Change(number=1, offset=offset, data=data)
    assert change.sectors == len({place // SECTOR_BYTES for place in range(offset, offset + len(data))})
    sectors = draw.draw(st.integers(1, change.sectors))
    cut = change.cut(sectors)
    assert cut.data is not None
    assert data.startswith(cut.data)
    assert cut.sectors == sectors
    assert len(cut.data) == len(data) or (offset + len(cut.data)) % SECTOR_BYTES == 0
