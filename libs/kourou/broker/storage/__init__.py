"""An open store and what works on it in any role: start-up, executors, event store, mirrors."""
