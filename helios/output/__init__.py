"""Tokens turned into text: detokenising and stops."""
