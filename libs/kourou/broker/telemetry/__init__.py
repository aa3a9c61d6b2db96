"""What a broker reports: metrics, statistics, and trace spans."""
