"""The life all services share: settings, the single-writer loop, start and stop, the admin page."""
