"""OpenTelemetry spans and RocketMQ's message trace."""
