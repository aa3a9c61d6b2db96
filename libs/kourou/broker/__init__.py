"""The runtime of a broker in any role.

services/broker and services/ha-replica are thin layers over it, because a follower must be able to
become a leader. `broker_service` is the process, `role_session` one session of its core; `storage`
has the open store and its executors, `network` the connections, `raft` the replica of a Raft group,
`telemetry` metrics and spans. The settings (`config` and the `…_keys` modules) are next to them.
"""
