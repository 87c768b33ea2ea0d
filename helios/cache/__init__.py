"""Books of pages: numbers only, no device."""
