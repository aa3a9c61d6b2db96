"""The decisions of a broker: pure code without sockets, files, clocks or randomness."""
