"""How bytes of a leader fit to a log."""

import pytest

from kourou.replication.epochs import Epochs
from kourou.replication.raft.own_log import Fit, OwnLog


def own(end: int = 300, confirmed: int = 0) -> OwnLog:
    epochs = Epochs([(3, 100), (5, 260)], end)
    return OwnLog(epochs, first_position=0, flushed=end, confirmed=confirmed)


@pytest.mark.parametrize(
    ("position", "end", "previous", "data", "wanted"),
    [
        (300, 320, 5, 5, (Fit.NEXT, 300)),
        (300, 320, 5, 7, (Fit.NEXT, 300)),
        (300, 300, 5, 5, (Fit.HAVE, 300)),
        (310, 320, 5, 5, (Fit.GAP, 0)),
        (300, 320, 3, 5, (Fit.GAP, 0)),
        (270, 300, 5, 5, (Fit.HAVE, 300)),
        (100, 200, 0, 3, (Fit.HAVE, 200)),
        (270, 320, 5, 5, (Fit.OVERLAP, 300)),
        (200, 280, 3, 3, (Fit.DIVERGED, 260)),
        (200, 220, 3, 7, (Fit.DIVERGED, 200)),
    ],
)
def test_a_chunk_fits_or_says_where_both_logs_part(
    position: int, end: int, previous: int, data: int, wanted: tuple[Fit, int]
):
    assert own().compare(position, end, previous, data) == wanted


def test_flushed_and_confirmed_never_decrease_nor_pass_the_end():
    log = own()
    assert not log.flush(200)
    assert log.confirm(999)
    assert log.confirmed == 300
    assert not log.confirm(100)
