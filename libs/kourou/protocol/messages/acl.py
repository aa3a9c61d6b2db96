"""Headers of access accounts kept at brokers, as in RocketMQ's plain ACL."""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.request import Request, Response


class UpdateAndCreateAclConfig(Request, kw_only=True, frozen=True):
    """UPDATE_AND_CREATE_ACL_CONFIG (50): put an account; permissions are `name=PERM,name=PERM`."""

    code: ClassVar[int] = 50
    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


class DeleteAclConfig(Request, kw_only=True, frozen=True):
    """DELETE_ACL_CONFIG (51): delete an account."""

    code: ClassVar[int] = 51
    access_key: str


class GetBrokerClusterAclInfo(Request, kw_only=True, frozen=True):
    """GET_BROKER_CLUSTER_ACL_INFO (52): get the version of a broker's accounts."""

    code: ClassVar[int] = 52


class GetBrokerClusterAclInfoResponse(Response, kw_only=True, frozen=True):
    """The version of this broker's accounts."""

    version: str
    all_acl_file_version: str | None = None
    broker_name: str | None = None
    broker_addr: str | None = None
    cluster_name: str | None = None


class UpdateGlobalWhiteAddrsConfig(Request, kw_only=True, frozen=True):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53): set the addresses that need no account."""

    code: ClassVar[int] = 53
    global_white_addrs: str
    acl_file_full_path: str | None = None
