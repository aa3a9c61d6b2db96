"""One member of a Raft group whose log is the commit log: elections, copies, confirmation."""
