"""Figures and log lines. The only home of OpenTelemetry and of the Prometheus client."""
