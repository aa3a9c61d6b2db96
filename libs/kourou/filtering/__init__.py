"""The meaning of subscriptions, and matching messages: pure, and bounded in time and memory."""
