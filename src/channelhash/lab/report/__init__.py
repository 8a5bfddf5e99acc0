"""One HTML page about a run or a grid of runs that holds its images, loads nothing and runs no
script.
"""
