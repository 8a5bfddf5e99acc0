"""Folders of pictures, tables and other collections into a store that can be searched."""
