"""Metrics, traces and logs. Only this package imports OpenTelemetry and the Prometheus client."""
