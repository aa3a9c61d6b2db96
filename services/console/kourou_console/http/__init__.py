"""HTTP: connections and their limits, requests, responses, and the generated description."""
