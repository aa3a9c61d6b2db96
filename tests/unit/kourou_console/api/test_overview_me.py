"""Who am I?"""

from __future__ import annotations


def test_anybody_may_do_everything_where_there_are_no_tokens(console):
    me = console.get("/v1/me").json
    assert (me["name"], me["rights"]) == ("anybody", ["read", "write", "admin"])
    assert not me["token_required"]
    assert me["cluster"] == "DefaultCluster"
    assert me["features"] == {"spark": False}
    assert me["producer_group"] == "KOUROU_CONSOLE"
    assert me["as_of_ms"] > 0
