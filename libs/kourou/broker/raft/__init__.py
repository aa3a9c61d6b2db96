"""A broker as a replica of a Raft group."""
