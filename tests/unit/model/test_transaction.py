"""What an application's words for an outcome mean."""

import pytest

from kourou.errors import BadRequest
from kourou.model.transaction import TransactionState, state_of


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (True, TransactionState.COMMIT),
        (False, TransactionState.ROLLBACK),
        (None, TransactionState.UNKNOWN),
        *((state, state) for state in TransactionState),
    ],
)
def test_a_state_or_a_short_word_for_it(answer: object, state: TransactionState) -> None:
    assert state_of(answer) is state


@pytest.mark.parametrize("answer", [1, 0, "", "COMMIT_MESSAGE", [], object()])
def test_nothing_else_decides_about_a_message(answer: object) -> None:
    with pytest.raises(BadRequest, match="outcome"):
        state_of(answer)
