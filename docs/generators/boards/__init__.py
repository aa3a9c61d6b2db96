"""The dashboards of deploy/grafana/dashboards, a module each."""
