"""Which keys may be changed while the broker runs."""

from __future__ import annotations

import pytest

from kourou.engine.policy import HOURS_PATTERN
from kourou.errors import Code, ConfigError, NoPermission
from kourou.settings.declaration import Setting
from kourou.settings.registry import SettingsRegistry, never_remote, parse_change

REGISTRY = SettingsRegistry(
    [
        Setting("deleteWhen", "04", dynamic=True, pattern=HOURS_PATTERN),
        Setting("fileReservedTime", 72, dynamic=True, low=1, high=87_600),
        Setting("brokerPermission", 6, dynamic=True, choices=("0", "2", "4", "6")),
        Setting("traceOn", True, dynamic=True),
        Setting("logLevel", "info", dynamic=True, choices=("debug", "info")),
        Setting("regionId", "DefaultRegion", dynamic=True),
        Setting("maxMessageSize", 4_194_304),
        Setting("listenPort", 10911),
    ]
)


@pytest.mark.parametrize(
    "name",
    [
        "storePathRootDir",
        "storePathCommitLog",
        "rocketmqHome",
        "brokerConfigPath",
        "kvConfigPath",
        "configBlackList",
        "namesrvAddr",
        "haMasterAddress",
        "brokerIP1",
        "listenPort",
        "haListenPort",
        "bindAddress",
        "aclEnable",
        "tlsEnable",
        "curveSecretKey",
        "adminToken",
        "eventStoreUrl",
        "flushDiskType",
        "brokerRole",
        "cleanFileForciblyEnable",
        "messageStorePlugIn_class",
        "filterSandbox",
        "shellCommand",
    ],
)
def test_what_decides_where_whom_and_who_is_never_set_from_afar(name: str):
    with pytest.raises(NoPermission, match="cannot be changed remotely") as refused:
        REGISTRY.dynamic(name)
    assert refused.value.wire_code == Code.NO_PERMISSION


@pytest.mark.parametrize(
    "name",
    [
        "fileReservedTime",
        "brokerPermission",
        "flushIntervalCommitLog",
        "maxTransferCountOnMessageInMemory",
        "deleteWhen",
        "messageIndexEnable",
        "enablePropertyFilter",
        "transferMsgByHeap",
    ],
)
def test_ordinary_keys_are_not_caught_by_that_rule(name: str):
    assert never_remote(name) is None


def test_such_a_key_cannot_be_listed_as_dynamic():
    with pytest.raises(AssertionError, match="file locations"):
        SettingsRegistry([Setting("storePathIndex", "/x", dynamic=True)])
    with pytest.raises(AssertionError, match="twice"):
        SettingsRegistry([Setting("a", 1), Setting("a", 2)])


@pytest.mark.feature("F358")
def test_a_refused_key_says_why_and_an_unknown_one_names_the_nearest_that_can_be_changed():
    with pytest.raises(ConfigError) as unknown:
        REGISTRY.dynamic("filereservedTim")
    assert "setting 'filereservedTim' not found" in str(unknown.value)
    assert "most similar dynamic setting is fileReservedTime" in str(unknown.value)
    with pytest.raises(ConfigError) as static:
        REGISTRY.dynamic("maxMessageSize")
    assert "maxMessageSize is a setting, but it cannot be changed while" in str(static.value)
    assert "restart" in str(static.value)
    assert "most similar" not in str(static.value), "it is there; another one does not help"


def spec(name: str) -> Setting:
    return REGISTRY.dynamic(name)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("fileReservedTime", " 24 ", 24),
        ("brokerPermission", "4", 4),
        ("traceOn", "FALSE", False),
        ("logLevel", "debug", "debug"),
        ("regionId", "eu west", "eu west"),
        ("deleteWhen", "04;16", "04;16"),
    ],
)
def test_values_take_the_type_of_their_key(name: str, text: str, value: object):
    read = parse_change(spec(name), text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("fileReservedTime", "0"),
        ("fileReservedTime", "87601"),
        ("fileReservedTime", "1e3"),
        ("fileReservedTime", "٣"),
        ("fileReservedTime", "9" * 400),
        ("fileReservedTime", ""),
        ("brokerPermission", "3"),
        ("traceOn", "yes"),
        ("logLevel", "loud"),
        ("regionId", "a\nlistenPort=1"),
        ("regionId", "a\x00"),
        ("regionId", "x" * 1_025),
        ("deleteWhen", "24"),
        ("deleteWhen", "04,16"),
        ("deleteWhen", ""),
    ],
)
def test_values_that_do_not_fit_are_refused_by_name(name: str, text: str):
    with pytest.raises(ConfigError, match=name):
        parse_change(spec(name), text)


def test_what_a_key_may_be_is_reported() -> None:
    told = {spec.key: REGISTRY.view(spec, "now") for spec in REGISTRY}
    hours = told["fileReservedTime"]
    assert (hours.value, hours.configured, hours.kind) == ("now", "72", "integer")
    assert (hours.minimum, hours.maximum, hours.changeable) == (1, 87_600, True)
    assert (told["traceOn"].configured, told["traceOn"].kind) == ("true", "boolean")
    assert (told["regionId"].kind, told["regionId"].minimum) == ("text", None)
    assert told["logLevel"].choices == ("debug", "info")
    size, port = told["maxMessageSize"], told["listenPort"]
    assert (size.changeable, size.minimum, size.maximum) == (False, None, None)
    assert "cannot be changed while" in size.why_not
    assert "where it listens" in port.why_not
