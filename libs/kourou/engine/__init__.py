"""What a broker decides: pure, without sockets, files, clocks or chance."""
