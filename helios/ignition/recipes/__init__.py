"""One recipe an architecture family: named operations on symbolic tensors."""
