"""COPY in binary format: its bytes from the server, and Arrow columns made of them."""
