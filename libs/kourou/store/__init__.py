"""The store: RocketMQ's commit log, consume queues and key index on disk, and their recovery.

Start reading at `store.Store`, which composes the rest. `commit_log` is the log; after a crash,
`survey` finds its end and `recovery` acts on it. `dispatch`, `queue_table` and `key_index` are the
projections of the log. Readers go through `reads` and `verified`. `disk` is the interface to the
file system, and `paths` defines every file name.
"""
