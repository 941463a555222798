"""Recipes: each algorithm once, as a generator that yields operations and is sent their answers.

No recipe knows of threads, time-outs or interrupts: a driver throws those in at the yield, and the recipe discards its
tickets on the way out. Each file holds the recipes of one primitive, and each recipe reads top to bottom.
"""
