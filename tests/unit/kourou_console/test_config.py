"""What the console watches can be set, in units that people write."""

from kourou_console.config import WatchKeys
from kourou_console.metrics.alarms import AlarmThresholds


def test_percent_becomes_a_ratio_and_the_defaults_agree() -> None:
    assert WatchKeys().thresholds == AlarmThresholds()
    assert WatchKeys(alarm_disk_percent=90).thresholds.disk_used_ratio == 0.9
