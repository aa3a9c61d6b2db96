"""`kourou demo`: a year of flights through real processes, with all counts verified."""
