"""The views of `headrace replay`: plans, progress, results of a shadow."""
