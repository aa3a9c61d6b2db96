"""The sandbox and the code that runs in it; imports only the standard library and itself."""
