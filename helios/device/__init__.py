"""The one C ABI (a cudart subset): ctypes table, memory, events, graphs, kernel library."""
