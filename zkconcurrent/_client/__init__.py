"""How a program begins: a client from a URL, what the URL says, and who may do what with the client's nodes."""
