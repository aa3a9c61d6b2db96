"""No message leaves while a vote is on its way to disk, and no vote is taken back."""

from kourou.protocol.messages.replication import Vote
from kourou.replication.raft.effects import Effect, SaveVote, Send
from kourou.replication.raft.election import Ballot

MESSAGE = Send("n1", Vote(group="g", epoch=2, member="n0", granted=True))


def test_messages_wait_for_all_that_is_being_written():
    ballot, out = Ballot(1, ""), list[Effect]()
    assert ballot.write(2, "n1") == SaveVote(2, "n1")
    ballot.write(3, "")
    ballot.send(MESSAGE, out)
    assert not ballot.vote_saved(out)
    assert out == []
    assert ballot.vote_saved(out)
    assert out == [MESSAGE]
    ballot.send(MESSAGE, out)
    assert out == [MESSAGE, MESSAGE]
