"""The store: RocketMQ's commit log, consume queues and key index on disk, and their recovery.

Start reading at `store.Store`, which composes the rest. `log` holds the commit log and its readers;
after a crash, `recovery` finds its end and acts on it. `queues` and `index` are the projections of
the log. `disk` is the interface to the file system, and `paths` defines every file name.
"""
