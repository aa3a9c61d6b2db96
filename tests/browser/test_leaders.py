"""Handing a lead over, and promoting a follower: what is told before, and what then is so."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from kourou.testing.cluster import Cluster
from kourou_rigs.console import ConsoleHere


def test_a_change_of_leaders_that_cannot_be_is_refused(walk, scene) -> None:
    """Before it is tried, or by the broker; nobody else leads after it."""
    walk.refusals = {400, 409}
    page = walk.to("cluster/broker-a")
    before = scene.console.get("/v1/brokers/broker-a").json["leader"]
    page.get_by_role("button", name="Transfer leader").click()
    walk.dialog().get_by_role("button", name="Preview").click()
    expect(walk.dialog().get_by_role("alert")).to_contain_text("promote a follower instead")
    page.keyboard.press("Escape")
    says = walk.change("Promote", {"Broker id": 1}, verb="Promote", name="broker-a")
    assert any("refused without force" in one for one in says), says
    expect(walk.dialog().get_by_role("alert")).to_be_visible()
    page.keyboard.press("Escape")
    assert scene.console.get("/v1/brokers/broker-a").json["leader"] == before


@pytest.mark.slow
def test_a_raft_group_hands_its_lead_over(walking, tmp_path) -> None:
    with Cluster(tmp_path, raft=3) as cluster, ConsoleHere(cluster) as console:
        members = [f"n{number}" for number in range(3)]
        assert cluster.leader().removeprefix("broker-a-") in members
        walk = walking(console.address)
        page = walk.to("cluster/broker-a")
        says = walk.change("Transfer leader", {"Replica": ""}, verb="Transfer leader")
        # The group may have elected another leader since it started.
        leading = [name for name in members if f"in place of {name}." in "".join(says)]
        assert len(leading) == 1, says
        walk.close()
        replicas = console.get("/v1/brokers/broker-a/replicas").json["items"]
        (leader,) = [one["member"] for one in replicas if one["role"] == "leader"]
        assert leader in members, leader
        assert leader not in leading
        page.get_by_role("button", name="Refresh Replicas").click()
        row = page.get_by_role("table", name="Replicas").get_by_role("row")
        expect(row.filter(has_text="leader")).to_contain_text(leader)
        page.close()  # before the cluster ends, of which it asks every few seconds


@pytest.mark.slow
def test_a_follower_is_promoted_when_its_leader_is_gone(walking, tmp_path) -> None:
    with Cluster(tmp_path, replicas=1) as cluster, ConsoleHere(cluster) as console:
        cluster.chaos.kill("broker-a")
        walk = walking(console.address)
        page = walk.to("cluster/broker-a")
        says = walk.change("Promote", {"Broker id": 1}, verb="Promote", name="broker-a")
        assert not any("alive" in one for one in says), says
        assert any("brokerId 1 would lead broker-a" in one for one in says), says
        walk.close()
        page.close()
        members = console.get("/v1/brokers/broker-a/replicas").json["items"]
        assert [one["registered_id"] for one in members if one["role"] == "leader"] != [], members
