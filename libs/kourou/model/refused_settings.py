"""RocketMQ settings for safety features that Kourou does not have.

An operator who writes `tls.server.mode=enforcing` relies on it. Ignoring it would be wrong, so a
service does not start with it, a running service refuses it, and a client does not open with it.
The value that turns the feature off is accepted, so that a file with `useTLS=false` can be used.

`aclEnable` and its like are settings of a broker (kourou.broker.network_keys); other services,
clients and requests to a running broker refuse them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kourou.errors import ConfigError

TLS_PREFIX = "tls."
TLS_SERVER_PREFIX = "tls.server."


@dataclass(frozen=True, slots=True)
class RefusedSetting:
    """`usual`: the accepted values, in lower case, as a rule RocketMQ's default first."""

    usual: tuple[str, ...]
    why: str
    instead: str


_NO_ACL = (
    "Kourou does not need it: a broker decides requests as soon as it has users, and name servers "
    "and clients decide none"
)
_USERS = "write it into a broker's file, or create users with `kourou user create NAME --admin`"
_NO_ACCESS_KEY = (
    "Kourou has no access key in settings, and its clients would be without credentials"
)
_USER_KEY = "use curveKeyFile, and give its public key to a user"
_NO_TLS = "Kourou does not use TLS in its own clients and outgoing connections"
_CURVE = (
    "use curveKeyFile between Kourou's own services and clients; listeners for RocketMQ's clients "
    "and HTTP ports have tls.server.mode"
)
_NO_LISTENER_TLS = "Kourou does not take it here: services read it at their start"
_IN_FILE = "write it into their settings"
_NO_COUNT = "Kourou does not wait for a number of replicas"
_ACKS = "brokerRole=SYNC_MASTER waits for one follower, a Raft group (dLegerPeers) for a majority"
_NO_CONTROLLER = "Kourou has no controller, and no other broker would take over"
_RAFT = "a Raft group (enableDLegerCommitLog, dLegerPeers) elects another leader by itself"
_BLACK_LIST = "Kourou has its own list of keys that cannot be changed remotely"

REFUSED: Mapping[str, RefusedSetting] = {
    "aclEnable": RefusedSetting(("false",), _NO_ACL, _USERS),
    "authenticationEnabled": RefusedSetting(("false",), _NO_ACL, _USERS),
    "authorizationEnabled": RefusedSetting(("false",), _NO_ACL, _USERS),
    "accessKey": RefusedSetting(("",), _NO_ACCESS_KEY, _USER_KEY),
    "secretKey": RefusedSetting(("",), _NO_ACCESS_KEY, _USER_KEY),
    "useTLS": RefusedSetting(("false",), _NO_TLS, _CURVE),
    "tls.enable": RefusedSetting(("false",), _NO_TLS, _CURVE),
    "tls.server.mode": RefusedSetting(("disabled",), _NO_LISTENER_TLS, _IN_FILE),
    "tls.server.need.client.auth": RefusedSetting(("none",), _NO_LISTENER_TLS, _IN_FILE),
    "tls.server.authClient": RefusedSetting(("false",), _NO_LISTENER_TLS, _IN_FILE),
    "tls.server.keyPassword": RefusedSetting(
        ("",),
        "Kourou takes no password in a setting, which others can read",
        "write it to a file with mode 600, and name that in tls.server.keyPasswordFile",
    ),
    "tls.test.mode.enable": RefusedSetting(
        ("false",),
        "Kourou never makes a self-signed certificate, which everyone can imitate",
        "name a certificate and its key in tls.server.certPath and tls.server.keyPath",
    ),
    "tls.config.file": RefusedSetting(
        ("",),
        "Kourou reads no second file of settings",
        "write the lines of that file into the settings of the service",
    ),
    "tls.client.authServer": RefusedSetting(("false",), _NO_TLS, _CURVE),
    "configBlackList": RefusedSetting(
        (
            "",
            "configblacklist",
            "configblacklist;brokerconfigpath",
            "configblacklist;configstorepath;kvconfigpath",
        ),
        _BLACK_LIST,
        "docs/reference/settings.md says which keys can be set (live)",
    ),
    "inSyncReplicas": RefusedSetting(("1",), _NO_COUNT, _ACKS),
    "minInSyncReplicas": RefusedSetting(("1",), _NO_COUNT, _ACKS),
    "allAckInSyncStateSet": RefusedSetting(("false",), _NO_COUNT, _ACKS),
    "enableControllerMode": RefusedSetting(("false",), _NO_CONTROLLER, _RAFT),
    "enableControllerInNamesrv": RefusedSetting(("false",), _NO_CONTROLLER, _RAFT),
    "messageStorePlugIn": RefusedSetting(
        ("",),
        "Kourou has no store plug-ins, and stores messages only in its own log",
        "copy messages that you keep longer with the Spark service",
    ),
    "readOnlyCommitLogStorePaths": RefusedSetting(
        ("",),
        "Kourou reads one log directory, and messages in others would be missing",
        "move the segments into storePathCommitLog while the broker is down",
    ),
    "warmMapedFileEnable": RefusedSetting(
        ("false",),
        "Kourou writes its log without a mapping, into space that it allocates ahead, so there are "
        "no pages to warm",
        "appends have no page faults here",
    ),
}
"""By RocketMQ's names, for broker, name server and client; a service's own settings come first."""

_OTHER_TLS = RefusedSetting((), _NO_TLS, _CURVE)
_OTHER_LISTENER_TLS = RefusedSetting(
    (),
    "Kourou does not have this setting, or does not take it here: services read TLS at their start",
    "docs/reference/settings.md lists them",
)


def refused_setting(key: str) -> RefusedSetting | None:
    """The entry of a key for a feature that Kourou does not have; None for any other key."""
    if key.startswith(TLS_PREFIX):
        others = _OTHER_LISTENER_TLS if key.startswith(TLS_SERVER_PREFIX) else _OTHER_TLS
        return REFUSED.get(key, others)
    return REFUSED.get(key)


def promises_nothing(key: str, text: str) -> bool:
    """True if this is one of those keys, with an accepted value; False for any other key.

    Raises ConfigError if it is one of them with another value.
    """
    one = refused_setting(key)
    if one is None:
        return False
    value = text.strip()
    if value.lower() in one.usual:
        return True
    shown = "…" if key in ("secretKey", "accessKey") or "assword" in key else value[:128]
    usual = f", or write {key}={one.usual[0]}" if one.usual and one.usual[0] else ""
    raise ConfigError(
        f"{key}={shown} is refused: {one.why}", hint=f"remove the key{usual}; {one.instead}"
    )
