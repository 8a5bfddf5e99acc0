"""Compare images: whether one is a copy of another, whatever their codes are.

A file each for small copies of images and where they are kept, their comparison, that of details on
pages, copies that were moved, and groups of copies. Nothing here knows a store.
"""
