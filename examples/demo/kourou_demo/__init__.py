"""`kourou demo`: a year of flights through real processes, counted from end to end."""
