"""The store: RocketMQ's commit log, consume queues and key index on disk, and their recovery.

Begin with `store.Store`, which composes the rest. The log is `commit_log`, where it ends after a
crash is found by `survey` and acted on by `recovery`; what follows from the log is `dispatch`,
`queue_table`, `key_index`; what readers get goes through `reads` and `verified`. `disk` is all that
it asks of a file system, `paths` knows every file name.
"""
