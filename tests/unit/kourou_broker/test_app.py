"""A broker's settings, as its own command takes them."""

import pytest

from kourou_broker import app


def test_settings_that_are_wrong_end_with_one_sentence(capsys) -> None:
    assert app.run(["--brokerRole=SLAVE"]) == 2 or app.run(["brokerRole=SLAVE"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("kourou broker: ")
    assert err.count("Traceback") == 0


@pytest.mark.parametrize(
    "wrong",
    [
        "brokerRole=SLAVE",
        "brokerId=1",
        "namesrvAddr=10.0.0.1:port",
        "eventStoreUrl=mysql://host/db",
        "adminHost=0.0.0.0",
        "bindAddress=0.0.0.0",
        "deleteWhen=24",
    ],
)
@pytest.mark.parametrize("way", ["-p", "-m"])
def test_what_is_printed_could_be_started(
    wrong: str, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A value that a start refuses is refused where settings are read, so by every way alike."""
    assert app.run([way, "--set", wrong]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert wrong.partition("=")[0] in err or "eventStoreUrl" in wrong or "namesrvAddr" in wrong
    assert len(err.splitlines()) == 1
