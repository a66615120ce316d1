"""One picture: bytes → header → pixels → the bytes of a record."""
