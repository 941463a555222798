"""What the tests stand on: a proxy on the wire, and a Java peer on the other side of it."""
