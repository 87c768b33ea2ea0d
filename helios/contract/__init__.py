"""The Protobuf schema, its generated messages, and validation into `PreparedContract`."""
