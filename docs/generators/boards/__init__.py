"""The dashboards of deploy/grafana/dashboards, one module each."""
