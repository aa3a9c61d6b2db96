"""The runtime that all services share: settings, single-writer loop, lifecycle, admin pages."""
