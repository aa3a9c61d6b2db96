"""Every row compares like with like; goals are met from the right side."""

from __future__ import annotations

from dataclasses import replace

from kourou_bench.rows import JAVA, JAVA5, ROWS, Goal, Name


def test_every_row_has_kourou_and_the_system_of_its_goal() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert Name.KOUROU in row.works
        assert row.goal.of is None or row.goal.of in row.works
        assert row.goal.of is not None or row.unit in {"s", "MB"}
        assert not set(row.works) & set(row.absent or {})
        assert len({work.flush for work in row.works.values()}) == 1, "durability differs"


def test_where_the_java_client_is_compared_it_does_the_same_work_at_both() -> None:
    ours = {row.works[Name.KOUROU].client: row.works for row in ROWS}
    assert set(ours) == {"", JAVA, JAVA5}
    for client, peer in ((JAVA, Name.ROCKETMQ), (JAVA5, Name.ROCKETMQ5)):
        rows = [row for row in ROWS if row.name.startswith(f"{client}-")]
        assert len(rows) == 12
        for row in rows:
            assert row.works[Name.KOUROU].client == client
            assert replace(row.works[Name.KOUROU], client="") == row.works[peer]
            assert row.goal.of is peer
    for row in [row for row in ROWS if not row.name.startswith("java")]:
        assert all(work.client == "" for work in row.works.values())


def test_goals_are_met_from_the_right_side() -> None:
    more, less = Goal(True, 3, Name.ROCKETMQ), Goal(False, 200, None)
    assert [more.reached(value) for value in (2.9, 3, 3.1)] == [False, True, True]
    assert [less.reached(value) for value in (199, 200, 201)] == [True, True, False]
    assert (more.text("msg/s"), less.text("MB")) == ("≥ 3 ×", "≤ 200 MB")
