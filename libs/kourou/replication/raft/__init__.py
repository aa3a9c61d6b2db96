"""One replica of a Raft group whose log is the commit log: elections, replication, commitment."""
