"""A checkpoint turned into a core: recipes, preparation, checkpoint readers, capture."""
